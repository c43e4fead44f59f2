"""Stored runs as a model of their world sees them: what it is told at the start, then action and answer by turns.

`clew world fit` and `clew world eval` read runs here. A run that cannot serve is named with its reason and never left
out silently. Nothing that only a judge knows is read, and no world is acted in.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from clew.core.errors import BadInput, ClewError
from clew.core.keys import derive
from clew.core.protocols import Taskset
from clew.core.reading import Record
from clew.core.records import RunRow, action_of
from clew.core.registry import build
from clew.core.values import Task, ToolCall, ToolSpec
from clew.methods.world_model.content_kinds import words_of
from clew.methods.world_model.model_folder import ModelCard
from clew.methods.world_model.prompting import Turn, turn_text
from clew.methods.world_model.tool_files import wire_of
from clew.worlds.judging import world_acts
from clew.worlds.world_asks import open_world

LEAST = 2  # turns of a run that can serve


@dataclass(frozen=True, slots=True)
class Episode:
    """One run. ``first``: what the agent saw before its first action. ``learnt``: of each turn, whether it may be
    learnt from; a call of a tool that the world does not have may not."""

    run: str
    task: str
    world: str
    prompt: str
    first: str
    tools: tuple[ToolSpec, ...]
    turns: tuple[Turn, ...]
    learnt: tuple[bool, ...]

    def system(self, card: ModelCard) -> str:
        """The system text, as a simulated world of this card tells it."""
        return card.system(self.prompt, self.first)

    def before(self, turn: int) -> set[str]:
        """Every word that was told before the answer of a turn: task, first observation, actions and answers."""
        told = [self.prompt, self.first, turn_text(self.turns[turn].action)]
        told += [f"{turn_text(one.action)}\n{one.observation}" for one in self.turns[:turn]]
        return set(words_of("\n".join(told)))


@dataclass(frozen=True, slots=True)
class Read:
    """What was read of runs. ``left_out``: (run, reason) of those that cannot serve. ``foreign``: turns that call a
    tool outside the declared ones."""

    episodes: tuple[Episode, ...]
    left_out: tuple[tuple[str, str], ...]
    foreign: int

    def reasons(self) -> dict[str, int]:
        """How many runs each reason left out."""
        found: dict[str, int] = {}
        for _, why in self.left_out:
            found[why] = found.get(why, 0) + 1
        return found


def of_one_world(read: Read) -> list[Episode]:
    """The episodes of what was read.

    Raises:
        BadInput: there are none, or they are of several worlds.
    """
    if not read.episodes:
        remedy = "Choose runs that acted twice or more in a world."
        raise BadInput("none of these runs can be learnt from", remedy=remedy)
    worlds = {one.world.partition("(")[0] for one in read.episodes}
    if len(worlds) > 1:
        remedy = "Choose those of one world, as in world=shell."
        raise BadInput(f"these runs are of {len(worlds)} worlds: {', '.join(sorted(worlds))}", remedy=remedy)
    return list(read.episodes)


def card_of(episodes: Sequence[Episode], told_tools: bool = True, **how: Any) -> ModelCard:
    """How a model is asked that stands for the world of these episodes; ``how``: further fields of the card.

    Args:
        told_tools: whether the system text holds the tools, where all episodes have the same.
    """
    alike = all(one.tools == episodes[0].tools for one in episodes)
    tools = tuple(wire_of(tool) for tool in episodes[0].tools) if alike else ()
    return ModelCard(world=episodes[0].world, tools=tools, told_tools=bool(told_tools and tools), **how)


def episodes_of(runs: Iterable[Record]) -> Read:
    """The runs that can serve, each once: forks share turns, and count by what is their own path.

    Of a run without a world, as an imported one, the answers of its tools are the observations.
    """
    found, left_out = list[Episode](), list[tuple[str, str]]()
    seen = set[tuple[str, tuple[tuple[str, str], ...]]]()
    for run in runs:
        made = _episode(run)
        if isinstance(made, str):
            left_out.append((run.id, made))
            continue
        content = (made.task, tuple((turn_text(turn.action), turn.observation) for turn in made.turns))
        if content in seen:
            left_out.append((run.id, "the same turns as another run"))
            continue
        seen.add(content)
        found.append(made)
    return Read(tuple(found), tuple(left_out), sum(one.learnt.count(False) for one in found))


def _episode(run: Record) -> Episode | str:
    """A run as an episode, or why it can be none."""
    acts = world_acts(run) or [c for c in run.calls if c.kind == "act" and c.done >= 0 and not c.error]
    if not acts:
        return "no observations"
    if len(acts) < LEAST:
        return f"fewer than {LEAST} turns"
    turns = tuple(Turn(action_of(call), call.text, "", call.terminal) for call in acts)
    opened = next((call.text for call in run.calls if call.kind == "open"), "")
    prompt = str(json.loads(run.row.task).get("prompt", "")) if run.row.task else ""
    return _made(run.id, run.row.task_id, run.row.taskset, prompt, opened, _tools(run.row), turns)


def _made(
    run: str, task: str, world: str, prompt: str, first: str, tools: tuple[ToolSpec, ...], turns: tuple[Turn, ...]
) -> Episode:
    names = {tool.name for tool in tools}
    learnt = tuple(not (names and isinstance(t.action, ToolCall) and t.action.name not in names) for t in turns)
    return Episode(run, task, world, prompt, first, tools, turns, learnt)


def _tools(row: RunRow) -> tuple[ToolSpec, ...]:
    return tools_of(row.taskset, row.task_id) if row.taskset else ()


@lru_cache(maxsize=4096)
def tools_of(world: str, task_id: str) -> tuple[ToolSpec, ...]:
    """The tools that a world declares for a task; none where it is not installed here, or has no such task."""
    try:
        taskset = _taskset(world)
        opened = open_world(taskset, taskset.find(task_id))
        if opened is None:
            return ()
        try:
            return tuple(opened.tools)
        finally:
            opened.close()
    except ClewError:
        return ()


@lru_cache(maxsize=16)
def _taskset(world: str) -> Taskset:
    made: Taskset = build("tasksets", world)
    return made


async def played_episode(taskset: Taskset, task: Task, actions: Iterable[str | ToolCall], name: str = "") -> Episode:
    """What a real world answers to actions, which are performed in one that is opened for this, up to its end.

    Args:
        name: of the episode, where a run has its id.

    Raises:
        BadInput: the taskset has no world, or its actions could not be undone. WorldError: as the world raises it.
    """
    world = open_world(taskset, task)
    if world is None or world.restores == "none":
        told = "has no world" if world is None else "does what cannot be undone"
        raise BadInput(f"{taskset.ref} {told}", remedy="Measure by recorded runs: name them with --runs.")
    try:
        seen, turns = world.observe(), list[Turn]()
        first, tools, account = seen.text, tuple(world.tools), getattr(world, "account", None)
        for action in actions:
            if seen.done:
                break
            answer = world.step(action)
            seen = await answer if inspect.isawaitable(answer) else answer
            turns.append(Turn(action, seen.text, account() if account else "", seen.done))
    finally:
        world.close()
    return _made(name or task.id, task.id, taskset.ref, task.prompt, first, tools, tuple(turns))


def with_states(episode: Episode) -> Episode | None:
    """An episode whose turns say what was true after them, by what the world itself gives an ``account`` of; None where
    it gives none, or does not answer as it was recorded."""
    try:
        taskset = _taskset(episode.world)
        actions = [turn.action for turn in episode.turns]
        made = asyncio.run(played_episode(taskset, taskset.find(episode.task), actions, episode.run))
    except ClewError:
        return None
    told = [(turn.observation, turn.done) for turn in made.turns]
    if told != [(turn.observation, turn.done) for turn in episode.turns] or not all(t.state for t in made.turns):
        return None
    return replace(episode, turns=made.turns)


def held_out(episodes: Sequence[Episode], share: float, seed: int = 0) -> tuple[list[Episode], list[Episode]]:
    """Episodes to learn from and episodes to measure by; all of one task fall on one side.

    Args:
        share: of the tasks that is held out, 0 to below 1. At least one is, where the share is above 0 and there are
            two tasks or more.
    """
    tasks = sorted({one.task for one in episodes})
    random.Random(derive(seed, "held out")).shuffle(tasks)
    n = min(len(tasks) - 1, max(1, round(share * len(tasks)))) if share > 0 and len(tasks) > 1 else 0
    out = set(tasks[:n])
    return [one for one in episodes if one.task not in out], [one for one in episodes if one.task in out]
