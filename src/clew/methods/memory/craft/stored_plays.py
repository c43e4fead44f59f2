"""Shadow tasks from the store: runs that were given a plan, and what a tool would have done in their place.

The text path is the recorded run: its end state is in the record. For the tool the world is taken through the recorded
acts up to the place where the plan was recalled, and the tool goes on from there, in the sandbox. Where no act hands
the answer in, as in most runs on rows of data, the tool's answer must be that of the run, or be found right by the
tasks' own judge, which must find the answer to another task wrong. It never asks the agent, and it touches no world
that cannot be made again: one of kind ``none`` is refused.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from clew.core.aio import in_thread
from clew.core.errors import BadInput, CannotRestore, ClewError
from clew.core.protocols import Taskset, World
from clew.core.records import Call, Cursor, action_of
from clew.core.values import Observation, Task, ToolCall, ToolSpec
from clew.harness.memory.item_kinds import Item
from clew.harness.memory.telling import THRESHOLD
from clew.harness.memory.tool_code import Code, Seen, Step, advance, through
from clew.harness.memory.tool_uses import use_told
from clew.methods.memory.craft.query_shapes import shape
from clew.methods.memory.craft.shadowing import End
from clew.store import Keeper, Run
from clew.worlds.judging import retrace
from clew.worlds.world_asks import Asks, open_world

LEFT = b"a changed world, left to the text"
JUDGE_SECONDS = 60.0  # that the tasks' judge may take for one answer
NOTHING = "no act changed the world and no reply answers: nothing to compare a tool with"


class Finish(NamedTuple):
    """How an answer is handed in: a tool of the world and the argument that takes it; without a tool as plain text."""

    tool: str
    argument: str = ""

    def action(self, answer: str) -> str | ToolCall:
        """What hands an answer in."""
        return ToolCall("answer", self.tool, json.dumps({self.argument: answer})) if self.tool else answer


class Play(NamedTuple):
    """A stored run at the place where it was given the plan."""

    run: str
    seq: int
    query: str

    def __str__(self) -> str:
        return f"{self.run}@{self.seq}"


def plays(store: Keeper, plan: Item) -> list[Play]:
    """The runs of a plan's ledger that ended in a world, those of other shapes and newer ones first; a run whose answer
    a tool gave is left out."""
    found, times = list[tuple[int, Play]](), Counter[tuple[str, ...]]()
    held = set(store.run_ids())
    for given in reversed(plan.given):
        cursor = Cursor.parse(given.place)
        if cursor.run in held and by_text(Run(store, cursor.run)):
            look = shape(given.query)
            times[look] += 1
            found.append((times[look], Play(cursor.run, cursor.seq, given.query)))
    return [play for _, play in sorted(found, key=lambda it: it[0])]


def by_text(run: Run) -> bool:
    """Whether a run ended in a world, and no tool of a memory gave its answer."""
    calls = run.calls
    if not calls or calls[-1].kind != "end" or not any(call.state for call in calls):
        return False
    return not any(use_told(call).get("answer") is not None for call in calls)


def finish_of(store: Keeper, some: Iterable[Play]) -> Finish | None:
    """How the runs handed their answers in: by the act after which the world reported its end; None where none did."""
    ways = Counter[Finish]()
    for play in some:
        last = next((call for call in reversed(store.calls(play.run)) if call.kind == "act" and call.terminal), None)
        if last is not None:
            action = action_of(last)
            ways[_way(action) if isinstance(action, ToolCall) else Finish("")] += 1
    return ways.most_common(1)[0][0] if ways else None


def _way(action: ToolCall) -> Finish:
    return Finish(action.name, next(iter(_read(action.arguments)), ""))


def _read(arguments: str) -> Mapping[str, object]:
    try:
        told = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


class StoredPlays:
    """The two functions of a shadow run for the runs of a store.

    Args:
        taskset: that of the runs.
        finish: how an answer is handed in; None: by no act, and the answer itself is compared.
        others: runs from which the answer to another task is taken, to see whether the judge finds it wrong.
    """

    def __init__(self, store: Keeper, taskset: Taskset, finish: Finish | None, others: Sequence[Play] = ()) -> None:
        self.store, self.taskset, self.finish, self.others = store, taskset, finish, tuple(others)

    def api(self, play: Play) -> list[ToolSpec]:
        """The tools that the world of a run offers, but the one that hands the answer in."""
        with closing(open_world(self.taskset, self._task(play))) as world:
            return [spec for spec in world.tools if self.finish is None or spec.name != self.finish.tool]

    async def by_text(self, play: Play) -> End:
        """How the recorded run ended."""
        run = Run(self.store, play.run)
        calls = [call for call in run.calls if call.kind in ("open", "act") and call.state]
        work = [call for call in calls if not call.terminal] or calls
        before = [call for call in work if call.seq < play.seq] or calls[:1]
        moved = work[-1].state != before[-1].state
        answer = self._answered(run)
        good = None if run.reward is None else run.reward > THRESHOLD
        untested = "" if moved or answer is not None else NOTHING
        return End(calls[-1].state, good, answer=answer, moved=moved, untested=untested)

    async def by_tool(self, play: Play, code: Code) -> End | str:
        """How a tool ends in the place of the run's agent; a text says why it left the task to the plan.

        Raises:
            CannotRestore: the world cannot be made again as it was.
        """
        run, asks = Run(self.store, play.run), Asks()
        world = open_world(self.taskset, self._task(play), asks)
        with closing(world):
            if world.restores not in ("exact", "reenact"):
                raise CannotRestore(
                    f"a world of kind {world.restores} is not made again for a shadow run", at=str(play)
                )
            acts = [c for c in run.calls[: play.seq] if c.kind == "act" and c.done >= 0 and c.state]
            await retrace(world, acts, [e for e in run.changes.edits if e.seq <= play.seq], asks)
            before, ended = world.state_key, list[str]()

            async def step(seen: Sequence[Seen]) -> Step:
                return await advance(code, play.query, seen)

            async def perform(name: str, given: str) -> str | None:
                if ended:
                    return None
                try:
                    seen = await _stepped(world, ToolCall(f"tool-{len(acts)}", name, given))
                except ClewError as error:
                    return f"error: {error.message}"
                ended.extend([given] if seen.done else [])
                return seen.text

            used = await through(step, perform, lambda: code.api)
            if used.answer is None:  # the text path would go on in a world that it does not expect
                return used.why or "it gave None" if world.state_key == before else End(LEFT)
            if self.finish is not None and not ended:
                await _stepped(world, self.finish.action(used.answer))
            return await self._compared(play, _argument(ended[0], "") if ended else used.answer, world)

    async def _compared(self, play: Play, answer: str, world: World) -> End:
        """The tool's end. The judge is asked only where the states are the same and the answers are not."""
        text, end = await self.by_text(play), End(world.state_key, answer=answer.strip())
        if end.state != text.state or text.answer in (end.answer, None):
            return end._replace(answer=text.answer if text.answer is None else end.answer)
        if not text.good:
            return end
        run = Run(self.store, play.run)
        if not text.moved and (other := self._other(play, text.answer)) is not None:
            control = await self._good(run, play, other, world)
            if control is not False:
                why = "finds the answer to another task right too" if control else "does not judge it"
                return end._replace(untested=f"the tool's words are not the run's, and the tasks' judge {why}")
        return end._replace(good=await self._good(run, play, answer, world))

    def _answered(self, run: Run) -> str | None:
        """What a run answered: by the act that ended its world, else by its last reply; None where by neither."""
        last = next((call for call in reversed(run.calls) if call.kind == "act" and call.terminal), None)
        if last is not None:
            action = action_of(last)
            if isinstance(action, str):
                return action.strip()
            return _argument(action.arguments, self.finish.argument if self.finish else "")
        asks = [call for call in run.calls if call.kind == "ask" and call.node_out and not call.error]
        return run.store.node(asks[-1].node_out).message.text.strip() or None if asks else None

    def _other(self, play: Play, answer: str | None) -> str | None:
        """What another run answered; an empty answer where all answered the same."""
        task = self.store.row(play.run).task_id
        told = (self._answered(Run(self.store, p.run)) for p in self.others if self.store.row(p.run).task_id != task)
        return next((one for one in told if one not in (None, answer)), "")

    async def _good(self, run: Run, play: Play, answer: str, world: World) -> bool | None:
        """What the judge says of an answer in the place of the run's; None where it does not say."""
        task = self._task(play)
        try:
            async with asyncio.timeout(JUDGE_SECONDS):
                told = await in_thread(
                    self.taskset.judge(task, _Answering(run, play.seq, answer, world.state_key), world)
                )
        except Exception:  # a judge of the user's own, on a record that it has not made
            return None
        reward = told.get("reward")
        return None if reward is None else reward > THRESHOLD

    def _task(self, play: Play) -> Task:
        return self.taskset.find(self.store.row(play.run).task_id)


class _Answering(Run):
    """A run as it would be if it had given another answer where the plan was recalled; for judges."""

    def __init__(self, run: Run, seq: int, answer: str, state: bytes) -> None:
        super().__init__(run.store, run.row)
        self._calls = [*run.calls[:seq], Call(run.id, seq, "act", b"", seq, seq, action=answer, state=state)]


def _argument(arguments: str, name: str) -> str:
    """What a tool call says by the argument of a name, or by its first."""
    told = _read(arguments)
    given = told.get(name, next(iter(told.values()), arguments))
    return (given if isinstance(given, str) else json.dumps(given)).strip()


async def _stepped(world: World, action: str | ToolCall) -> Observation:
    answer = world.step(action)
    return await answer if inspect.isawaitable(answer) else answer


def taskset_of(store: Keeper, some: Sequence[Play]) -> str:
    """The reference of the taskset that most of the runs are of; runs of others are no shadow tasks.

    Raises:
        BadInput: they are of none.
    """
    refs = Counter(store.row(play.run).taskset for play in some)
    ref = refs.most_common(1)[0][0] if refs else ""
    if not ref:
        remedy = "A shadow run needs stored runs of a world that were given the plan, and ended."
        raise BadInput("no stored run shows what the plan does in a world", remedy=remedy)
    return ref
