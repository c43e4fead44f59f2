"""The runs that a gateway keeps: one for each program, new, forked, replayed or gone on with after a restart.

``proxy`` takes requests for them, and the recorder of ``clew serve`` does. A run must never be mixed with another, and
a recorded one never changed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from clew.core.errors import BadInput, ModelError, UnknownName
from clew.core.keys import NODE, derive, digest, encode
from clew.core.protocols import Model
from clew.core.records import Call, Cursor, GroupRow, Intervention, RunRow
from clew.core.values import StopReason, Task
from clew.harness import Runner
from clew.harness.fork.edits import fork_row, plan
from clew.harness.memory.meaning import Embeds
from clew.harness.memory.recalling import Memories
from clew.harness.run.dispatch import Dispatcher
from clew.harness.run.drive import drive
from clew.harness.run.nodes import message_json
from clew.models.dialects import Asked
from clew.serve.gateway import verbatim
from clew.serve.gateway.matching import Matching
from clew.serve.gateway.piping import Piped
from clew.serve.gateway.session import Session
from clew.serve.history import Arrival
from clew.serve.refusals import known
from clew.serve.relay import relay
from clew.store import Keeper, Run, new_id
from clew.store.owners import owner_name


class Runs:
    """Sessions by the name of their run, and the work of each.

    Args:
        store: where the runs are kept.
        resolve: a model by dialect, name and further body fields; asked once for each combination in a run.
        about: what is kept with every run of how it was answered, so that its forks can be.
        idle: seconds without a request after which a run ends with ``time_limit``; None: never. A later request of its
            name goes on in a fork of it, where it stopped.
        memory: what fits the first request of a conversation is recalled from it and pinned in what the model is sent.
        embedder: ranks what it recalls by vectors too, as in ``Runner``.
        matching: how the requests of forks and replays are matched with those recorded; default: to the letter.
    """

    seeded = False  # see Session

    def __init__(
        self,
        store: Keeper,
        resolve: Callable[[str, str, Mapping[str, Any]], Model],
        *,
        about: Mapping[str, Any] | None = None,
        idle: float | None = None,
        memory: str = "",
        embedder: Embeds | None = None,
        matching: Matching | None = None,
    ) -> None:
        self.store, self._resolve, self.matching = store, resolve, matching or Matching()
        self.about, self.idle = dict(about or {}), idle
        self.memory = memory
        self._config = {"memory": memory} if memory else {}
        self._memories = Memories(store, embedder)  # of all runs, so that an index is made once
        self.sessions: dict[str, Session] = {}  # by the name in the URL
        self.work: dict[str, asyncio.Task[Any]] = {}  # by run id
        self._dispatch: Dispatcher | None = None

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

        A fork at a call of a model is live from the request that the call answers: the model is sent what the program
        sends now. Only where the call's reply or its beginning is given does the fork keep the recorded request.

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
        asked = None
        if not any(edit.seq == seq and edit.kind in ("reply", "prefix") for edit in planned.edits):
            asked = asking(view.calls[:seq])
            seq = seq if asked is None else asked.seq
        identity, shared = new_id(), self.store.calls(view.id, 0, seq)
        rows = [fork_row(view, seq, planned, mode, i, group=identity) for i in range(n)]
        self.store.put_group(
            GroupRow(identity, "tree", view.task_id, tuple(r.id for r in rows), f"fork of {view.id}@{seq}")
        )
        sessions = []
        for row in rows:
            self.store.put_run(row)
            how: dict[str, Any] = {"name": row.id, "seeded": self.seeded, "matching": self.matching}
            session = Session(self.store, row.id, shared, instead=asked, **how)
            sessions.append(session)
            self._drive(session, self._runner(session), row, shared)
        return sessions

    def replay(self, run: str, kind: Callable[..., Session] = Session) -> Session:
        """A recorded run whose program may be started again and is answered from the record alone."""
        view = self._recorded(run)
        how: dict[str, Any] = {"frozen": True, "seeded": self.seeded, "matching": self.matching}
        session = kind(self.store, view.id, view.calls, name=view.id, **how)
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
        waited = [c.seq for c in view.calls if c.kind == "act" and c.action and json.loads(c.action)[1] == "receive"]
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


def asking(calls: Sequence[Call]) -> Call | None:
    """The last of these Calls that brought a request of the program, if none of them asked a model for its reply."""
    for place in range(len(calls) - 1, -1, -1):
        call = calls[place]
        if call.kind != "act" or call.finish != "tool" or json.loads(call.action)[1] != "receive":
            continue
        it = Arrival.read(call.text)
        if it is not None:
            asked = any(c.kind == "ask" and c.conversation == it.thread for c in calls[place:])
            return None if asked else call
    return None
