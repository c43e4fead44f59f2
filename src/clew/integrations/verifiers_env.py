"""Clew worlds as environments of `verifiers`: a plug-in module exports the two classes that ``environment`` makes.

Written for the API of verifiers 0.4 (``verifiers.v1``). Its harness asks the policy and keeps its trace; each episode
is also a run of a Clew agent, whose model is that policy, judged by the taskset and filed in a store. It must never
sample by itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from clew.core.errors import BadInput, MissingExtra, ModelError
from clew.core.protocols import Taskset
from clew.core.records import Request
from clew.core.registry import build
from clew.core.values import Task
from clew.harness import Runner
from clew.models.fakes import Scripted
from clew.store import Run
from clew.store.base import Keeper

try:
    import verifiers.v1 as _verifiers
except ImportError as error:
    remedy = "Run `pip install verifiers==0.4.0`, in an environment of its own: it pins packages."
    raise MissingExtra("verifiers is not installed", remedy=remedy) from error

vf: Any = _verifiers  # no types here: its generic classes are made at run time
HERE = "clew"  # under this name a trace's `info` holds the id of its run, and the verdict


class ClewData(vf.TaskData):  # type: ignore[misc]
    """What a task is to verifiers: the id by which the Clew taskset finds it."""

    clew_task: str


class ClewTask(vf.Task[ClewData]):  # type: ignore[misc]
    """A Clew task. The reward is what the taskset's judge said of the run; its other figures are metrics."""

    @vf.reward  # type: ignore[untyped-decorator]
    async def reward(self, trace: Any) -> float:
        """As judged. An undecided run, or one that was cut before it was judged, has none and counts as 0."""
        return float(trace.info.get(HERE, {}).get("reward") or 0.0)

    @vf.metric  # type: ignore[untyped-decorator]
    async def steps(self, trace: Any) -> float:
        """Actions performed in the world."""
        return float(trace.info.get(HERE, {}).get("steps", 0))


def environment(
    taskset: Taskset | str,
    *,
    agent: str | Callable[..., Any] = "clew.harness.agents:player",
    config: Mapping[str, Any] | None = None,
    store: str | Path | Keeper = ".clew/store.db",
    tasks: int = 256,
    seed: int = 0,
    split: str = "train",
    prompt: str = "",
) -> tuple[type, type]:
    """The ``Taskset`` and the ``Env`` class of a Clew taskset, for a module that `vf-eval` or prime-rl names.

    Args:
        taskset: or its reference, as ``household(rooms=3)``.
        agent: as ``Runner`` takes it; it must keep one conversation that only grows, as ``player`` does.
        config: keyword arguments of the agent.
        store: where the runs are kept: a path, ``:memory:`` or an open store.
        tasks: how many tasks of the split the taskset has. seed: which ones.
        prompt: system prompt of every episode.

    Raises:
        UnknownName: no taskset has that name. BadInput: the taskset cannot be made, or has too few tasks.
    """
    made: Taskset = build("tasksets", taskset) if isinstance(taskset, str) else taskset
    drawn = made.sample(tasks, seed, split)
    runner = Runner(agent, made, None, store, config)

    class ClewTasks(vf.Taskset[ClewTask, vf.TasksetConfig]):  # type: ignore[misc]
        def load(self) -> Iterator[ClewTask]:
            for task in drawn:
                about = {"name": task.id, "clew_task": task.id}
                yield ClewTask(ClewData(**about, system_prompt=prompt or None), self.config.task)

    class ClewEnv(vf.SingleAgentEnv):  # type: ignore[misc]
        async def run(self, task: ClewTask, agents: Any) -> None:
            async with _policy(agents.agent, task) as (model, trace):
                run = await _played(runner, made.find(task.data.clew_task), model)
                steps = sum(call.kind == "act" for call in run.calls)
                trace.info[HERE] = {"run": run.id, "reward": run.reward, "steps": steps, "stop": run.stop or ""}

    return ClewTasks, ClewEnv


@asynccontextmanager
async def _policy(agent: Any, task: ClewTask) -> AsyncIterator[tuple[Scripted, Any]]:
    """The agent of an environment as a model that is asked by turns, and the trace of what it says."""
    async with agent.interaction(task) as interaction:
        turns = 0

        async def said(request: Request) -> str:
            nonlocal turns
            asked = sum(node.message.role == "assistant" for node in request.path)
            if asked != turns or request.path[-1].message.role != "user":
                told = "the agent began another conversation, changed one, or uses tools"
                raise BadInput(told, remedy="Give an agent that keeps one conversation which only grows, as `player`.")
            turns += 1
            segment = await interaction.turn(request.path[-1].message.text)
            if segment.terminated:
                told = interaction.trace.stop_condition or "an error"
                raise ModelError(f"verifiers ended the episode: {told}", remedy="Raise its limits, or see its trace.")
            return str(segment.last_reply)

        yield Scripted({"": said}), interaction.trace


async def _played(runner: Runner, task: Task, model: Scripted) -> Run:
    """One run, judged."""
    [run] = [run async for group in runner.stream([task], 1, model=model) for run in group]
    return run
