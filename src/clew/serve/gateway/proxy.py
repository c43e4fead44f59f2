"""The gateway: an OpenAI- and Anthropic-compatible proxy that records what passes through it as runs.

``clew gateway`` starts it. ``/r/NAME/v1`` is the base URL of the run NAME; ``/v1`` with the API key ``clew:NAME`` means
the same. A request without a name joins the run whose conversation it continues, or begins a run; such runs are tagged
``guessed``. The gateway must never change what passes through it, and never mix two runs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from clew.core.errors import BadRecord, ClewError
from clew.core.protocols import Model
from clew.core.records import Annotation
from clew.models.dialects import Asked
from clew.serve import pinned
from clew.serve.gateway import verbatim, wire
from clew.serve.gateway.arriving import scores_of, sent_of
from clew.serve.gateway.exchanges import Exchange
from clew.serve.gateway.kept_runs import Runs
from clew.serve.gateway.program_folders import ProgramFolders
from clew.serve.gateway.session import Session
from clew.serve.gateway.verbatim import DIALECTS, Sent
from clew.serve.incoming import body_of, caller
from clew.serve.openai import questions
from clew.serve.refusals import Body, Handler, Rejected, guarded, refused
from clew.store import Keeper, Run, new_id

NAME = re.compile(r"[\w.-]{1,80}")
STALL = 60.0  # seconds without a byte of a body
Unnamed = Literal["guess", "apart"]


class Gateway(Runs):
    """Takes requests, one Session and one run for each program.

    Args:
        store, resolve: as in ``Runs``, as are further options.
        unnamed: requests without a name join a run by the longest beginning (``guess``) or are runs of their own.
        token: what clients must send as their key (``TOKEN`` or ``TOKEN:NAME``); empty: nothing.
        names: offered by ``/v1/models``.
        folders: keeps or compares the files of the program's folder as a request arrives; the answer waits for it.
    """

    def __init__(
        self,
        store: Keeper,
        resolve: Callable[[str, str, Mapping[str, Any]], Model],
        *,
        unnamed: Unnamed = "guess",
        token: str = "",
        names: tuple[str, ...] = (),
        folders: ProgramFolders | None = None,
        **options: Any,
    ) -> None:
        super().__init__(store, resolve, **options)
        self.unnamed, self.token, self.names, self.folders = unnamed, token, names, folders
        self._untried = bool(self.memory)  # whether a local model's template has a place for what a memory gives

    def application(self) -> Starlette:
        def both(path: str, endpoint: Handler, method: str) -> list[Route]:
            bases = ("/v1", "/r/{name}/v1", "", "/r/{name}")  # some clients add /v1 to their base URL, some do not
            return [Route(f"{base}{path}", endpoint, methods=[method]) for base in bases]

        routes = [Route("/r/{name}/end", guarded(self._end), methods=["POST"]), *both("/models", self._list, "GET")]
        for dialect, module in DIALECTS.items():
            routes += both(module.PATH, self._asked(dialect), "POST")
        return Starlette(routes=routes, lifespan=self.running, exception_handlers={404: missing, 405: missing})

    def _asked(self, dialect: str) -> Handler:
        async def endpoint(request: Request) -> Response:
            name = self._name(request)
            sent = sent_of(request, await body_of(request, wire.LARGEST, STALL))
            asked = verbatim.read(dialect, sent.body)
            await self._takes(dialect, asked)
            await self._ended(name)
            session = self._session(name, asked, dialect)
            if asked.extra.get("previous_response_id"):
                asked = self._whole(asked)
                body = {k: v for k, v in sent.body.items() if k != "previous_response_id"}
                items = DIALECTS[dialect].request_to_wire(asked)["input"]
                sent = sent._replace(body=body | {"input": items})
            had = len(session.exchanges)
            exchange = session.request(asked, dialect, sent=sent)
            if self.folders is not None:
                fresh = len(session.exchanges) > had  # it is none of the record, and none that is sent again
                await self.folders.at_request(self.store, session, exchange.number, live=fresh)
            return await self._respond(dialect, asked, session, exchange, sent)

        return guarded(endpoint, dialect)

    async def _takes(self, dialect: str, asked: Asked) -> None:
        """Refuse what the model's template has no place for, before it reaches a run.

        Raises:
            ClewError: the model cannot be found, or takes no such messages or tools.
        """
        model = self._resolve(dialect, asked.model, {})
        if model.renderer is not None and not asked.extra.get("previous_response_id"):
            long = sum(len(m.text) for m in asked.messages) > questions.LONG
            work = partial(questions.rendered, model, asked)
            await asyncio.to_thread(work) if long else work()
            if self._untried:
                await asyncio.to_thread(self._try_block, model, asked)

    def _try_block(self, model: Model, asked: Asked) -> None:
        """Where the template has none, do without the memory, and say so in the runs."""
        self._untried = False
        try:
            questions.rendered(model, pinned.placed(asked))
        except ClewError as error:
            self._config, self.about["memory"] = {}, f"left out: {error.message}"[:300]

    async def _respond(self, dialect: str, asked: Asked, session: Session, exchange: Exchange, sent: Sent) -> Response:
        name = f"clew-{session.run}-{exchange.number}"
        headers = {"x-clew-run": session.run}
        if asked.stream:
            options = sent.body.get("stream_options")
            usage = isinstance(options, dict) and bool(options.get("include_usage"))
            lines = wire.stream(dialect, exchange, name, asked, usage)
            return StreamingResponse(lines, media_type="text/event-stream", headers=headers)
        completion = await exchange.answer()
        return Body(wire.whole(dialect, completion, name, asked), headers=headers)

    def _name(self, request: Request) -> str:
        """The run a request names, or nothing.

        Raises:
            Rejected: the name cannot be one, or the client may not ask.
        """
        return valid(caller(request, (self.token,) if self.token else (), pages=False))

    async def _ended(self, name: str) -> None:
        """Where the run of a name is just ending, wait until it has: a request now is one of the run that follows."""
        session = self.sessions.get(name)
        if session is not None and session.ended and session.run in self.work:
            await asyncio.wait([self.work[session.run]], timeout=30)

    def _session(self, name: str, asked: Asked, dialect: str) -> Session:
        if name:
            found = self.sessions.get(name)
            return found if found is not None and not found.ended else self.open(name, asked)
        if self.unnamed == "guess":
            fits = [(s.fits(asked, dialect), s) for s in self.sessions.values() if s.guessed and not s.ended]
            best = max(fits, key=lambda pair: pair[0], default=(0, None))
            if best[0] and best[1] is not None:
                return best[1]
        return self.open(new_id(), asked, guessed=True)

    def _whole(self, asked: Asked) -> Asked:
        """A request that names an earlier answer in place of its history, with that history."""
        before = asked.extra.get("previous_response_id")
        if not before:
            return asked
        match = re.fullmatch(r"clew-([\w.-]+)-(\d+)", str(before))
        session = next((s for s in self.sessions.values() if match and match[1] in s.runs), None)
        history = session.messages_after(int(match[2])) if match and session else []
        if not history:
            raise BadRecord(f"no answer is called {str(before)[:80]!r} here", remedy="Send the whole input instead.")
        if asked.messages[0].role == "system" and history[0].role == "system":
            history = history[1:]
            history, rest = [asked.messages[0], *history], asked.messages[1:]
        else:
            rest = asked.messages
        extra = {k: v for k, v in asked.extra.items() if k != "previous_response_id"}
        return asked._replace(messages=(*history, *rest), extra=extra)

    async def _end(self, request: Request) -> Response:
        """End a run; the body may hold its reward and other scores, as numbers."""
        name = self._name(request)
        session = self.sessions.get(name)
        if session is None:
            raise Rejected(f"no run is called {name!r}", remedy="Its base URL is /r/NAME/v1.", status=404)
        scores = scores_of(await body_of(request, 1 << 20, STALL))
        session.end()
        if session.run in self.work:
            await asyncio.wait([self.work[session.run]], timeout=30)
        self.store.annotate(Annotation("run", k, v, run=session.run, scope=session.run) for k, v in scores.items())
        self.store.commit()
        return Body({"run": session.run, "stop": Run(self.store, session.run).stop})

    async def _list(self, request: Request) -> Response:
        return Body({"object": "list", "data": [{"id": n, "object": "model"} for n in self.names]})


def valid(name: str) -> str:
    """The name a request gives its run, or nothing.

    Raises:
        Rejected: no run can be called so.
    """
    if name and not NAME.fullmatch(name):
        raise Rejected(f"{name[:80]!r} cannot name a run", remedy="Use letters, digits, dot, dash, underscore.")
    return name


async def missing(request: Request, error: Exception) -> Response:
    told = f"nothing is served at {request.method} {request.url.path[:120]}"
    status = getattr(error, "status_code", 404)
    return refused(Rejected(told, status=status, code="not_found", remedy="The base URL of a run is /r/NAME/v1."))
