"""State of one run: follows recorded Calls first, then issues and records new ones.

``drive`` makes a RunState for each run; asks, acts, notes and spawns move it on, each by the closures of its own
``Pending``. Agents never see it: they hold a LiveRun.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

from clew.core.errors import ClewError, ReplayDiverged
from clew.core.legality import call_key, issue_key
from clew.core.protocols import Model, World
from clew.core.records import Annotation, Call, CallKind, Cursor, Intervention, Node, RunRow, changed
from clew.core.values import Inner, Limits, Observation, Sampling, StopReason, Task, ToolSpec, Unset
from clew.harness.run.dispatch import Dispatcher
from clew.harness.run.pending import CUT_OFF, Handed, Pending, Stop, batches, describe
from clew.harness.run.spec import RunSpec
from clew.harness.run.tape import Tape

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
        self.sampling, self.limits = sampling, limits
        self.say_edits = [e for e in edits.edits if e.kind in ("say", "insert", "delete")]
        self.at = {(e.kind, e.seq): e for e in edits.edits if e.kind in ("reply", "prefix", "result", "child")}
        self.later = sorted((e for e in edits.edits if e.kind in ("model", "sampling", "tap")), key=lambda e: e.seq)
        self.seq = self.clock = self.step = self.conversations = 0
        self.issue = b""
        self.world: World | None = None
        self.view, self.done, self.tools = Observation(""), False, tuple[ToolSpec, ...]()
        self.fresh: list[Node] = []
        self.ended: StopReason | None = None
        self.claimed: float | None = None  # sum of the rewards the world gave
        self.open_calls: dict[int, Pending[Any]] = {}
        self._intended: set[int] = set()
        self.waiting: dict[int, Pending[Any]] = {}
        self.turn: asyncio.Lock = asyncio.Lock()
        self.handed = Handed()
        self.acting = 0  # acts on the world that have not answered
        self.within, self.inner = -1, list[Inner]()  # the act that the world performs, and what models told it there
        self.luck = 0  # the seed that the world took for that act
        self.snapshot_size = 0
        self._started = time.monotonic()
        self.tokens, self.cost, self._prior = 0, 0.0, 0.0
        self.drifted: list[Annotation] = []

    # ---- issue -----------------------------------------------------------------------------------------------------

    def new_conversation(self) -> int:
        self.conversations += 1
        return self.conversations - 1

    def model_for(self, model: str | Model | None) -> Model | None:
        """The run's model, or the one meant by a reference; a replay builds none."""
        return self.spec.model if model is None else self.spec.models.of(model, not self.replay) or self.spec.model

    def tape_tokenizer(self, parent: bytes) -> str:
        """While replaying without a model, nodes are looked up under the tokenizer their parent has on the tape."""
        if self.tape is None:
            return ""
        if parent in self.tape.by_key:
            return self.tape.by_key[parent].tokenizer
        return self.tape.root_tokenizer

    def node(self, key: bytes) -> Node:
        """A recorded node."""
        found = self.tape.by_key.get(key) if self.tape is not None else None
        return found or self.dispatch.store.node(key)

    def begin(
        self,
        kind: CallKind,
        request: bytes,
        what: str,
        apply: Callable[[Call], T],
        path: Sequence[Node] = (),
        **fields: Any,
    ) -> tuple[Pending[T], Call | None]:
        """Issue the next Call: give it and, where the tape has it, its record.

        Raises:
            Stop: a limit is reached, or was when this was recorded.
            ReplayDiverged: the record has another request here.
        """
        if self.ended is not None:
            raise Stop(self.ended)
        recorded = self.tape.check(self.seq, kind, request, what, path) if self.tape is not None else None
        if recorded is not None and recorded.kind == "end":
            reason = StopReason(recorded.action)
            if not recorded.text:
                raise ReplayDiverged(
                    f"run {self.row.id} ended at Call {self.seq} ({reason}), the agent now asks for {what}",
                    remedy="The agent's code or arguments differ from those recorded.",
                    at=str(Cursor(self.row.id, self.seq)),
                )
            raise Stop(reason)
        if self.replay and (recorded is None or recorded.done < 0):
            raise Stop(StopReason.CANCELLED)  # the record ends here, or nothing answered: a replay performs nothing
        if recorded is None and kind in ("ask", "act", "spawn"):
            self._check_limits()
        if recorded is not None and recorded.done >= 0:
            self.issue, call = issue_key(self.issue, recorded), recorded
        else:
            call = Call(self.row.id, self.seq, kind, request, self.clock, started=time.time(), **fields)
            if recorded is not None and recorded.child:
                call = call._replace(child=recorded.child)
            self.issue, recorded = issue_key(self.issue, call), None
        self.seq += 1
        return Pending(call, self.issue, self.handed, apply), recorded

    def on_tape(self) -> bool:
        """Whether the next Call's result is recorded (or replay must not go further)."""
        return self.replay or (
            self.tape is not None and self.seq in self.tape.calls and self.tape.calls[self.seq].done >= 0
        )

    def _check_limits(self) -> None:
        limits = self.limits
        if limits.steps is not None and self.step >= limits.steps:
            raise Stop(StopReason.STEP_LIMIT)
        if limits.tokens is not None and self.tokens >= limits.tokens:
            raise Stop(StopReason.TOKEN_LIMIT)
        if limits.cost is not None and self.cost >= limits.cost:
            raise Stop(StopReason.COST_LIMIT)
        if self.deadline() == 0:
            raise Stop(StopReason.TIME_LIMIT)

    def deadline(self) -> float | None:
        """Seconds that the run's time limit leaves."""
        if self.limits.seconds is None:
            return None
        return max(0.0, self.limits.seconds - self._prior - (time.monotonic() - self._started))

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

        What answered within its issue (``done`` equals ``after``) does so again; anything else takes its turn among
        the results handed over together, so that the agent's tasks wake in the order they woke in.
        """
        assert self.tape is not None
        self.tape.prove(recorded, pending.issue)
        self.waiting[recorded.seq] = pending
        if recorded.done == recorded.after or (not self.handed.count and self.tape.next(self.seq) is recorded):
            self.pump(recorded.seq)
        if self.waiting:
            self.dispatch.loop.call_soon(self.pump)

    def pump(self, until: int = -1) -> None:
        """Hand over recorded results whose time has come, in their order; no further than Call ``until``."""
        assert self.tape is not None
        while (call := self.tape.next(self.seq)) is not None:
            self.tape.position += 1
            pending = self.waiting.pop(call.seq)
            self.clock = max(self.clock, call.done + 1)
            self._prior += call.seconds
            try:
                value = pending.value = self.take(pending, call)
            except ClewError as error:
                value = pending.value = error
            if pending.awaited and call.error.startswith(CUT_OFF):
                pending.future.cancel()
            elif pending.awaited:
                pending.hand(value)
            if call.seq == until:
                return

    def take(self, pending: Pending[T], call: Call) -> T:
        """What a completed Call means for the run: its state moves on, the agent's value comes back."""
        if call.usage is not NONE or call.cost:
            self.tokens += call.usage.prompt - call.usage.cached + call.usage.completion
            self.cost += call.cost
        return pending.apply(call)

    # ---- recording -------------------------------------------------------------------------------------------------

    def complete(self, pending: Pending[T], **fields: Any) -> T:
        """Record the result of an effect and take it as if it had been read; give the agent's value."""
        return self.take(pending, self.record(pending, fields))

    def fail(self, pending: Pending[Any], error: ClewError, **fields: Any) -> NoReturn:
        """Record that an effect failed and raise the error itself, which tells more than its record."""
        call = self.record(pending, {"error": describe(error), **fields})
        with suppress(ClewError):
            self.take(pending, call)  # raises the error as it is recorded
        raise error

    def record(self, pending: Pending[Any], fields: Mapping[str, Any]) -> Call:
        """Complete a Call: it gets its tick of the clock and its key, and is put into the store (not yet committed)."""
        left = self.open_calls.pop(pending.call.seq, None) is not None
        if left and pending.overtaken and self.clock == pending.call.after:
            self.clock += 1  # what came later than its issue, while other results were to be taken, has a later tick
        call = changed(pending.call, done=self.clock, **fields)
        call = changed(call, key=call_key(pending.issue, call))
        self.clock += 1
        for other in self.open_calls.values():
            self.intend(other)
        self.dispatch.store.put_call(self.row.id, call)
        return call

    def intend(self, pending: Pending[Any]) -> None:
        """Put a Call that is under way as an intent, once."""
        if pending.call.seq not in self._intended:
            self._intended.add(pending.call.seq)
            self.dispatch.store.put_call(self.row.id, pending.call)

    def put_fresh(self) -> None:
        if self.fresh:
            self.dispatch.store.put_nodes(self.fresh)
            self.fresh = []
        if self.drifted:
            self.dispatch.store.annotate(self.drifted)
            self.drifted = []

    def drift(self, node: Node, repeats: Node, why: str) -> None:
        """Note that ``node`` says what ``repeats`` says, rendered anew."""
        data = json.dumps({"repeats": repeats.key.hex(), "why": why})
        self.drifted.append(Annotation("node", "drift", run=self.row.id, node=node.key, scope=self.row.id, data=data))

    @contextmanager
    def away(self) -> Iterator[None]:
        """While this run waits for something slow, the engine's ticks do not wait for it."""
        model = self.spec.model
        if batches(model):
            model.seat(-1)
        try:
            yield
        finally:
            if batches(model):
                model.seat(1)
