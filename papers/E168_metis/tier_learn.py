"""The cells of tier learn: text memory by ``clew.methods.memory.lessons.learn``, with the reflector of this paper.

After each recorded, judged run ``learn`` is called with the reflector by rules, once with ``RuleScreen`` and once
with a screen that adds whatever is new word for word. ``acts told``: pitfalls say the mistake as what the run did,
"submit an answer: ...", since the screen looks for a mistake among the deeds of the run. ``judge told``: the lesson
says what the judge revealed after the run (``Lesson.revealed``). Agents recall by ``run.memory(...).recall`` alone:
facts and pitfalls of the app.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence

from clew.harness import Runner
from clew.harness.memory import Item, Memory
from clew.harness.memory.item_kinds import text_of
from clew.harness.run.live import LiveRun
from clew.methods.memory.lessons.learn import learn
from clew.methods.memory.lessons.lesson import Lesson, Reflection, Ruling, Screen
from clew.methods.memory.lessons.references import FunctionReflector
from clew.methods.memory.lessons.run_view import RunView
from clew.methods.memory.lessons.screens import RuleScreen
from clew.methods.memory.lessons.spent import Cost, Spent
from clew.worlds.apps import Apps
from papers.E168_metis.errands import Played, end_of, recorded, steps_of
from papers.E168_metis.mind import K_FACTS
from papers.E168_metis.player import Outcome, explore
from papers.E168_metis.reading import read
from papers.E168_metis.reflect import Lesson as Found
from papers.E168_metis.reflect import reflect
from papers.E168_metis.shelf import NAME
from papers.E168_metis.stream import STREAMS, tasks
from papers.experiment import Line, each, grid

SEEDS, TASKS, FAMILIES = range(5), 100, 40
cost = 3.0


class Anything:
    """A screen that lets all pass that is new word for word."""

    async def judge(self, lesson: Lesson, neighbours: Sequence[Item], run: RunView) -> Ruling:
        said = text_of(lesson.kind, lesson.body)
        known = next((item for item in neighbours if item.text == said), None)
        return Ruling("merge", known.id, "said before") if known else Ruling("add")


SCREENS: dict[str, type[Screen]] = {
    "rule screen": RuleScreen,
    "rule screen, acts told": RuleScreen,
    "rule screen, judge told": RuleScreen,
    "no screen": Anything,
}


def cells(quick: bool) -> Iterator[Line]:
    yield from grid(condition=list(SCREENS), seed=list(SEEDS)[: 1 if quick else None])


def lessons_of(taskset: Apps, view: RunView, condition: str = "") -> Reflection:
    """The reflector by rules, as ``learn`` asks one. condition: how it tells a mistake, see above."""
    calls = list(view.run.calls)
    told = json.loads(next(call.text for call in calls if call.action == "explored"))
    outcome = Outcome(**{**told, "refused": tuple(told["refused"])})
    task = taskset.find(view.run.task_id)
    played = Played(task, outcome, view.reward or 0.0, steps_of(calls), end_of(taskset.open(task)), run=view.id)
    found = reflect(taskset, played)
    lessons = tuple(as_lesson(one, view, condition) for one in found.lessons if one.text)
    return Reflection(lessons, Spent(reflection=Cost(found.read, found.written, 1)))


def as_lesson(found: Found, view: RunView, condition: str) -> Lesson:
    """A lesson of this paper's reflector as Clew has them: what it is about stands in its words."""
    body = dict(found.body)
    revealed = body.get("mistake", "") if "judge told" in condition else ""
    if "acts told" in condition and "mistake" in body:
        body["mistake"] = f"submit an answer: {body['mistake']}"
    return Lesson(found.kind, body, (found.app,), (view.place(found.seq),), "by rules", revealed)


def line_of(kind: str, text: str) -> str:
    """An item as the player reads it; what app it holds for is its scope."""
    return f"pitfall: fix: {text.rpartition('Fix: ')[2]}" if kind == "pitfall" else f"{kind}: {text}"


async def _attend(run: LiveRun) -> None:
    asked = read(run.task.prompt)
    assert asked is not None
    found = await run.memory(NAME).recall(run.task.prompt, k=K_FACTS, scope=asked.app, kinds=("fact", "pitfall"))
    await explore(run, [line_of(item.kind, item.text) for item in found.items])


def _stream(setting: Line, seed: int, n: int = TASKS) -> Line:
    """success: a digit a task. ruled: how often a kind of lesson had which ruling. dropped: the commonest reasons."""
    taskset, drawn = tasks(FAMILIES, STREAMS[FAMILIES], seed, n)
    runner = Runner(_attend, taskset, None)
    memory, screen = Memory(runner.store, NAME), SCREENS[setting["condition"]]()
    reflector = FunctionReflector(lambda view: lessons_of(taskset, view, setting["condition"]), "E168")
    ruled, dropped, played, failed = Counter[str](), Counter[str](), list[Played](), 0
    for task in drawn:
        played.append(recorded(runner, taskset, task, seed))
        learnt = asyncio.run(learn(memory, runner.store.run(played[-1].run), reflector, screen))
        failed += learnt.failed
        for one in learnt.ruled:
            ruled[f"{one.lesson.kind} {one.ruling.what}"] += 1
            if one.ruling.what == "drop":
                dropped[f"{one.lesson.kind}: {one.ruling.why}"] += 1
    return {
        "success": "".join(str(int(one.reward)) for one in played),
        "turns": sum(one.outcome.turns for one in played) / n,
        "items": len(memory.items("active")),
        "failed": failed,
        "ruled": dict(sorted(ruled.items())),
        "dropped": dropped.most_common(6),
    }


run = each(_stream)
