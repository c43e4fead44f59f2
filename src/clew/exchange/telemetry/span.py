"""A span, and OTLP's JSON form of it, which the collector's file exporter writes.

``file`` and ``send`` call it. It must never trust a value it decodes: types are checked, what is none is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from typing import Any, NamedTuple

Plain = str | bool | int | float
Value = Plain | Sequence[Plain]
Json = dict[str, Any]
INTERNAL, CLIENT = 1, 3  # opentelemetry.proto.trace.v1.Span.SpanKind
FAILED = 2  # opentelemetry.proto.trace.v1.Status.StatusCode
UNSAID = "failed"  # the error of a span that says no more
ATTRIBUTES = 20_000  # of a span, once flattened; a message of OpenInference takes about five


class Event(NamedTuple):
    """Something that a span says of one moment, in nanoseconds since the epoch."""

    name: str
    time: int
    attributes: Mapping[str, Any]


class Span(NamedTuple):
    """One span. ids are hex, 32 digits of the trace and 16 of the span; times are nanoseconds since the epoch."""

    trace: str
    id: str
    parent: str  # empty for the root of a trace
    name: str
    start: int
    end: int
    attributes: Mapping[str, Any]  # written: Value; read: whatever JSON the file has there
    kind: int = INTERNAL
    error: str = ""
    events: tuple[Event, ...] = ()


def resource() -> dict[str, Value]:
    """What the spans of Clew say of the program that made them."""
    return {"service.name": "clew", "service.version": version("clew")}


def document(spans: Iterable[Span]) -> Json:
    """Spans as one request of OTLP, in JSON."""
    scope = {"name": "clew", "version": version("clew")}
    inner = [{"scope": scope, "spans": [encoded(span) for span in spans]}]
    return {"resourceSpans": [{"resource": {"attributes": _pairs(resource())}, "scopeSpans": inner}]}


def encoded(span: Span) -> Json:
    """One span as OTLP's JSON has it."""
    out: Json = {"traceId": span.trace, "spanId": span.id}
    if span.parent:
        out["parentSpanId"] = span.parent
    out |= {
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
    }
    out["attributes"] = _pairs(span.attributes)
    if span.events:
        out["events"] = [
            {"timeUnixNano": str(e.time), "name": e.name, "attributes": _pairs(e.attributes)} for e in span.events
        ]
    out["status"] = {"code": FAILED, "message": span.error} if span.error else {}
    return out


def _pairs(attributes: Mapping[str, Any]) -> list[Json]:
    return [{"key": key, "value": _wrapped(value)} for key, value in attributes.items()]


def _wrapped(value: Any) -> Json:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, str):
        return {"stringValue": value}
    return {"arrayValue": {"values": [_wrapped(one) for one in value]}}


def spans_of(data: object) -> Iterator[Span]:
    """The spans of one JSON document: a request of OTLP, one span as OpenTelemetry's SDK prints it, or a list of them.

    Raises:
        ValueError: it is none of these, or a span in it has no ids.
    """
    if isinstance(data, list):
        for one in data:
            yield from spans_of(one)
    elif isinstance(data, dict) and isinstance(data.get("resourceSpans"), list):
        for part in _objects(data["resourceSpans"]):
            about = _unpaired((part.get("resource") or {}).get("attributes"))
            for scope in _objects(part.get("scopeSpans") or part.get("instrumentationLibrarySpans")):
                yield from (_decoded(span, about) for span in _objects(scope.get("spans")))
    elif isinstance(data, dict) and isinstance(data.get("context"), dict):
        yield _printed(data)
    else:
        raise ValueError("no spans: neither resourceSpans nor a span with its context")


def _objects(values: object) -> Iterator[Json]:
    return (one for one in values if isinstance(one, dict)) if isinstance(values, list) else iter(())


def _decoded(raw: Json, about: Json) -> Span:
    status = raw.get("status")
    failed = isinstance(status, dict) and status.get("code") in (FAILED, "STATUS_CODE_ERROR")
    events = tuple(
        Event(str(e.get("name", "")), _nanoseconds(e.get("timeUnixNano")), _unpaired(e.get("attributes")))
        for e in _objects(raw.get("events"))
    )
    return Span(
        _id(raw.get("traceId"), 32),
        _id(raw.get("spanId"), 16),
        raw["parentSpanId"] if isinstance(raw.get("parentSpanId"), str) else "",
        str(raw.get("name", "")),
        _nanoseconds(raw.get("startTimeUnixNano")),
        _nanoseconds(raw.get("endTimeUnixNano")),
        {**about, **_unpaired(raw.get("attributes"))},
        error=str(status.get("message") or UNSAID) if failed and isinstance(status, dict) else "",
        events=events,
    )


def _printed(raw: Json) -> Span:
    """A span as OpenTelemetry's SDK (``ReadableSpan.to_json``) and Phoenix print it: times as text."""
    where, status, about = raw["context"], raw.get("status"), raw.get("resource")
    about = about.get("attributes") if isinstance(about, dict) else None
    failed = "ERROR" in (str(status.get("status_code")) if isinstance(status, dict) else str(raw.get("status_code")))
    events = tuple(
        Event(str(e.get("name", "")), _nanoseconds(e.get("timestamp")), _flat(e.get("attributes")))
        for e in _objects(raw.get("events"))
    )
    why = status.get("description") if isinstance(status, dict) else raw.get("status_message")
    parent = raw.get("parent_id")
    attributes = {**_flat(about), **_flat(raw.get("attributes"))}
    if isinstance(raw.get("span_kind"), str) and raw["span_kind"].isupper():  # Phoenix says it beside the attributes
        attributes.setdefault("openinference.span.kind", raw["span_kind"])
    return Span(
        _id(str(where.get("trace_id", "")).removeprefix("0x"), 32),
        _id(str(where.get("span_id", "")).removeprefix("0x"), 16),
        parent.removeprefix("0x") if isinstance(parent, str) else "",
        str(raw.get("name", "")),
        _nanoseconds(raw.get("start_time")),
        _nanoseconds(raw.get("end_time")),
        attributes,
        error=str(why or UNSAID) if failed else "",
        events=events,
    )


def _id(value: object, digits: int) -> str:
    """An id in hex.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, str) and len(value) == digits:
        return f"{int(value, 16):0{digits}x}"
    raise ValueError(f"a span without an id of {digits} hex digits")


def _nanoseconds(value: object) -> int:
    """A time as OTLP (a number, often as text) or the SDK (ISO 8601) writes it; 0 where there is none."""
    try:
        if isinstance(value, str) and not value.isdecimal():
            return int(datetime.fromisoformat(value).timestamp() * 1e6) * 1000
        found = int(value) if isinstance(value, (str, int)) else 0
    except (ValueError, OverflowError, OSError):
        return 0
    return found if 0 <= found < 1 << 63 else 0


def _unpaired(pairs: object) -> Json:
    """OTLP's list of keys and values as an object."""
    return {p["key"]: _unwrapped(p.get("value")) for p in _objects(pairs) if isinstance(p.get("key"), str)}


def _unwrapped(value: object) -> Any:
    if not isinstance(value, dict) or not value:
        return None
    kind, inner = next(iter(value.items()))
    if kind == "intValue":
        try:
            return int(inner)
        except (ValueError, TypeError):
            return None
    if kind == "arrayValue":
        return [_unwrapped(one) for one in _objects((inner or {}).get("values"))] if isinstance(inner, dict) else []
    if kind == "kvlistValue":
        return _unpaired(inner.get("values")) if isinstance(inner, dict) else {}
    return inner if isinstance(inner, (str, bool, int, float)) else None


def _flat(attributes: object) -> Json:
    """Attributes as one object with dotted names; Phoenix nests them."""
    found: Json = {}
    level: list[tuple[str, object]] = [("", attributes)]
    while level and len(found) < ATTRIBUTES:
        name, value = level.pop()
        parts: Iterable[tuple[Any, object]] = ()
        if isinstance(value, dict):
            parts = value.items()
        elif isinstance(value, list) and any(isinstance(one, (dict, list)) for one in value):
            parts = enumerate(value)
        elif name:
            found[name] = value
        level += [(f"{name}.{key}" if name else str(key), one) for key, one in parts]
    return found


def text(value: object) -> str:
    """A value as the text of an attribute: text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
