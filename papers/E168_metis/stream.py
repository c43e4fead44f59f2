"""A stream of errands played with a memory, and what is counted of it: most tiers of E168 call it."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any

from clew.core.values import Task
from clew.worlds.apps import Apps
from papers.E168_metis.errands import Played, bare, tasks_of
from papers.E168_metis.mind import NEVER, Mind, Way
from papers.E168_metis.shelf import BareShelf
from papers.experiment import Line

TASKS = 200
STREAMS = {40: 1.1, 150: 1.0}  # families -> exponent: head-heavy, long tail
METIS = Way(codifier="pattern", theta=3)
WAYS: dict[str, Way] = {
    "none": Way(text=False),
    "text": Way(),
    "code, ungated, trajectories": Way(text=False, codifier="trajectory", theta=0),
    "text + eager trajectory tools": Way(codifier="trajectory", theta=0),
    "metis 3, trajectory codifier": Way(codifier="trajectory", theta=3),
    "ski": METIS._replace(ski=True),
    **{f"metis {theta:g}": METIS._replace(theta=theta) for theta in (0.0, 1.0, 2.0, 3.0, 5.0, 8.0)},
}


@lru_cache(maxsize=64)
def tasks(families: int, zipf: float, seed: int, n: int, drift: int = 0) -> tuple[Apps, tuple[Task, ...]]:
    """The world of a seed, and its stream."""
    taskset = Apps(families, zipf, seed, drift)
    return taskset, tuple(tasks_of(taskset, seed, n))


def lived(way: Way, families: int, zipf: float, seed: int, n: int = TASKS, drift: int = 0) -> tuple[Mind, list[Played]]:
    """A memory after a stream, and the tasks as they were played."""
    taskset, drawn = tasks(families, zipf, seed, n, drift)
    mind, played = Mind(way, taskset, BareShelf(), seed), list[Played]()
    for task in drawn:
        played.append(bare(taskset, task, mind.attend, seed))
        mind.learn(played[-1])
    return mind, played


def told(mind: Mind, played: list[Played]) -> Line:
    """What is counted of a stream.

    success: a digit a task. turns: mean. The rest are sums over the stream: tokens of the executor and of each part of
    the memory; tools built, admitted, admitted with a planted flaw, never called, and taken back; what tools answered
    with, and whether each None was charged and fallen through (P9). plans: of each, tasks that it was selected for,
    those of them before it had a tool, tools built, executor tokens of all tasks of its kind since it is there, tokens
    of building at price 1.
    """
    out = [one.outcome for one in played]
    admitted = [tool for tool in mind.tools if tool.item]
    refused = [one for one in played if one.outcome.refused]
    built, tokens = Counter(id(tool.plan) for tool in mind.tools), Counter[int]()
    for tool in mind.tools:
        tokens[id(tool.plan)] += tool.draft.cost.tokens
    line: dict[str, Any] = {
        "success": "".join(str(int(one.reward)) for one in played),
        "turns": round(sum(o.turns for o in out) / len(out), 4),
        "executor": sum(o.tokens for o in out),
        **{part: cost.tokens for part, cost in mind.spent._asdict().items() if part != "executor"},
        "built": len(mind.tools),
        "tools": len(admitted),
        "flawed": sum(bool(tool.bug) for tool in admitted),
        "unused": sum(not tool.used for tool in admitted),
        "retired": sum(tool.state == "retired" for tool in mind.tools),
        "by_tool": sum(bool(o.tool) for o in out),
        "tool_tokens": sum(o.tokens for o in out if o.tool),
        "plan_tokens": sum(mind.by_text),
        "none": sum(len(o.refused) for o in out),
        "through": sum(bool(one.outcome.tool) or own(one) > 0 or one.outcome.turns >= 14 for one in refused),
        "refused": len(refused),
        "charged": all(one.outcome.turns == own(one) + tried(one) for one in played),
        "plans": {
            f"{app} {topic}": [p.uses, p.before, built[id(p)], p.tokens, tokens[id(p)]]
            for (app, topic), p in mind.plans.items()
        },
    }
    return line


def own(played: Played) -> int:
    """Calls that the player itself made."""
    return played.outcome.calls - played.inside


def tried(played: Played) -> int:
    """Tools that were called."""
    return len(played.outcome.refused) + bool(played.outcome.tool)


__all__ = ["METIS", "NEVER", "STREAMS", "TASKS", "WAYS", "lived", "tasks", "told"]
