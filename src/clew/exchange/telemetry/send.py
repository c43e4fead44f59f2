"""Spans to an endpoint of OTLP over HTTP: a collector, Phoenix, Langfuse. Needs the extra ``otel``.

``clew export --otel URL`` calls it. Headers (credentials) come from OTEL_EXPORTER_OTLP_HEADERS, which the exporter of
OpenTelemetry reads itself; they must never be printed or recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from clew.core.errors import BadInput, Unreachable, need
from clew.exchange.telemetry.file import batches
from clew.exchange.telemetry.span import Span, resource
from clew.exchange.telemetry.to_spans import spans_of_run
from clew.store import Run

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

PATH = "/v1/traces"
TOGETHER = 100  # spans of one request
REMEDY = "Check that an OTLP/HTTP receiver answers there, and OTEL_EXPORTER_OTLP_HEADERS if it asks for credentials."


def endpoint_of(url: str) -> str:
    """The address that traces are sent to, of a server's own address or that of its traces.

    Raises:
        BadInput: it is no address of HTTP.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # raises where it is none
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        remedy = "Give the address of a receiver, as in http://localhost:4318."
        raise BadInput(f"{url!r} is no address of HTTP", remedy=remedy)
    return url if parts.path.endswith(PATH) else url.rstrip("/") + PATH


def send(runs: Iterable[Run], url: str, *, progress: Callable[[int], None] | None = None) -> int:
    """Send the spans of runs to an endpoint; gives the number of runs.

    A run that was sent before has the same ids, so that a backend that goes by ids keeps it once.

    Args:
        url: of the server (``http://localhost:4318``) or of its traces (``.../v1/traces``).
        progress: called with the number of runs so far.

    Raises:
        BadInput: the address is none. MissingExtra: the extra ``otel`` is not installed. Unreachable: the receiver did
        not take them.
    """
    address = endpoint_of(url)
    exporter = need("opentelemetry.exporter.otlp.proto.http.trace_exporter", "otel").OTLPSpanExporter(endpoint=address)
    result = need("opentelemetry.sdk.trace.export", "otel").SpanExportResult
    count = 0

    def spans() -> Iterator[Span]:
        nonlocal count
        for run in runs:
            yield from spans_of_run(run)
            count += 1
            if progress is not None:
                progress(count)

    with _said() as said:
        try:
            for batch in batches(spans(), TOGETHER):
                if exporter.export([_readable(span) for span in batch]) is not result.SUCCESS:
                    why = "; ".join(dict.fromkeys(text[:300] for text in said[-2:])) or "no reason was given"
                    raise Unreachable(f"{address} did not take the spans: {why}", remedy=REMEDY)
        finally:
            exporter.shutdown()
    return count


@contextmanager
def _said() -> Iterator[list[str]]:
    """What the exporter logs, which is the only place where it says why; nothing of it is printed."""
    said: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logger, keep = logging.getLogger("opentelemetry"), Keep()
    before, logger.propagate = logger.propagate, False
    logger.addHandler(keep)
    try:
        yield said
    finally:
        logger.removeHandler(keep)
        logger.propagate = before


def _readable(span: Span) -> ReadableSpan:
    """A span as the SDK's exporters take it."""
    api, sdk = need("opentelemetry.trace", "otel"), need("opentelemetry.sdk.trace", "otel")
    about = need("opentelemetry.sdk.resources", "otel").Resource(resource())
    scope = need("opentelemetry.sdk.util.instrumentation", "otel").InstrumentationScope("clew")
    code = api.StatusCode.ERROR if span.error else api.StatusCode.UNSET
    kinds = {1: api.SpanKind.INTERNAL, 3: api.SpanKind.CLIENT}

    def context(id: str) -> Any:
        return api.SpanContext(int(span.trace, 16), int(id, 16), is_remote=False, trace_flags=api.TraceFlags(1))

    made: ReadableSpan = sdk.ReadableSpan(
        span.name,
        context(span.id),
        context(span.parent) if span.parent else None,
        about,
        dict(span.attributes),
        [sdk.Event(e.name, dict(e.attributes), e.time) for e in span.events],
        kind=kinds[span.kind],
        status=api.Status(code, span.error or None),
        start_time=span.start,
        end_time=span.end,
        instrumentation_scope=scope,
    )
    return made
