"""The reward of plans in training: 0 where there is no plan, .5 where the answer is wrong, 1 where it is right.

``--reward plan`` puts ``Planned`` around the world or the data of a line (arXiv 2606.21228; specs/E166 section 4.2).
It reads the record alone, and never repairs a plan: whoever rewards what was almost a plan teaches nonsense.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clew.core.errors import BadInput, Undecided
from clew.core.protocols import Taskset, World
from clew.core.reading import Record
from clew.core.registry import build, make_ref
from clew.core.values import Task
from clew.harness.run.asks import of_run

REFUSED = "no plan"  # how the notes of ``orchestrator`` begin that say so


def planned(run: Record) -> bool:
    """Whether the leading model of a run of ``orchestrator`` wrote plans alone: no reply was refused, and a worker was
    asked. A reply that was refused counts although a second one was a plan."""
    asked = any(call.kind == "ask" and not of_run(call) for call in run.calls)
    return asked and not any(call.kind == "note" and call.action.startswith(REFUSED) for call in run.calls)


def plan_reward(run: Record, answer: float) -> float:
    """0 where there is no plan, else half of 1 + ``answer``, the answer's own reward in [0, 1]."""
    return 0.5 + 0.5 * answer if planned(run) else 0.0


class Planned:
    """A world, or data, whose runs are rewarded for their plans; its own reward becomes ``answer`` in the verdict.

    Args:
        world: the world or data, or a reference to them. Their reward lies in [0, 1].

    Raises:
        UnknownName: there is no such world.
    """

    def __init__(self, world: str | Taskset) -> None:
        self.inner: Taskset = build("tasksets", world) if isinstance(world, str) else world
        self.ref = make_ref("planned", {"world": self.inner.ref})

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # a copy that is being made has none yet
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __repr__(self) -> str:
        return self.ref

    def sample(self, n: int, seed: int = 0, split: str = "train") -> list[Task]:
        return self.inner.sample(n, seed, split)

    def find(self, task_id: str) -> Task:
        return self.inner.find(task_id)

    def open(self, task: Task) -> World:
        return self.inner.open(task)

    async def judge(self, task: Task, run: Record, world: World | None) -> Mapping[str, float | None]:
        """The world's verdict under the reward of plans.

        Raises:
            Undecided: the world is. BadInput: its reward is not within [0, 1].
        """
        found = await self.inner.judge(task, run, world)
        answer = found.get("reward")
        if answer is None:
            said = {name: value for name, value in found.items() if value is not None}
            raise Undecided(f"{self.inner.ref} gave no reward", said)
        if not 0 <= answer <= 1:
            told = f"{self.inner.ref} gave the reward {answer:g}, and plans are rewarded for answers within 0 and 1"
            raise BadInput(told, remedy="Scale the world's reward, or train without --reward plan.")
        return {**found, "reward": plan_reward(run, answer), "answer": answer}
