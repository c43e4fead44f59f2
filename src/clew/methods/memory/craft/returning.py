"""Tools that return to text: those that do worse than their plan, and those whose world has changed.

``clew memory craft`` calls ``returned`` before it builds, experiments do after each task. The reason stays with the
tool, which is retired, and its plan is an active plan again, which waits for a new tool as before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from clew.core.values import ToolSpec
from clew.harness.memory import Item, Memory
from clew.harness.memory.telling import THRESHOLD
from clew.harness.memory.tool_shelf import deps_of, unfit
from clew.harness.memory.tool_uses import ToolUse, uses
from clew.methods.memory.craft.demotion import LEVEL, WINDOW, demoted
from clew.methods.memory.lessons.spent import executed
from clew.store.base import Keeper
from clew.store.protocol import rewards

Specs = Callable[[Item], Sequence[ToolSpec] | None]


class Record(NamedTuple):
    """How a tool and its plan did. tool, text: successes of judged runs, oldest first; those of the tool begin with its
    shadow tasks, on which it agreed. uses: of the tool. tokens: of models, of each run that used the tool, and of each
    that followed the plan."""

    tool: list[bool]
    text: list[bool]
    uses: list[ToolUse]
    tool_tokens: list[int]
    text_tokens: list[int]


class Returned(NamedTuple):
    """A tool that returned to text, and why."""

    tool: str
    name: str
    why: str


def record_of(store: Keeper, tool: Item, plan: Item | None) -> Record:
    """How a tool did, and the plan that it was made from; runs that the store no longer holds are left out."""
    held = set(store.run_ids())
    done = [use for use in uses(store, tool) if _run(use.place) in held]
    mine = [_run(use.place) for use in done if use.answered]
    given = [_run(one.place) for one in plan.given] if plan is not None else []
    text = [run for run in dict.fromkeys(given) if run in held and run not in set(mine)]
    reward = rewards(store, sorted({*mine, *text}))
    success = [[reward[run] > THRESHOLD for run in runs if run in reward] for runs in (mine, text)]
    tokens = [[executed(store.calls(run)).tokens for run in runs] for runs in (mine, text)]
    return Record([True] * _agreed(tool) + success[0], success[1], done, tokens[0], tokens[1])


def records(memory: Memory) -> list[tuple[Item, Record]]:
    """The tools in use and how each did, beside the plan that it was made from."""
    items = memory.items()
    plans = {one.id: one for one in items if one.kind == "plan"}
    tools = [one for one in items if one.kind == "tool" and one.state == "active" and one.body.get("source")]
    return [(tool, record_of(memory.store, tool, plans.get(tool.body.get("from_plan", "")))) for tool in tools]


def returned(
    memory: Memory, specs: Specs | None = None, level: float = LEVEL, window: int = WINDOW, *, dry: bool = False
) -> list[Returned]:
    """Return to text every tool that no longer earns its place, and those that are made of one.

    Args:
        specs: what the world of a tool offers now, None where that is not known; without it no schema is compared.
        level, window: see ``demoted``.
        dry: only say which.
    """
    found, known = list[Returned](), records(memory)
    standing = {tool.id: tool for tool, _ in known}
    for tool, record in known:
        offers = specs(tool) if specs is not None else None
        fault = unfit(tool, offers) if offers is not None else ""
        why = f"returned to text: {fault}" if fault else ""
        why = why or demoted(record.tool, record.text, level, window).why
        if why:
            found += _retire(memory, standing, tool, why, dry)
    return found


def _retire(memory: Memory, standing: dict[str, Item], tool: Item, why: str, dry: bool) -> list[Returned]:
    """Retire a tool, and after it those that call it."""
    if standing.pop(tool.id, None) is None:
        return []
    if not dry:
        memory.demote(tool.id, why)
    found = [Returned(tool.id, tool.body["name"], why)]
    for other in [one for one in standing.values() if tool.id in deps_of(one).tools.values()]:
        because = f"returned to text: it calls {tool.body['name']}, which returned"
        found += _retire(memory, standing, other, because, dry)
    return found


def _agreed(tool: Item) -> int:
    try:
        told = json.loads(tool.body.get("checks", ""))
    except (ValueError, RecursionError):
        return 0
    agreed = told.get("agreed") if isinstance(told, dict) else 0
    return agreed if isinstance(agreed, int) and 0 <= agreed <= WINDOW else 0


def _run(place: str) -> str:
    return place.partition("@")[0]
