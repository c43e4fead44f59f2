"""An endpoint of OTLP over HTTP: takes the spans that programs send as they run. Needs the extra ``serve``.

``clew import --listen`` serves it. Requests come as JSON or as protobuf (which needs the extra ``otel``), plain or
gzipped. What comes is hostile: bodies are bounded, also unpacked, and nothing of them is run or printed.
"""

from __future__ import annotations

import asyncio
import base64
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from clew.core.errors import BadInput, ClewError, MissingExtra, need
from clew.exchange import files
from clew.exchange.telemetry.inbox import Arrived, Inbox
from clew.exchange.telemetry.send import PATH
from clew.serve.incoming import body_of, caller
from clew.serve.refusals import Rejected

PROTOBUF = "application/x-protobuf"
EVERY = 1.0  # seconds between two looks for traces that are whole
STALL = 30.0  # seconds in which a client may send nothing


def application(inbox: Inbox, told: Callable[[Arrived], object], token: str = "") -> Starlette:
    """The endpoint.

    Args:
        told: is called with what became of each trace, in the server's loop.
        token: what clients must send, as ``Authorization: Bearer TOKEN``; empty: nothing is asked.
    """

    async def traces(request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            caller(request, (token,) if token else (), pages=False)
            body = await body_of(request, files.LINE, STALL)
            taken = await asyncio.to_thread(_take, inbox, body, kind, request.headers.get("content-encoding", ""))
        except Rejected as error:
            return _answer(kind, error.status, f"{error.message}. {error.remedy}")
        except MissingExtra as error:
            return _answer(kind, 415, f"{error.message}. {error.remedy}")
        except BadInput as error:
            return _answer(kind, 503, f"{error.message}. {error.remedy}")  # exporters send it again
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            return _answer(kind, 400, f"this is no request of OTLP: {str(error)[:200]}")
        return _answer(kind, 200, "", taken)

    async def watch() -> None:
        while True:
            await asyncio.sleep(EVERY)
            with suppress(ClewError):  # a busy or full disk: look again
                for arrived in await asyncio.to_thread(inbox.imported):
                    told(arrived)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        watching = asyncio.create_task(watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            for arrived in await asyncio.to_thread(inbox.imported, True):
                told(arrived)

    return Starlette(routes=[Route(PATH, traces, methods=["POST"])], lifespan=lifespan)


def _take(inbox: Inbox, body: bytes, kind: str, packed: str) -> int:
    if packed not in ("", "identity", "gzip"):
        raise ValueError(f"it is packed as {packed[:40]!r}, not as gzip")
    if packed == "gzip":
        try:
            reader = zlib.decompressobj(wbits=31)
            body = reader.decompress(body, files.LINE)
        except zlib.error as error:
            raise ValueError(f"its gzip is broken ({error})") from None
        if reader.unconsumed_tail:
            raise ValueError(f"it unpacks to over {files.LINE >> 20} MiB")
    return inbox.take(_from_protobuf(body) if kind == PROTOBUF else files.loads(body))


def _from_protobuf(body: bytes) -> Any:
    """A request in protobuf as the JSON form of OTLP, in which ids are hex.

    Raises:
        ValueError: it is none. MissingExtra: the extra ``otel`` is not installed.
    """
    service = need("opentelemetry.proto.collector.trace.v1.trace_service_pb2", "otel")
    form, broken = need("google.protobuf.json_format", "otel"), need("google.protobuf.message", "otel").DecodeError
    request = service.ExportTraceServiceRequest()
    try:
        request.ParseFromString(body)
    except broken as error:
        raise ValueError(str(error)) from None
    found = form.MessageToDict(request)
    for part in found.get("resourceSpans", ()):
        for scope in part.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                for name in ("traceId", "spanId", "parentSpanId"):
                    if name in span:
                        span[name] = base64.b64decode(span[name]).hex()
    return found


def _answer(kind: str, status: int, why: str, taken: int = 0) -> Response:
    """An answer in the form of the request: nothing where all is well, else why not."""
    headers = {"x-clew-spans": str(taken)} if status == 200 else {}
    if kind != PROTOBUF:
        return JSONResponse({"message": why} if why else {}, status, headers)
    content = b""
    if why:
        text = why.encode()[:120]
        content = b"\x12" + bytes([len(text)]) + text  # google.rpc.Status, whose field 2 is the message
    return Response(content, status, headers, PROTOBUF)
