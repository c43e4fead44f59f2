"""A model of a world left to itself: actions played in the world that it makes up, then held against the real one.

`clew world eval --against` calls it. An error early on is carried along here, which no measure of single answers shows:
how long a made-up world stays on the real one's way is its half-life. The real worlds are opened for this and closed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from clew.core.errors import BadInput
from clew.core.protocols import Model, Taskset
from clew.core.values import Observation, StopReason, Task, ToolCall
from clew.harness import LiveRun, Runner
from clew.methods.world_model.fidelity import Acted, Compared
from clew.methods.world_model.observing.episodes import Episode, played_episode
from clew.methods.world_model.run_check import Checked, check, half_life, together

NO_ANSWER = "no answer of the model"
Actions = Mapping[str, Sequence[str | ToolCall]]


class Drift(NamedTuple):
    """Free-running episodes beside the real world.

    checked: each episode, turn by turn. failed: reason -> episodes that ended without an answer. turns: the length of
    the longest. An episode that failed counts as having left the real world's way at that turn.
    """

    checked: list[Checked]
    failed: dict[str, int]
    turns: int

    def surviving(self, turn: int) -> tuple[int, int]:
        """Of the episodes that are as long: those still on the real world's way after ``turn`` turns, and all."""
        n = sum(len(one.turns) >= turn for one in self.checked)
        return (round(together(self.checked, turn) * n) if n else 0), n

    @property
    def half_life(self) -> int | None:
        """The first turn after which at most half still agree; None where more do as far as they go."""
        return half_life(self.checked)


async def actor(run: LiveRun, plans: Mapping[str, Sequence[Any]]) -> None:
    """Performs given actions, those of the run's task; asks no model.

    Args:
        plans: task id -> actions, a tool call as the list of its id, name and arguments.
    """
    for action in plans.get(run.task.id, ()):
        if run.done:
            return
        await run.act(ToolCall(*action) if isinstance(action, (list, tuple)) else action)


def drift(
    simulated: Taskset,
    real: Taskset,
    tasks: Sequence[Task],
    actions: Actions,
    model: Model,
    told: Callable[[], None] = lambda: None,
) -> Drift:
    """Play actions in a simulated world, and compare each turn with the real one.

    Args:
        actions: of each task, by its id. model: who answers for the simulated world. told: called after each episode.
    """
    plans = {name: [list(a) if isinstance(a, ToolCall) else a for a in plan] for name, plan in actions.items()}
    runner = Runner(actor, simulated, model, config={"plans": plans}, resolve_model=lambda ref: model)
    try:
        groups = runner.collect(list(tasks), n=1, on_run=lambda run: told())
        failed: dict[str, int] = {}
        checked = []
        for run in groups.runs:
            one = asyncio.run(check(run, real))
            if run.stop is not StopReason.DONE and len(one.turns) < len(plans[run.task_id]):
                why = NO_ANSWER if run.stop is StopReason.WORLD_ERROR else str(run.stop)
                failed[why] = failed.get(why, 0) + 1
                one = _left(one)
            checked.append(one)
    finally:
        runner.store.close()
    return Drift(checked, failed, max((len(one.turns) for one in checked), default=0))


def _left(one: Checked) -> Checked:
    """An episode that ended without an answer: it has left the real world's way at the turn that was not answered."""
    missing = Compared(Acted("", ""), Observation("(the model gave no answer)"), b"", False)
    return one._replace(acts=[*one.acts, *one.acts[-1:]], turns=[*one.turns, missing])


def demonstrated(real: Taskset, tasks: Sequence[Task], seed: int = 0, noise: float = 0.3) -> dict[str, list[Any]]:
    """Actions to play, by task id, from a taskset that demonstrates its tasks.

    Args:
        noise: share of slips, where the taskset makes any.

    Raises:
        BadInput: the taskset demonstrates nothing.
    """
    show: Callable[..., Sequence[Any]] | None = getattr(real, "demonstrate", None)
    if show is None:
        raise BadInput(f"{real.ref} demonstrates nothing", remedy="Name recorded runs, whose actions are played.")
    how = {"noise": noise} if "noise" in inspect.signature(show).parameters else {}
    return {task.id: list(show(task, seed=seed, **how)) for task in tasks}


def real_episodes(real: Taskset, tasks: Sequence[Task], actions: Actions) -> list[Episode]:
    """What the real world answers to the actions."""

    async def play() -> list[Episode]:
        return [await played_episode(real, task, actions[task.id]) for task in tasks]

    return [one for one in asyncio.run(play()) if one.turns]
