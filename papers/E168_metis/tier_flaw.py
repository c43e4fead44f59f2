"""The cells of tier flaw: P7 of specs/E168. The same flaw is planted in a text plan and in a tool, for the same tasks.

The flaw is what one run of the same family had and another query need not have: its number of pages, or that and the
field and operator of its first filter and its second filter. All facts of the app are told, so that nothing else is
wrong. At override 0 the player heeds the plan against the query: the negative control.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from clew.core.keys import derive
from clew.core.values import Task
from clew.worlds.apps import Apps
from clew.worlds.apps.app_goals import Filter, answered, asked
from clew.worlds.apps.app_rules import CHANGES, rows_of
from clew.worlds.seeds import NUMBERS
from papers.E168_metis.codify import frozen
from papers.E168_metis.errands import bare
from papers.E168_metis.player import Api, Errand, Outcome, Tool, _row, explore
from papers.E168_metis.reading import advice, read
from papers.E168_metis.stream import STREAMS, TASKS, tasks
from papers.experiment import Line, each, grid

SEEDS = range(20)
FLAWS, CARRIERS = ("pages", "all"), {"text": (0.0, 0.5, 1.0), "tool": (0.0,)}
cost = 0.5


def cells(quick: bool) -> Iterator[Line]:
    seeds = list(SEEDS)[: 2 if quick else None]
    for carrier, overrides in CARRIERS.items():
        yield from grid(families=40, flaw=FLAWS, condition=carrier, override=overrides, seed=seeds)


class Flaw(NamedTuple):
    """What a plan or a tool has kept of a source run. where: None where the filters are the query's own."""

    pages: int
    where: tuple[Filter, ...] | None


def source_of(taskset: Apps, task: Task, seed: int) -> int:
    """The number of another task of the same family, drawn by lot."""
    family, tries = taskset.family(taskset.number(task.id)), 0
    while True:
        number = derive(seed, "source", task.id, tries) % NUMBERS
        if taskset.family(number) == family:
            return number
        tries += 1


def flaw_of(taskset: Apps, task: Task, seed: int, kind: str) -> Flaw:
    """What one run of the same family would leave in a plan that keeps its literals."""
    number = source_of(taskset, task, seed)
    family = taskset.family(number)
    page = taskset.apps(number)[family.app].face.page
    pages = math.ceil(len(rows_of(number, family.app, family.table)) / page)
    own = read(task.prompt)
    assert own is not None
    where = tuple(frozen(own.filters, [tuple(f) for f in asked(number, family)[1]])) if kind == "all" else None
    return Flaw(pages, where)


def in_text(flaw: Flaw, app: str) -> str:
    """The flaw as a plan that the player reads."""
    steps = [f"pages {flaw.pages}", *(f"where {f.field} {f.operator} {f.value}" for f in flaw.where or ())]
    return f"plan: app {app}: {'; '.join(steps)}"


def in_tool(flaw: Flaw, facts: list[str]) -> Tool:
    """The flaw as a tool, with the same facts."""

    def tool(query: str, api: Api) -> object:
        own = read(query)
        assert own is not None
        told, at = advice(facts, own.app), {"app": own.app, "table": own.table}
        if told.login:
            api("login", app=own.app)
        rows, page, more = [], 0, True
        while more and page < flaw.pages:
            page += 1
            seen = api("fetch", endpoint=told.fetch[0], page=page, **at)
            rows, more = [*rows, *(_row(row, told) for row in seen["rows"])], seen["has_more"]
        filters = own.filters if flaw.where is None else flaw.where
        rows = [r for r in rows if all(f.keeps(r) for f in filters) and not (r.pending and told.leaves_out)]
        if own.verb not in CHANGES:
            return answered(own.verb, rows)
        if rows:
            api("change", endpoint=told.change[0], verb=own.verb, ids=[r.id for r in rows], **at)
        return "done"

    return tool


async def _carried(run: Errand, lines: list[str], tools: dict[str, Tool], override: float) -> Outcome:
    return await explore(run, lines, tools, override=override)


def _stream(setting: Line, seed: int, n: int = TASKS) -> Line:
    """success: a digit a task. short: the task needs more pages than its source. differ: that, or another literal."""
    taskset, drawn = tasks(setting["families"], STREAMS[setting["families"]], seed, n)
    found: dict[str, Any] = {"success": "", "short": "", "differ": ""}
    for task in drawn:
        facts, app = taskset.facts(task), read(task.prompt).app  # type: ignore[union-attr]
        flaw, own = flaw_of(taskset, task, seed, setting["flaw"]), read(task.prompt)
        lines = [*facts, in_text(flaw, app)] if setting["condition"] == "text" else facts
        tools = {"flawed": in_tool(flaw, facts)} if setting["condition"] == "tool" else {}
        agent = partial(_carried, lines=lines, tools=tools, override=setting["override"])
        played = bare(taskset, task, agent, seed)
        number = taskset.number(task.id)
        page = taskset.apps(number)[app].face.page
        short = math.ceil(len(rows_of(number, own.app, own.table)) / page) > flaw.pages
        differ = short or (flaw.where is not None and set(flaw.where) != set(own.filters))
        found["success"] += str(int(played.reward))
        found["short"] += str(int(short))
        found["differ"] += str(int(differ))
    return found


run = each(_stream)
