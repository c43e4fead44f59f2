"""The outermost layer of both HTTP servers: connections that say nothing are closed, and every answer has an id.

``clew serve`` and ``clew gateway`` listen through it. It reads no body, and what a client wrote never reaches a header.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import uvicorn
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_S = 15.0  # seconds in which the head of a request must be there


class Identified:
    """The application with an ``x-request-id`` of the server's own on every answer; its log names requests so too."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        identity = f"req_{uuid.uuid4().hex}"
        scope.setdefault("state", {})["request"] = identity

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-request-id"] = identity
            await send(message)

        await self.app(scope, receive, named)


def config(app: ASGIApp, *, header: float = HEADER_S, **options: Any) -> uvicorn.Config:
    """How uvicorn serves an application here.

    Args:
        header: seconds after which a connection is closed whose next request has begun and has no whole head, or whose
            first has not begun.
        options: as ``uvicorn.Config`` has them.
    """

    class Impatient(H11Protocol):
        late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.late = self.loop.call_later(header, transport.close)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            asked = self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]
            if asked and self.late is not None:
                self.late.cancel()
                self.late = None
            elif not asked and self.late is None:
                self.late = self.loop.call_later(header, self.transport.close)

        def connection_lost(self, exc: Exception | None) -> None:
            if self.late is not None:
                self.late.cancel()
            super().connection_lost(exc)

    quiet: dict[str, Any] = {"server_header": False, "proxy_headers": False, "ws": "none", "http": Impatient}
    return uvicorn.Config(Identified(app), timeout_graceful_shutdown=2, **{**quiet, **options})
