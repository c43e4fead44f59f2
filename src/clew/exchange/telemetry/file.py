"""OTLP in a file: JSON lines, as the collector's file exporter writes them, or one JSON document.

Read besides: spans as OpenTelemetry's SDK and Phoenix print them. A trace may be spread over the whole file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from clew.core.errors import BadRecord
from clew.exchange import files
from clew.exchange.telemetry.from_spans import CAPTURE, kept, transcript_of
from clew.exchange.telemetry.span import Span, document, spans_of
from clew.exchange.telemetry.to_spans import spans_of_run
from clew.exchange.transcript import Transcript
from clew.store import Run

SUFFIXES = (".otlp.jsonl", ".otlp.json", ".otlp.jsonl.gz")
NEEDS = "Give OTLP as JSON: what the collector's file exporter writes, one request a line or one document."
SPANS, BYTES = 1_000_000, 1 << 30  # of one file, which are kept until all of it is read
TOGETHER = 200  # spans of one line; a collector reads a line at once


def recognises(head: bytes, suffix: str) -> bool:
    """Whether a file that begins so holds spans."""
    return b'"resourceSpans"' in head or (b'"trace_id"' in head and b'"span_id"' in head and b'"context"' in head)


def read(path: Path) -> Iterator[Transcript | BadRecord]:
    """A transcript of each trace in which a model replied, by the time of its first span; what is none gives its error.

    Raises:
        BadInput: the file cannot be opened. BadRecord: it holds more than can be kept.
    """
    traces: dict[str, list[Span]] = {}
    total = size = 0
    for found in _spans(path):
        if isinstance(found, BadRecord):
            yield found
            continue
        span = kept(found)
        if span is None:
            continue
        total += 1
        size += sum(len(value) for value in span.attributes.values() if isinstance(value, str))
        if total > SPANS or size > BYTES:
            raise BadRecord(f"{path.name}: over {SPANS:,} spans or {BYTES >> 20} MiB of them", remedy=files.SHORTER)
        traces.setdefault(span.trace, []).append(span)
    for trace in sorted(traces, key=lambda trace: min(span.start for span in traces[trace])):
        where = f"{path.name}: trace {trace}"
        try:
            made = transcript_of(traces.pop(trace), where)
        except BadRecord as error:
            yield BadRecord(f"{where}: {error.message}", remedy=error.remedy or NEEDS)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            remedy = CAPTURE if "no messages" in str(error) else NEEDS
            yield BadRecord(f"{where}: {str(error)[:200]}", remedy=remedy)
        else:
            if made is not None:
                yield made


def _spans(path: Path) -> Iterator[Span | BadRecord]:
    for where, text in _documents(path):
        try:
            yield from list(spans_of(files.loads(text)))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            yield BadRecord(f"{where}: {str(error)[:200]}", remedy=NEEDS)


def _documents(path: Path) -> Iterator[tuple[str, bytes]]:
    """The documents of a file: its lines, or all of it where its first line is no document."""
    if path.suffix == ".json":
        text = files.whole(path)
        try:
            files.loads(text.lstrip().split(b"\n", 1)[0])
        except ValueError:
            yield path.name, text
            return
    yield from ((f"{path.name}:{number}", line) for number, line in files.lines(path))


def write_runs(path: Path, runs: Iterable[Run]) -> int:
    """Write the spans of runs, some hundred a line; one document where the path ends in .json. Gives the runs' number.

    Raises:
        BadInput: the file cannot be written.
    """
    count = 0

    def spans() -> Iterator[Span]:
        nonlocal count
        for run in runs:
            count += 1
            yield from spans_of_run(run)

    with files.writing(path) as file:
        if path.suffix == ".json":
            file.write(files.dumps(document(list(spans()))) + b"\n")
        else:
            for batch in batches(spans(), TOGETHER):
                file.write(files.dumps(document(batch)) + b"\n")
    return count


def batches(spans: Iterable[Span], most: int, size: int = 4 << 20) -> Iterator[list[Span]]:
    """Spans in lists of at most ``most``, and of about ``size`` characters unless one alone has more."""
    batch, filled = list[Span](), 0
    for span in spans:
        length = sum(len(value) for value in span.attributes.values() if isinstance(value, str))
        if batch and (len(batch) >= most or filled + length > size):
            yield batch
            batch, filled = [], 0
        batch.append(span)
        filled += length
    if batch:
        yield batch
