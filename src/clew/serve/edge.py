"""The outermost layer of both HTTP servers: connections that say nothing are closed, and every answer has an id.

``clew serve`` and ``clew gateway`` listen through it. It reads no body, and what a client wrote never reaches a header.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import uuid
from contextlib import suppress
from typing import Any

import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from clew.core.net import called_so
from clew.serve.refusals import Rejected, refused

_log = logging.getLogger("clew.serve")
WAITING = 128  # connections that wait to be taken
HEADER_S = 15.0  # seconds in which the head of a request must be there


class Named:
    """The application for requests that call it by a name of this machine: a web page whose own name was made to point
    here (DNS rebinding) sends that name."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if scope["type"] == "http" and not called_so(host := Headers(scope=scope).get("host", "")):
            told = f"this server is not called {host[:80]!r}"
            remedy = "Ask it as localhost or by its address; or start it with a token or key, then any name will do."
            app = refused(Rejected(told, remedy=remedy, status=403, code="host"))
        await app(scope, receive, send)


class _Crowded:
    """Says in one line, once a minute, that no more connections can be taken; asyncio says it with a traceback for each
    of them."""

    def __init__(self) -> None:
        self.told = -60.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif loop.time() - self.told >= 60:
            self.told = loop.time()
            _log.warning("no more connections can be taken: %s; allow more with `ulimit -n`", error.strerror)


class _Config(uvicorn.Config):
    """As uvicorn has it; loaded in the loop that serves, before it listens."""

    def load(self) -> None:
        super().load()
        with suppress(RuntimeError):  # no loop runs yet
            asyncio.get_running_loop().set_exception_handler(_Crowded())


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


def config(app: ASGIApp, *, header: float = HEADER_S, any_name: bool = True, **options: Any) -> uvicorn.Config:
    """How uvicorn serves an application here.

    Args:
        any_name: whether it may be asked by any name; else those of this machine alone, as where no key is asked for.
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
            asked = self.cycle is not None and not self.cycle.response_complete
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
    outer = Identified(app if any_name else Named(app))
    return _Config(outer, timeout_graceful_shutdown=2, backlog=WAITING, **{**quiet, **options})
