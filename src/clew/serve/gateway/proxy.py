"""The gateway: an OpenAI- and Anthropic-compatible proxy that records what passes through it as runs.

``clew gateway`` starts it. ``/r/NAME/v1`` is the base URL of the run NAME; ``/v1`` with the API key ``clew:NAME`` means
the same. A request without a name joins the run whose conversation it continues, or begins a run; such runs are tagged
``guessed``. The gateway must never change what passes through it, and never mix two runs.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from clew.core.errors import BadInput, BadRecord, ClewError, ModelError, UnknownName
from clew.core.keys import NODE, derive, digest, encode
from clew.core.protocols import Model
from clew.core.records import Annotation, Call, Cursor, GroupRow, Intervention, RunRow
from clew.core.values import StopReason, Task
from clew.harness import Runner
from clew.harness.fork.edits import fork_row, plan
from clew.harness.memory.meaning import Embeds
from clew.harness.memory.recalling import Memories
from clew.harness.run.dispatch import Dispatcher
from clew.harness.run.drive import drive
from clew.harness.run.nodes import message_json
from clew.models.dialects import Asked
from clew.serve import pinned
from clew.serve.gateway import verbatim, wire
from clew.serve.gateway.arriving import scores_of, sent_of
from clew.serve.gateway.exchanges import Exchange
from clew.serve.gateway.piping import Piped
from clew.serve.gateway.program_folders import ProgramFolders
from clew.serve.gateway.session import Session
from clew.serve.gateway.verbatim import DIALECTS, Sent
from clew.serve.incoming import body_of, caller
from clew.serve.openai import questions
from clew.serve.refusals import Body, Handler, Rejected, guarded, known, refused
from clew.serve.relay import relay
from clew.store import Keeper, Run, new_id
from clew.store.owners import owner_name

NAME = re.compile(r"[\w.-]{1,80}")
STALL = 60.0  # seconds without a byte of a body
Unnamed = Literal["guess", "apart"]


class Gateway:
    """Takes requests, one Session and one run for each program.

    Args:
        store: where the runs are kept.
        resolve: a model by dialect, name and further body fields; asked once for each combination in a run.
        unnamed: requests without a name join a run by the longest beginning (``guess``) or are runs of their own.
        token: what clients must send as their key (``TOKEN`` or ``TOKEN:NAME``); empty: nothing.
        names: offered by ``/v1/models``.
        about: what is kept with every run of how it was answered, so that its forks can be.
        idle: seconds without a request after which a run ends with ``time_limit``; None: never. A later request of its
            name goes on in a fork of it, where it stopped.
        folders: keeps or compares the files of the program's folder as a request arrives; the answer waits for it.
        memory: what fits the first request of a conversation is recalled from it and pinned in what the model is sent.
        embedder: ranks what it recalls by vectors too, as in ``Runner``.
    """

    seeded = False  # see Session

    def __init__(
        self,
        store: Keeper,
        resolve: Callable[[str, str, Mapping[str, Any]], Model],
        *,
        unnamed: Unnamed = "guess",
        token: str = "",
        names: tuple[str, ...] = (),
        about: Mapping[str, Any] | None = None,
        idle: float | None = None,
        memory: str = "",
        embedder: Embeds | None = None,
        folders: ProgramFolders | None = None,
    ) -> None:
        self.folders = folders
        self.store, self._resolve, self.unnamed, self.token, self.names = store, resolve, unnamed, token, names
        self.about, self.idle = dict(about or {}), idle
        self.memory = memory
        self._config = {"memory": memory} if memory else {}
        self._memories = Memories(store, embedder)  # of all runs, so that an index is made once
        self._untried = bool(memory)  # whether a local model's template has a place for what a memory gives
        self.sessions: dict[str, Session] = {}  # by the name in the URL
        self.work: dict[str, asyncio.Task[Any]] = {}  # by run id
        self._dispatch: Dispatcher | None = None

    # ---- runs ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self, _app: object = None) -> AsyncIterator[None]:
        """While this is open, requests can be taken; at its end every run ends and is committed."""
        async with Dispatcher(self.store, owner_name(), 1 << 20) as self._dispatch:
            watching = asyncio.ensure_future(self._watch())
            try:
                yield
            finally:
                watching.cancel()
                for session in self.sessions.values():
                    session.end()
                if self.work:
                    await asyncio.wait(self.work.values(), timeout=10)
                for task in self.work.values():
                    task.cancel()
                await asyncio.gather(*self.work.values(), return_exceptions=True)
                self.sessions.clear()
                self.work.clear()

    async def _watch(self) -> None:
        """End the runs that nothing was asked of for long: those whose program is gone and told nobody."""
        while self.idle is not None:
            await asyncio.sleep(self.idle / 10)
            late = [s for s in self.sessions.values() if not s.ended and s.quiet() > self.idle]
            for session in late:
                session.end(f"nothing was asked for {self.idle / 60:g} minutes", StopReason.TIME_LIMIT)

    def open(self, name: str, first: Asked, *, guessed: bool = False) -> Session:
        """A new run; a run of that name that did not end, or that was idle for too long, is gone on with."""
        known = [] if guessed else self._known(name)
        if live := [view for view in known if not view.stop]:
            return self._resume(name, live[0].id)
        if known and known[0].stop == StopReason.TIME_LIMIT:
            return self._go_on(name, known[0])
        opening = [m for m in first.messages if m.role != "assistant"]
        key = digest(NODE, *[encode(json.dumps(message_json(m), sort_keys=True)) for m in opening]).hex()[:12]
        prompt = next((m.text for m in opening if m.role == "user"), "")
        identity = new_id()
        session = Session(self.store, identity, name=name, guessed=guessed, seeded=self.seeded)
        runner = self._runner(session)
        row = runner.row(Task(f"task-{key}", prompt), id=identity, seed=derive(0, "gateway", identity))
        row = row._replace(meta=json.dumps({**json.loads(row.meta or "{}"), "gateway": self.about}, sort_keys=True))
        self.store.put_run(row)
        self.store.tag(row.id, "guessed" if guessed else name)
        self._drive(session, runner, row, [])
        return session

    def _known(self, name: str) -> list[Run]:
        """The runs of a name, newest first; forks are named by their ids."""
        found = [Run(self.store, r) for r in self.store.find(f"tag:{name}")]
        if not found:
            with suppress(UnknownName):
                found = [Run(self.store, name)]
        return [run for run in found if run.agent.endswith(":relay")]

    def fork(
        self,
        at: Cursor | str,
        n: int = 1,
        changes: Intervention | None = None,
        seed: str | int = "",
        memory: Mapping[str, Any] | None = None,
    ) -> list[Session]:
        """Forks of a recorded run, each waiting for its program to be started again at ``/r/RUN/v1``.

        Args:
            at: the place; with ``memory`` the run's id is enough.
            memory: as in ``Runner.fork``: items that what is pinned from the place on does without.

        Raises:
            BadInput: the run was not recorded here, or the place makes no sense.
        """
        cursor = at if isinstance(at, Cursor) else None
        view = self._recorded(cursor.run if cursor else str(at))
        seq, planned = plan(view, cursor, edits=changes.edits if changes else (), memory=memory)
        if (call := view.calls[seq]).kind != "ask" and any(edit.kind == "reply" for edit in planned.edits):
            remedy = "Name the call of a model; `clew show` lists them."
            raise BadInput(f"call {call.seq} asks no model, so it has no reply", remedy=remedy)
        mode = seed or ("same" if planned.edits else "fresh")
        identity, shared = new_id(), self.store.calls(view.id, 0, seq)
        rows = [fork_row(view, seq, planned, mode, i, group=identity) for i in range(n)]
        self.store.put_group(
            GroupRow(identity, "tree", view.task_id, tuple(r.id for r in rows), f"fork of {view.id}@{seq}")
        )
        sessions = []
        for row in rows:
            self.store.put_run(row)
            sessions.append(Session(self.store, row.id, shared, name=row.id, seeded=self.seeded))
            self._drive(sessions[-1], self._runner(sessions[-1]), row, shared)
        return sessions

    def replay(self, run: str, kind: Callable[..., Session] = Session) -> Session:
        """A recorded run whose program may be started again and is answered from the record alone."""
        view = self._recorded(run)
        session = kind(self.store, view.id, view.calls, name=view.id, frozen=True, seeded=self.seeded)
        self.sessions[view.id] = session
        return session

    def _recorded(self, run: str) -> Run:
        view = Run(self.store, run)
        if not view.agent.endswith(":relay"):
            raise BadInput(f"run {view.id} was not recorded by the gateway", remedy="Use clew fork or clew replay.")
        return view

    def _resume(self, name: str, run: str, guessed: bool = False) -> Session:
        calls = self.store.calls(run)
        session = Session(self.store, run, calls, name=name, continued=True, guessed=guessed, seeded=self.seeded)
        self._drive(session, self._runner(session), self.store.row(run), calls)
        return session

    def _go_on(self, name: str, view: Run) -> Session:
        """A fork of a run that was idle for too long, at the ``receive`` that waited; its program sees no seam."""
        waited = [c.seq for c in view.calls if c.kind == "act" and json.loads(c.action)[1] == "receive"]
        seq, group = waited[-1], new_id()
        row = fork_row(view, seq, Intervention(), "same", 0, group=group)
        self.store.put_group(GroupRow(group, "tree", view.task_id, (row.id,), f"{view.id} goes on"))
        self.store.put_run(row)
        self.store.tag(row.id, name)
        shared = self.store.calls(view.id, 0, seq)
        session = Session(self.store, row.id, shared, name=name, continued=True)
        self._drive(session, self._runner(session), row, shared)
        return session

    def _runner(self, session: Session) -> Runner:
        how: dict[str, Any] = {"tools": session.tools(), "resolve_model": self._models(session)}
        runner = Runner(relay, None, None, self.store, self._config, **how)
        runner.memories = self._memories
        return runner

    def _drive(self, session: Session, runner: Runner, row: RunRow, calls: list[Call]) -> None:
        assert self._dispatch is not None
        work = asyncio.ensure_future(drive(runner.spec, self._dispatch, row, Task(row.task_id, ""), calls=calls))
        self.sessions[session.name], self.work[row.id] = session, work

        def finished(task: asyncio.Task[Any]) -> None:
            error = None if task.cancelled() else task.exception()
            run = Run(self.store, row)
            ended = ModelError(f"the run ended: {run.stop} {run.calls[-1].error}".rstrip())
            session.fail(known(error) if error else ended)
            if run.stop == StopReason.TIME_LIMIT:  # the store knows it; a program that is gone holds no memory
                self.sessions.pop(session.name, None)
                self.work.pop(run.id, None)

        work.add_done_callback(finished)

    def _models(self, session: Session) -> Callable[[str], Model]:
        def resolve(ref: str) -> Model:
            return Piped(self._resolve(*verbatim.parted(ref)), session)

        return resolve

    # ---- requests --------------------------------------------------------------------------------------------------

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
