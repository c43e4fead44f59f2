"""The HTTP server that programs of one taskset ask: each at the URL of its own line, in three dialects.

``Programs`` starts it at the first program, in a thread of its own, on the loopback and on a Unix socket that a
sandbox's door leads to. It must never answer a program whose line it does not know.
"""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from clew.core.errors import WorldError
from clew.sandbox.scratch import Scratch
from clew.serve.edge import config
from clew.serve.gateway import verbatim, wire
from clew.serve.gateway.arriving import sent_of
from clew.serve.gateway.verbatim import DIALECTS
from clew.serve.incoming import body_of
from clew.serve.programs.line import Line
from clew.serve.refusals import Body, Rejected, guarded

STALL = 60.0  # seconds without a byte of a body
START = 30.0  # seconds within which the server is up
MODEL = "clew"  # what ``/v1/models`` lists; any name is answered
SOCKET = "hub"


class Hub:
    """A server with the lines of programs that run.

    Raises:
        WorldError: it did not start.
    """

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self._place = Scratch("hub")
        self.socket = self._place.path / SOCKET
        how = config(self._application(), uds=str(self.socket), lifespan="off", log_level="warning")
        self._server = uvicorn.Server(how)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="clew-hub", daemon=True)
        self._thread.start()
        if not self._up.wait(START) or not self._server.started:
            raise WorldError("the server that programs ask did not start", remedy="See what the log says.")
        self._place.path.chmod(0o711)  # a program runs as another user, and must reach the socket alone
        self.socket.chmod(0o666)

    def _serve(self) -> None:
        async def up() -> None:
            self._loop = asyncio.get_running_loop()
            serving = asyncio.ensure_future(self._server.serve())
            while not self._server.started and not serving.done():
                await asyncio.sleep(0.005)
            self._up.set()
            await serving

        try:
            asyncio.run(up())
        finally:
            self._up.set()
            self._place.close()

    def open(self) -> Line:
        """A line for a program that is about to start."""
        assert self._loop is not None
        line = Line(self._loop)
        self.lines[line.name] = line
        return line

    def close(self, line: Line) -> None:
        """End a line; its program is told that nobody answers."""
        line.close()
        self.lines.pop(line.name, None)

    def stop(self) -> None:
        """Let the server and its thread end, soon; nothing is waited for, since the garbage collector may call it."""
        self._server.should_exit = True

    # ---- requests --------------------------------------------------------------------------------------------------

    def _application(self) -> Starlette:
        routes = []
        for base in ("/r/{name}/v1", "/r/{name}"):  # some clients add /v1 to their base URL, some do not
            routes.append(Route(f"{base}/models", guarded(self._list), methods=["GET"]))
            for dialect, module in DIALECTS.items():
                asked = guarded(partial(self._asked, dialect), dialect)
                routes.append(Route(f"{base}{module.PATH}", asked, methods=["POST"]))
        return Starlette(routes=routes)

    async def _asked(self, dialect: str, request: Request) -> Response:
        line = self._line(request)
        sent = sent_of(request, await body_of(request, wire.LARGEST, STALL))
        if sent.body.get("previous_response_id"):
            told = "a request that names an earlier answer in place of its history"
            raise Rejected(told, remedy="Send the whole input (store=False).", param="previous_response_id")
        asked = verbatim.read(dialect, sent.body)
        exchange = line.asks(asked, dialect, sent)
        name = f"clew-{line.name}-{sent.digest.hex()[:12]}"
        if asked.stream:
            options = sent.body.get("stream_options")
            usage = isinstance(options, dict) and bool(options.get("include_usage"))
            lines = wire.stream(dialect, exchange, name, asked, usage)
            return StreamingResponse(lines, media_type="text/event-stream")
        return Body(wire.whole(dialect, await exchange.answer(), name, asked))

    async def _list(self, request: Request) -> Response:
        self._line(request)
        return Body({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    def _line(self, request: Request) -> Line:
        line = self.lines.get(str(request.path_params["name"]))
        if line is None:
            raise Rejected("no program is called so, or its run has ended", status=404, code="not_found")
        return line
