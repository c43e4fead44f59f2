"""Crafting with what a store holds: which plans are due by what was measured, and a tool of one of them.

``clew memory craft`` calls it. Worlds, shadow tasks and the tools that may be called are read from the runs that were
given a plan, so nothing need be named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice

from clew.core.errors import BadInput, ClewError
from clew.core.protocols import Model, Taskset
from clew.core.registry import build as built
from clew.core.values import ToolSpec
from clew.harness.memory import Item, Memory
from clew.methods.memory.craft.crafting import SECONDS, Crafted, craft, tries
from clew.methods.memory.craft.drafting import Codifier
from clew.methods.memory.craft.fresh_plays import FreshPlays
from clew.methods.memory.craft.returning import record_of
from clew.methods.memory.craft.shadowing import SHADOW
from clew.methods.memory.craft.stored_plays import Finish, Play, StoredPlays, finish_of, plays, taskset_of
from clew.methods.memory.craft.thresholds import NEVER, Due, Fixed, Of, due, measured
from clew.methods.memory.lessons.spent import Cost, executed, lines_of


def survey(memory: Memory, theta: int | None = None, of: Of = "shapes", guess: float = 0.0) -> list[Due]:
    """The plans of a memory that have no tool, the readiest first.

    Args:
        theta: a fixed threshold; None: ski rental, for each plan by what its own runs take.
        of: what is counted, or wanted beside the uses: shapes, or queries that differ in their words.
        guess: tokens of a build, until the memory has paid for one.
    """
    items, tried = memory.items(), tries(memory)
    tools = [one for one in items if one.kind == "tool"]
    if theta is not None:
        return due(items, Fixed(theta, of), tries=tried)
    builds, saved = builds_of(memory), saved_by(memory, items)
    found = list[Due]()
    for plan in (one for one in items if one.kind == "plan"):
        found += due([plan, *tools], measured(builds, _tokens(memory, plan), saved, guess, of=of), tries=tried)
    return sorted(found, key=lambda one: (not one.ready, one.need.theta - one.need.have, one.plan.made))


def never(one: Due) -> str:
    """Why no threshold by cost can be reached, in a sentence; empty where it can."""
    if one.need.theta < NEVER:
        return ""
    return "by what was measured a tool would save no tokens; a fixed threshold (--theta N) counts queries alone"


def builds_of(memory: Memory) -> list[float]:
    """Tokens of each build that the memory has paid for, with its shadow runs, refused ones too."""
    building = [_tokens_of(line) for line in lines_of(memory.store, memory.name, "building")]
    checking = [_tokens_of(line) for line in lines_of(memory.store, memory.name, "checking")]
    extra = sum(checking) / len(building) if building else 0.0
    return [one + extra for one in building]


def _tokens_of(line: Mapping[str, object]) -> float:
    parts = [line.get("read"), line.get("written")]
    return float(sum(part for part in parts if isinstance(part, (int, float))))


def _tokens(memory: Memory, plan: Item) -> list[float]:
    """Tokens of models, of each run that was given the plan."""
    held = set(memory.store.run_ids())
    runs = dict.fromkeys(given.place.partition("@")[0] for given in plan.given)
    return [float(executed(memory.store.calls(run)).tokens) for run in runs if run in held]


def saved_by(memory: Memory, items: Sequence[Item]) -> list[float]:
    """Of each tool that was used, one that returned to text too: the share of tokens that its runs saved against those
    that followed its plan; below 0 where they took more."""
    plans = {one.id: one for one in items if one.kind == "plan"}
    found = list[float]()
    for tool in items:
        plan = plans.get(tool.body.get("from_plan", "")) if tool.kind == "tool" else None
        if plan is not None:
            record = record_of(memory.store, tool, plan)
            if record.tool_tokens and sum(record.text_tokens):
                text = sum(record.text_tokens) / len(record.text_tokens)
                found.append(1 - sum(record.tool_tokens) / len(record.tool_tokens) / text)
    return found


def world_of(memory: Memory, some: Sequence[Play]) -> Taskset:
    """The taskset of stored runs.

    Raises:
        BadInput: they are of none; UnknownName: it cannot be built here.
    """
    found: Taskset = built("tasksets", taskset_of(memory.store, some))
    return found


def offered(memory: Memory) -> Callable[[Item], Sequence[ToolSpec] | None]:
    """What the world of a tool offers now, by the newest run of its plan; None where that cannot be told."""
    plans = {one.id: one for one in memory.items() if one.kind == "plan"}

    def specs(tool: Item) -> Sequence[ToolSpec] | None:
        plan = plans.get(tool.body.get("from_plan", ""))
        some = plays(memory.store, plan) if plan is not None else []
        try:
            return StoredPlays(memory.store, world_of(memory, some), None).api(some[0])
        except ClewError:
            return None

    return specs


async def build(
    memory: Memory,
    one: Due,
    codifier: Codifier,
    *,
    m: int = SHADOW,
    seconds: float = SECONDS,
    finish: Finish | None = None,
    fresh: int = 0,
    resolve: Callable[[str], Model] | None = None,
    progress: Callable[[int], None] = lambda begun: None,
) -> Crafted:
    """A tool of a plan, checked on the stored runs that followed the plan; or why there is none, in a sentence.

    Where too few runs can be its shadow tasks nothing is built and nothing is counted as tried.

    Args:
        m: shadow tasks on which tool and text must agree.
        seconds: that the codifier may take.
        finish: how an answer is handed in; None: as the runs did.
        fresh: new tasks that are played at most, with the plan as text, where stored runs are too few.
        resolve: gives the model of a reference, for these.
        progress: called with how many of these were begun.
    """
    try:
        some = followed(memory, one.plan)
        taskset = world_of(memory, some)
        new = FreshPlays(memory, one.plan, taskset, some, fresh, resolve, progress)
        more, stored = iter(new), len(some)
        if fresh:
            some += islice(more, max(0, m - stored))
        if len(some) < m:
            remedy = "Run more tasks, let --fresh N of them be played, or say --shadow N."
            told = f"; {new.told}" if fresh else ""
            raise BadInput(f"{stored} stored runs that followed the plan are no {m} shadow tasks{told}", remedy=remedy)
        shadowed = StoredPlays(memory.store, taskset, finish or finish_of(memory.store, some), some)
        api = shadowed.api(some[0])
    except ClewError as error:
        return Crafted(one.plan.id, "", "", error.message, Cost(), Cost())
    tasks = chain(some, more) if fresh else some
    return await craft(memory, one, codifier, api, shadowed, tasks, m=m, seconds=seconds)


def followed(memory: Memory, plan: Item) -> list[Play]:
    """The stored runs that followed a plan, of the world that most of them are of."""
    some = plays(memory.store, plan)
    refs = {play: memory.store.row(play.run).taskset for play in some}
    return [play for play in some if refs[play] == taskset_of(memory.store, some)]
