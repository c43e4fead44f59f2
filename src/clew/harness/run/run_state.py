"""Issuing, performing, recording and handing over the effects of one run; from the record first, then live."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from clew.core.errors import ReplayDiverged
from clew.core.legality import call_key, issue_key
from clew.core.protocols import Model, World
from clew.core.records import Annotation, Call, CallKind, Cursor, Intervention, Node, RunRow, changed
from clew.core.values import UNSET, Limits, Observation, Sampling, StopReason, Task
from clew.harness.run import acts, asks
from clew.harness.run.live import Conversation, LiveRun
from clew.harness.run.nodes import Reply
from clew.harness.run.pending import CUT_OFF, Pending, Stop, batches, revive
from clew.harness.run.spec import RunSpec
from clew.harness.run.tape import Tape
from clew.store.run import Run

if TYPE_CHECKING:
    from clew.harness.run.dispatch import Clerk


class Effects:
    """One run's effects.

    Args:
        spec: what all runs of the collection share.
        clerk: commits and batches for all runs of the loop.
        row, task: the run; ``task`` carries no secret.
        tape: recorded Calls to follow first, or None.
        edits: the run's Intervention.
        replay: follow the tape to its end and never go live.
        kept: (conversation, ordinal of the ask) -> reply, forced once live.
    """

    def __init__(
        self,
        spec: RunSpec,
        clerk: Clerk,
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
        self.spec, self.clerk, self.row, self.task = spec, clerk, row, task
        self.tape, self.edits, self.replay, self.kept = tape, edits, replay, dict(kept or {})
        self.sampling, self.limits = sampling, limits
        self.say_edits = [e for e in edits.edits if e.kind in ("say", "insert", "delete")]
        self.at = {(e.kind, e.seq): e for e in edits.edits if e.kind in ("reply", "prefix", "result", "child")}
        self.later = sorted((e for e in edits.edits if e.kind in ("model", "sampling", "tap")), key=lambda e: e.seq)
        self.seq = self.clock = 0
        self.issue = b""
        self.world: World | None = None
        self.fresh: list[Node] = []
        self.live = LiveRun(self)
        self.ended: StopReason | None = None
        self.claimed: float | None = None  # sum of the rewards the world gave
        self.open_calls: dict[int, Pending] = {}
        self._intended: set[int] = set()
        self.waiting: dict[int, Pending] = {}
        self.conversations = 0
        self.turn: asyncio.Lock = asyncio.Lock()
        self.handed = 0  # results handed over that the agent's tasks have not woken with yet
        self.acting = 0  # acts on the world that have not answered
        self.snapshot_size = 0
        self._started = time.monotonic()
        self.tokens, self.cost, self._prior = 0, 0.0, 0.0
        self.drifted: list[Annotation] = []

    # ---- issue -----------------------------------------------------------------------------------------------------

    def new_conversation(self) -> int:
        self.conversations += 1
        return self.conversations - 1

    def model_for(self, model: str | Model | None) -> Model | None:
        return self.spec.model if model is None else self.spec.models.of(model, not self.replay) or self.spec.model

    def tape_tokenizer(self, parent: bytes) -> str:
        """While replaying without a model, nodes are looked up under the tokenizer their parent has on the tape."""
        if self.tape is None:
            return ""
        if parent in self.tape.by_key:
            return self.tape.by_key[parent].tokenizer
        return self.tape.root_tokenizer

    def begin(
        self, kind: CallKind, request: bytes, what: str, path: Sequence[Node] = (), **fields: Any
    ) -> tuple[Pending, Call | None]:
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
        if recorded is None:
            if self.replay:
                raise Stop(StopReason.CANCELLED)
            if kind in ("ask", "act", "spawn"):
                self._check_limits()
        if recorded is not None and recorded.done >= 0:
            self.issue, call = issue_key(self.issue, recorded), recorded
        else:
            call = Call(self.row.id, self.seq, kind, request, self.clock, started=time.time(), **fields)
            if recorded is not None and recorded.child:
                call = call._replace(child=recorded.child)
            self.issue, recorded = issue_key(self.issue, call), None
        self.seq += 1
        pending = Pending(call, self.issue)
        pending.overtaken = self.handed > 0
        return pending, recorded

    def on_tape(self) -> bool:
        """Whether the next Call's result is recorded (or replay must not go further)."""
        return self.replay or (
            self.tape is not None and self.seq in self.tape.calls and self.tape.calls[self.seq].done >= 0
        )

    def _check_limits(self) -> None:
        limits = self.limits
        if limits.steps is not None and self.live.step >= limits.steps:
            raise Stop(StopReason.STEP_LIMIT)
        if limits.tokens is not None and self.tokens >= limits.tokens:
            raise Stop(StopReason.TOKEN_LIMIT)
        if limits.cost is not None and self.cost >= limits.cost:
            raise Stop(StopReason.COST_LIMIT)
        if limits.seconds is not None and self._prior + time.monotonic() - self._started >= limits.seconds:
            raise Stop(StopReason.TIME_LIMIT)

    def deadline(self) -> float | None:
        """Seconds that the run's time limit leaves."""
        if self.limits.seconds is None:
            return None
        return max(0.0, self.limits.seconds - self._prior - (time.monotonic() - self._started))

    # ---- following the record --------------------------------------------------------------------------------------

    async def follow(self, pending: Pending, recorded: Call) -> Any:
        """Wait until a recorded result is handed over.

        What answered within its issue (``done`` equals ``after``) does so again; anything else takes its turn among
        the results handed over together, so that the agent's tasks wake in the order they woke in.
        """
        assert self.tape is not None
        self.tape.prove(recorded, pending.issue)
        self.waiting[recorded.seq] = pending
        if recorded.done == recorded.after or (not self.handed and self.tape.next(self.seq) is recorded):
            self.pump(recorded.seq)
        if pending.value is UNSET:
            pending.awaited = True
            self.clerk.loop.call_soon(self.pump)
            return await self.taken(pending)
        if self.waiting:
            self.clerk.loop.call_soon(self.pump)
        if isinstance(pending.value, BaseException):
            raise pending.value
        return pending.value

    async def taken(self, pending: Pending) -> Any:
        """Await a result and note that the agent has woken with it."""
        try:
            return await pending.future
        finally:
            self.handed -= 1

    def hand(self, pending: Pending, value: Any) -> None:
        """Give an awaited result (an exception is raised in the agent)."""
        if pending.future.done():
            return
        self.handed += 1
        if isinstance(value, BaseException):
            pending.future.set_exception(value)
        else:
            pending.future.set_result(value)

    def pump(self, until: int = -1) -> None:
        """Hand over recorded results whose time has come, in their order; no further than Call ``until``."""
        assert self.tape is not None
        while (call := self.tape.next(self.seq)) is not None:
            self.tape.position += 1
            pending = self.waiting.pop(call.seq)
            self.clock = max(self.clock, call.done + 1)
            self._prior += call.seconds
            pending.value = self.applied(call, pending.chat)
            if pending.awaited and call.error.startswith(CUT_OFF):
                pending.future.cancel()
            elif pending.awaited:
                self.hand(pending, pending.value)
            if call.seq == until:
                return

    def applied(self, call: Call, chat: Conversation | None) -> Any:
        """What a completed Call means for the run: its state moves on, the agent's value comes back."""
        self.meter(call)
        if call.error:
            if chat is not None:
                chat.waiting = False
            if call.kind == "act":
                self.live.step += 1
            return revive(call.error)
        if call.kind == "ask":
            assert chat is not None
            if call.packed:
                chat.waiting = False
                return asks.unpacked(self, call, chat, chat.nodes[-1].tokenizer)
            node = self.tape.by_key[call.node_out] if self.tape and call.node_out in self.tape.by_key else None
            return self.reply(call, chat, node or self.clerk.store.node(call.node_out))
        if call.kind in ("act", "open"):
            view = Observation(call.text, call.reward, call.terminal, call.legal)
            if call.kind == "act":
                self.live.step += 1
                if call.reward is not None:
                    self.claimed = (self.claimed or 0.0) + call.reward
            if call.finish == "tool":
                view = view._replace(call_id=json.loads(call.action)[0])
            if call.state or call.kind == "open" or call.forced:
                self.live.view, self.live.done = view, call.terminal
            return view
        if call.kind == "spawn":
            return Run(self.spec.store, call.child)
        return float(call.text) if call.kind in ("draw", "now") else None

    def meter(self, call: Call) -> None:
        self.tokens += call.usage.prompt - call.usage.cached + call.usage.completion
        self.cost += call.cost

    def reply(self, call: Call, chat: Conversation, node: Node) -> Reply:
        chat.nodes.append(node)
        chat.closed = call.finish != "length" and call.finish != "cut"
        chat.waiting = False
        message = node.message
        tokens = node.ids[call.head :] if node.ids is not None else None
        at = Cursor(self.row.id, call.seq)
        return Reply(message.text, message.reasoning, message.calls, tokens, call.logprobs, call.finish, at, node)

    # ---- recording -------------------------------------------------------------------------------------------------

    def record(self, pending: Pending, **fields: Any) -> Call:
        """Complete a Call: it gets its tick of the clock and its key, and is put into the store (not yet committed)."""
        call = changed(pending.call, done=self.clock, **fields)
        call = changed(call, key=call_key(pending.issue, call))
        self.clock += 1
        self.open_calls.pop(call.seq, None)
        for other in self.open_calls.values():
            self.intend(other)
        self.clerk.store.put_call(self.row.id, call)
        return call

    def intend(self, pending: Pending) -> None:
        """Put a Call that is under way as an intent, once."""
        if pending.call.seq not in self._intended:
            self._intended.add(pending.call.seq)
            self.clerk.store.put_call(self.row.id, pending.call)

    def put_fresh(self) -> None:
        if self.fresh:
            self.clerk.store.put_nodes(self.fresh)
            self.fresh = []
        if self.drifted:
            self.clerk.store.annotate(self.drifted)
            self.drifted = []

    def drift(self, node: Node, repeats: Node, why: str) -> None:
        """Note that ``node`` says what ``repeats`` says, rendered anew."""
        data = json.dumps({"repeats": repeats.key.hex(), "why": why})
        self.drifted.append(Annotation("node", "drift", run=self.row.id, node=node.key, scope=self.row.id, data=data))

    def answered(self, pending: Pending, result: Any) -> Any:
        """Record what came back for an effect under way; give the agent's value (an exception is a value to raise)."""
        self.late(pending)
        return (acts if pending.call.kind == "act" else asks).answered(self, pending, result)

    def late(self, pending: Pending) -> None:
        """A result that did not come within its issue, while others were still to be taken, gets a later tick."""
        if pending.overtaken and self.clock == pending.call.after:
            self.clock += 1

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
