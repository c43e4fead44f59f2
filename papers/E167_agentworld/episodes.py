"""The runs of the experiment: demonstrations with slips, what worlds answer to them, and what an answer depends on.

Every tier takes its episodes here. Which earlier actions an answer depends on is found out in the real world, by
leaving them out one at a time; no model is asked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from clew.core.keys import derive
from clew.core.protocols import Taskset, World
from clew.core.registry import build
from clew.core.values import Task
from clew.methods.world_model.observing.closed_loop import demonstrated, real_episodes
from clew.methods.world_model.observing.commonest import first_word
from clew.methods.world_model.observing.episodes import Episode
from clew.methods.world_model.prompting import turn_text
from clew.worlds.shell.shell_errands import WORDS
from clew.worlds.world_asks import open_world

NOISE = 0.5  # share of slips in a demonstration
TURNS = 12  # of an episode, at most
DEEP = 3  # earlier actions that an answer depends on, or more
UNCHAINED = (("mkdir", "cd"), ("rm", "cat"))
"""Two commands that never follow each other in what a model of the shell learns from, in this order."""


def taskset(ref: str) -> Taskset:
    """The tasks of a world."""
    made: Taskset = build("tasksets", ref)
    return made


def drawn(ref: str, n: int, seed: int, split: str = "train", notes: float = 0.0) -> list[Episode]:
    """``n`` demonstrations with what the world answered up to turn ``TURNS``, and its accounts of the state.

    Args:
        notes: chance that a note follows an action: words that the shell repeats.
    """
    real = taskset(ref)
    tasks = real.sample(n, seed=seed, split=split)
    plans = demonstrated(real, tasks, seed, NOISE)
    noted = {name: _with_notes(plan[:TURNS], notes, derive(seed, "notes", name)) for name, plan in plans.items()}
    return real_episodes(real, tasks, noted)


def _with_notes(plan: list[str], share: float, seed: int) -> list[str]:
    rng, out = random.Random(seed), list[str]()
    for action in plan:
        out.append(action)
        if rng.random() < share:
            out.append(f"echo {' '.join(rng.choice(WORDS) for _ in range(4))}")
    return out


def without_accounts(episodes: Iterable[Episode]) -> list[Episode]:
    """The same without the world's accounts, as stored runs have them: a model that learns these does not think."""
    return [replace(one, turns=tuple(turn._replace(state="") for turn in one.turns)) for one in episodes]


def verbs(one: Episode) -> list[str]:
    """The first word of each action; "" of an empty one."""
    return [first_word(turn_text(turn.action)) for turn in one.turns]


def chained(one: Episode) -> list[bool]:
    """Of each turn, whether it and the one before are a pair of ``UNCHAINED``."""
    return [False, *(pair in UNCHAINED for pair in pairwise(verbs(one)))][: len(one.turns)]


def to_learn(ref: str, n: int, seed: int, changed: Callable[[Episode], Episode] = lambda one: one) -> list[Episode]:
    """``n`` episodes of the split train in which no pair of ``UNCHAINED`` occurs.

    Args:
        changed: what becomes of each before it is looked at.
    """
    found = [one for one in map(changed, drawn(ref, n + n // 3, seed)) if not any(chained(one))]
    return found[:n]


def to_measure(ref: str, n: int, more: int = 0, seed: int = 1) -> list[Episode]:
    """Episodes of the split test: ``n`` as they come, and of ``more`` further ones those that hold a pair of
    ``UNCHAINED`` or an answer that depends on ``DEEP`` actions, up to the last such turn. Equal for every training."""
    everything, real = drawn(ref, n + more, seed, "test"), taskset(ref)
    cut = []
    for one in everything[n:]:
        rare = [held or depth >= DEEP for held, depth in zip(chained(one), depths(real, one), strict=True)]
        if any(rare):
            end = len(rare) - rare[::-1].index(True)
            cut.append(replace(one, turns=one.turns[:end], learnt=one.learnt[:end]))
    return [*everything[:n], *cut]


def depths(real: Taskset, one: Episode) -> list[int]:
    """Of each turn, how many of the earlier actions its answer depends on: left out alone, they change it.

    -1 where no single one does, and the answer is still another than at the start: then several together do.
    """
    task, actions = real.find(one.task), [turn.action for turn in one.turns]
    out = []
    for i, turn in enumerate(one.turns):
        told = _last_answer(real, task, actions[: i + 1])
        assert told == turn.observation
        alone = [_last_answer(real, task, [*actions[:j], *actions[j + 1 : i + 1]]) != told for j in range(i)]
        moved = sum(alone) or -int(_last_answer(real, task, [actions[i]]) != told)
        out.append(moved)
    return out


def _last_answer(real: Taskset, task: Task, actions: Sequence[object]) -> str:
    """What a new world says to the last of some actions; "" where it is over before."""
    world: World | None = open_world(real, task)
    assert world is not None
    try:
        seen = world.observe()
        for i, action in enumerate(actions):
            if seen.done:
                return ""
            seen = world.step(action)  # type: ignore[arg-type,assignment]
            if i + 1 == len(actions):
                return seen.text
    finally:
        world.close()
    return ""
