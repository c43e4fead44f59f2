"""State of one run: follows recorded Calls first, then issues and records new ones.

``drive`` makes a RunState for each run; asks, acts, notes and spawns move it on, each by the closures of its own
``Pending``. Agents never see it: they hold a LiveRun.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn, TypeVar, cast

from clew.core.errors import BadInput, ClewError, ReplayDiverged, ReplayError, StoreError, UnknownName
from clew.core.legality import call_key, issue_key
from clew.core.protocols import Model, World
from clew.core.records import Annotation, Call, CallKind, Intervention, Node, RunRow, changed
from clew.core.values import Inner, Limits, Observation, Sampling, StopReason, Task, ToolSpec, Unset
from clew.harness.run.dispatch import Dispatcher
from clew.harness.run.events import Events, Timers
from clew.harness.run.pending import CUT_OFF, GIVEN_UP, Failing, Handed, Pending, Stop, describe
from clew.harness.run.spec import Budget, RunSpec
from clew.harness.run.tape import Tape, diverged

T = TypeVar("T")
NONE = Call("", 0, "end", b"", 0).usage  # of every Call that spent nothing


class RunState:
    """One run while it is made or followed.

    Args:
        spec: what all runs of the collection share.
        dispatch: commits and batches for all runs of the loop.
        row, task: the run; ``task`` carries no secret.
        tape: recorded Calls to follow first, or None.
        edits: the run's Intervention.
        replay: follow the tape to its end and never go live.
        kept: (conversation, ordinal of the ask) -> reply, forced once live.
    """

    def __init__(
        self,
        spec: RunSpec,
        dispatch: Dispatcher,
        row: RunRow,
        task: Task,
        *,
        tape: Tape | None = None,
        edits: Intervention,
        replay: bool = False,
        kept: Mapping[tuple[int, int], Node] | None = None,
        sampling: Sampling,
        limits: Limits,
    ) -> None:
        self.spec, self.dispatch, self.row, self.task = spec, dispatch, row, task
        self.tape, self.edits, self.replay, self.kept = tape, edits, replay, dict(kept or {})
        self.sampling = sampling
        self.say_edits = [e for e in edits.edits if e.kind in ("say", "insert", "delete")]
        self.at = {(e.kind, e.seq): e for e in edits.edits if e.kind in ("reply", "prefix", "result", "child")}
        self.later = sorted((e for e in edits.edits if e.kind in ("model", "sampling", "tap")), key=lambda e: e.seq)
        self.seq = self.clock = self.step = self.conversations = 0
        self._filed = -1  # the Call that was filed last
        self.closing = False  # the run is left as it is: nothing of it is recorded any more
        self.issue = b""
        self.world: World | None = None
        self.view, self.done, self.tools = Observation(""), False, tuple[ToolSpec, ...]()
        self.fresh: list[Node] = []
        self.ended: StopReason | None = None
        self.stopped: StopReason | None = None  # a limit was reached: nothing more is issued, whoever catches the Stop
        self.over = False  # the agent has returned: what its tasks still do is no part of the run
        self.lost: ReplayDiverged | None = None  # raised by ``drive``, whatever the agent made of it
        self.claimed: float | None = None  # sum of the rewards the world gave
        self.open_calls: dict[int, Pending[Any]] = {}
        self.waiting: dict[int, Pending[Any]] = {}
        self._late: list[tuple[Pending[Any], object]] = []  # results that came before the record was at its end
        self._leaving: list[Pending[Any]] = []
        self.cut: list[Pending[Any]] = []  # given up, where the record ends before that was recorded
        self._turn: Pending[Any] | None = None  # whose result comes to the agent now
        self.several = self._pumping = False  # several: a Call was issued while another was under way
        self.handed = Handed()
        self.events = Events(lambda: (self.seq, self.clock, self.handed.count, len(self._leaving)))
        self.timers = Timers(self.events.bring, row, tape is not None)
        self.behind = tape is not None  # the record goes on, and nothing that is not in it may be known
        self._shared = row.lineage[-1].stop if row.lineage else 0
        self.turn: asyncio.Lock = asyncio.Lock()
        self.children: set[asyncio.Future[object]] = set()  # child runs under way
        self.acting = 0  # acts on the world that have not answered
        self.within, self.inner = -1, list[Inner]()  # the act that the world performs, and what models told it there
        self.said_short = False  # that what was recalled was ranked by words alone
        self.luck = 0  # the seed that the world took for that act
        self.snapshot_size = 0
        self.budget = Budget(limits)
        self.drifted: list[Annotation] = []

    # ---- issue -----------------------------------------------------------------------------------------------------

    def new_conversation(self) -> int:
        self.conversations += 1
        return self.conversations - 1

    def model_for(self, model: str | Model | None) -> Model | None:
        """The run's model, or the one meant by a reference; a replay builds none."""
        return self.spec.model if model is None else self.spec.models.of(model, not self.replay) or self.spec.model

    def node(self, key: bytes) -> Node:
        found = self.tape.by_key.get(key) if self.tape is not None else None
        return found or self.dispatch.store.node(key)

    def begin(
        self,
        kind: CallKind,
        request: bytes,
        what: str,
        apply: Callable[[Call], T],
        path: Sequence[Node] = (),
        at: int | None = None,
        **fields: Any,
    ) -> tuple[Pending[T], Call | None]:
        """Issue the next Call: give it and, where the tape has it, its record.

        Raises:
            Stop: a limit is reached, or was when this was recorded.
            ReplayDiverged: the record has another request here, or its end.
            BadInput: another event loop than that of the agent asks.
        """
        if asyncio.get_running_loop() is not self.dispatch.loop:
            raise BadInput(
                f"{what} was issued on another event loop than the one that runs the agent",
                remedy="In a thread, use asyncio.run_coroutine_threadsafe(..., loop) with the agent's own loop.",
            )
        if self.over or self.closing or self.stopped is not None:
            raise Stop(self.ended or self.stopped or StopReason.RETURNED)
        tape = self.tape
        self.several = self.several or bool(self.open_calls or self.waiting)
        seq = self.seq if tape is None else self.turn_of(kind, lambda _: request) if at is None else at
        try:
            recorded = None if tape is None else tape.check(seq, kind, request, what, path)
        except ReplayDiverged as error:
            self.lost = self.lost or error  # whatever the agent makes of it
            raise
        if recorded is not None and recorded.kind == "end":
            self.stopped = StopReason(recorded.action)
            raise Stop(self.stopped)
        if self.replay and (recorded is None or recorded.done < 0):
            raise Stop(StopReason.CANCELLED)  # the record ends here, or nothing answered: a replay performs nothing
        if recorded is None and kind in ("ask", "act", "spawn"):
            self.stopped = self.budget.reached(self.step)
            if self.stopped is not None:
                raise Stop(self.stopped)
        if recorded is not None and recorded.done >= 0:
            assert tape is not None
            self.issue, call = tape.issues[seq], recorded
        else:
            if self.behind:
                if not self._apart:
                    self.pump()  # what was handed over before this Call was issued
                self._pump_soon()
            call = Call(self.row.id, seq, kind, request, self.clock, started=time.time(), **fields)
            if recorded is not None and tape is not None and seq in tape.calls:
                call = call._replace(child=recorded.child, after=recorded.after)
            before = self.issue if tape is None else tape.issues.get(seq - 1, self.issue)
            self.issue, recorded = issue_key(before, call), None
            self.timers.reach(call, call.started)
        self.seq += 1
        if tape is not None:
            self.seq = tape.issue(seq)
        return Pending(call, self.issue, self.handed, apply, self), recorded

    def turn_of(self, kind: CallKind, request: Callable[[int], bytes]) -> int:
        """The number that a Call takes; ``request`` gives the digest of what it would ask as the Call of a number."""
        return self.seq if self.tape is None else self.tape.turn(self.seq, kind, request)

    def on_tape(self, seq: int) -> bool:
        """Whether the result of Call ``seq`` is recorded (or replay must not go further)."""
        return self.replay or (self.tape is not None and seq in self.tape.calls and self.tape.calls[seq].done >= 0)

    # ---- following the record --------------------------------------------------------------------------------------

    async def follow(self, pending: Pending[T], recorded: Call) -> T:
        """Wait until a recorded result is handed over."""
        self.meet(pending, recorded)
        value = pending.value
        if isinstance(value, Unset):
            pending.awaited = True
            return await pending.taken()
        if isinstance(value, BaseException):
            raise value
        return value

    def meet(self, pending: Pending[Any], recorded: Call) -> None:
        """Issue a recorded Call again; its pending has its value then, if the value's time has come.

        What answered within its issue (``done`` equals ``after``) does so again; anything else waits for ``pump``, so
        that the agent's tasks wake in the order they woke in.
        """
        assert self.tape is not None
        self.tape.prove(recorded)
        self.waiting[recorded.seq] = pending
        self.timers.reach(recorded, recorded.started)
        if recorded.done == recorded.after:
            self.pump(recorded.seq)
        if self.waiting:
            self._pump_soon()

    @property
    def _apart(self) -> bool:
        """Whether recorded results come one at a time, as they came when an agent of several tasks was recorded."""
        return self.several and self.tape is not None and not self.tape.together

    def _pump_soon(self) -> None:
        self.dispatch.loop.call_soon(self._pump_now)

    def _pump_now(self) -> None:
        if not self._apart:
            self.pump()
        elif not self._pumping:
            self._pumping = True
            self.events.bring(self._pump_one)

    def _pump_one(self) -> None:
        assert self.tape is not None
        self._pumping, position = False, self.tape.position
        self.pump()
        if self.tape.position > position and self.waiting:
            self._pump_soon()

    def pump(self, until: int = -1) -> None:
        """Hand over recorded results whose time has come, in their order: one, or all that came together, but no
        further than Call ``until``."""
        assert self.tape is not None
        while (call := self.tape.next(self.seq)) is not None:
            pending = self.waiting[call.seq]
            if call.error == GIVEN_UP and not pending.given_up:
                return  # until the agent does so again
            self.tape.position += 1
            del self.waiting[call.seq]
            self.clock = max(self.clock, call.done + 1)
            self.budget.prior += call.seconds
            self.timers.reach(call, call.started + call.seconds)
            if call.seq >= self._shared and call.run != self.row.id and not self.replay:
                self._put(call._replace(run=self.row.id, cost=0.0))  # of the forked run, after what is made anew
            try:
                value = pending.value = self.take(pending, call)
            except ClewError as error:
                value = pending.value = error
            if call.error == GIVEN_UP:
                pending.drop()
            elif pending.awaited:
                pending.hand(value)
            if call.seq == until or (self._apart and call.kind != "note"):
                break  # nobody waits for a note
        if self.behind and not self.replay and not self.tape.waits(self.seq):
            self.behind, self.clock = False, max(self.clock, self.tape.horizon)
            self.timers.release()
            late, self._late = self._late, []
            self.dispatch.arrive(late)
            for _ in self._leaving:
                self.events.bring(self._leave)

    def early(self, pending: Pending[Any], result: object) -> bool:
        """Whether a result came while the record goes on, and is kept until that is at its end; or after the agent."""
        if self.over:
            return True
        if self.behind:
            self._late.append((pending, result))
            self._pump_soon()
        elif self.several and pending is not self._turn:
            self.events.bring(partial(self._come, pending, result))
        else:
            self._turn = None
            return False
        return True

    def _come(self, pending: Pending[Any], result: object) -> None:
        self._turn = pending
        self.dispatch.arrive([(pending, result)])

    # ---- giving up -------------------------------------------------------------------------------------------------

    def give_up(self, pending: Pending[Any]) -> None:
        """The agent wants no result of an effect any more: it has a timeout, or cancelled the task that waits.

        Live, that is recorded; on the tape it must be what was recorded.
        """
        call = pending.call
        if self.over or self.closing:
            pending.future.drop()
        elif call.seq not in self.waiting:
            if pending.stop is not None:
                pending.stop()
            if not pending.lasting:
                self.leave(pending)
        elif call.error == CUT_OFF:
            self.cut.append(pending)
        elif call.error != GIVEN_UP:
            self.lost = self.lost or diverged(call, f"({call.kind}) was recorded to answer, the agent now cancels it")
        else:
            self._pump_soon()

    def leave(self, pending: Pending[Any]) -> None:
        """Record an effect as given up; of several, that which was issued first."""
        self._leaving.append(pending)
        if not self.behind:  # else ``pump`` comes back to it
            self.events.bring(self._leave)

    def _leave(self) -> None:
        if self.closing or self.over:
            return
        pending = min(self._leaving, key=lambda p: p.call.seq)
        self._leaving.remove(pending)
        if not pending.future.done():
            seconds = time.time() - pending.call.started
            call = self.record(pending, {"error": GIVEN_UP, "seconds": seconds, **pending.left()})
            with suppress(ClewError):
                self.take(pending, call)
            pending.drop()

    def take(self, pending: Pending[T], call: Call) -> T:
        """What a completed Call means for the run: its state moves on, the agent's value comes back."""
        if call.usage is not NONE or call.cost:
            self.budget.spend(call)
        return pending.apply(call)

    # ---- recording -------------------------------------------------------------------------------------------------

    def complete(self, pending: Pending[T], **fields: Any) -> T:
        """Record the result of an effect and take it; give the agent's value."""
        return self.take(pending, self.record(pending, fields))

    async def result(self, pending: Pending[T], value: object) -> T:
        """Record a result that is there at once and give it; after those of the record that wait to be handed over."""
        if self.tape is not None and self.tape.pending:
            self.open_calls[pending.call.seq] = pending
            self.dispatch.arrive([(pending, value)])
            return await pending.taken()
        return cast(T, pending.record(value))

    def fail(self, pending: Pending[Any], error: ClewError, **fields: Any) -> NoReturn:
        """Record that an effect failed and raise the error itself, which tells more than its record."""
        call = self.record(pending, {"error": describe(error), **fields})
        with suppress(ClewError):
            self.take(pending, call)  # raises the error as it is recorded
        raise error

    def issuing(self, pending: Pending[Any], kind: type[ClewError]) -> Failing:
        """What is done to perform an effect that has its number: where it fails, that is what the effect came to.

        An error that is none of ours is recorded and raised as ``kind``, after what the record has to hand over. What
        leaves the run as it is, to be resumed, is not recorded. As a decorator: for what records the effect.
        """
        return Failing(partial(self._failed, pending, kind))

    def _failed(self, pending: Pending[Any], kind: type[ClewError], error: Exception) -> bool:
        """Record what an effect came to, and raise it where it can be now; False where it is not recorded."""
        if isinstance(error, (ReplayError, StoreError, UnknownName)) or pending.call.seq == self._filed:
            return False
        failed = error if isinstance(error, ClewError) else kind(f"{type(error).__name__}: {error}")
        if self.tape is None or not self.tape.pending:
            self.fail(pending, failed)
        pending.record = partial(self.fail, pending)
        self.open_calls[pending.call.seq] = pending
        self.dispatch.arrive([(pending, failed)])
        return True

    def record(self, pending: Pending[Any], fields: Mapping[str, Any]) -> Call:
        """Complete a Call: it gets its tick of the clock and its key, and is put into the store (not yet committed)."""
        left = self.open_calls.pop(pending.call.seq, None) is not None
        if self.tape is not None and self.tape.pending:
            done = self.tape.past()  # a note, made while results of the record are still to come
        else:
            together = self.tape is not None and self.tape.together
            if left and (pending.overtaken if together else self.several) and self.clock == pending.call.after:
                self.clock += 1  # what came after its issue, while others may have gone on, has a later tick
            done, self.clock = self.clock, self.clock + 1
        call = changed(pending.call, done=done, **fields)
        call = call._replace(key=call_key(pending.issue, call))
        self.timers.reach(call, call.started + call.seconds)
        self._put(call)
        return call

    def _put(self, call: Call) -> None:
        """File a Call, after the intents of those that are under way: a killed run has no gap."""
        for other in self.open_calls.values():
            self.intend(other)
        self._filed = call.seq
        self.dispatch.store.put_call(self.row.id, call)

    def intend(self, pending: Pending[Any]) -> None:
        """Put a Call that is under way as an intent, once."""
        if not pending.intended:
            pending.intended = True
            self.dispatch.store.put_call(self.row.id, pending.call)

    def put_fresh(self) -> None:
        if self.fresh:
            self.dispatch.store.put_nodes(self.fresh)
            self.fresh = []
        if self.drifted:
            self.dispatch.store.annotate(self.drifted)
            self.drifted = []
