"""What all runs of one collection share: its settings, models and store, frozen; and what one run may use.

``Runner`` makes a RunSpec at the start of each collection, fork or replay and hands it down. Code below reads the spec
and never changes it: a child run, a continuation or a collection with another model gets a copy from
``dataclasses.replace``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from clew.core.errors import BadInput, UnknownName
from clew.core.protocols import Model, Taskset
from clew.core.records import Call, RunRow, Setup
from clew.core.sources import digests
from clew.core.values import Completion, Limits, StopReason, Task
from clew.harness.loading import Agent
from clew.harness.memory.recalling import Memories
from clew.harness.toolbox import references
from clew.harness.tools import Tool
from clew.store.base import Keeper
from clew.store.names import new_id
from clew.store.run import Run

OnRun = Callable[[Run], None]
"""Called with each run when it has ended and been judged."""


class Models:
    """The models that runs name by reference, each built once, and the Setups of their answers, one object each."""

    def __init__(self, resolve: Callable[[str], Model] | None = None) -> None:
        self._resolve = resolve
        self.missing: BadInput | None = None  # why the recorded model is not to be had here
        self._built: dict[str, Model] = {}
        self._setups: dict[tuple[object, ...], Setup] = {}

    def of(self, model: str | Model, build: bool = True) -> Model | None:
        """The model itself, or the one that a reference means; None where it would have to be built and must not be.

        Raises:
            UnknownName: no model is meant.
        """
        if not isinstance(model, str):
            self._built.setdefault(model.ref, model)
            return model
        if model not in self._built and build:
            if self._resolve is None:
                from clew.models import load  # the clients of all providers: only where one is named

                self._resolve = load
            self._built[model] = self._resolve(model)
        return self._built.get(model)

    def add(self, model: Model) -> str:
        """Let the reference of ``model`` mean this object; returns the reference."""
        self._built[model.ref] = model
        return model.ref

    def built(self) -> list[Model]:
        return list(self._built.values())

    def setup(self, asked: Setup, result: Completion) -> Setup:
        """How an ask was answered: what was asked, completed by the version, sampling and name of the answer."""
        who = (asked.model, asked.weights, result.version, result.model)
        key = (*who, asked.asked, result.in_force, asked.tools and id(asked.tools))
        found = self._setups.get(key)
        if found is None:
            in_force = result.in_force or asked.asked
            found = asked._replace(version=result.version, in_force=in_force, served_by=result.model)
            self._setups[key] = found
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What all runs of one collection share.

    ``judge_seconds`` bounds each verdict (None does not), and with ``judge_thread`` each judge computes in a thread of
    its own, where it cannot stop the loop. ``kept_tools`` is what the record keeps of the tools, as
    ``toolbox.recorded`` gives it. Arguments of ``Runner`` explain the other settings.
    """

    agent: Agent
    agent_ref: str
    agent_digest: str
    config: Mapping[str, Any]
    taskset: Taskset | None
    model: Model | None
    tools: Mapping[str, Tool]
    kept_tools: Sequence[str | Mapping[str, Any]]
    sampling: Mapping[str, Any]
    limits: Limits
    snapshot_every: int
    judge_seconds: float | None
    store: Keeper
    owner: str
    concurrency: int
    models: Models
    memories: Memories
    judge_thread: bool = False

    def row(self, task: Task, *, name: str = "", **fields: Any) -> RunRow:
        """The row of a new run of ``task`` in the collection ``name``; ``fields`` of RunRow go before all others."""
        known = {"sampling": self.sampling, "limits": asdict(self.limits), "snapshot_every": self.snapshot_every}
        if self.kept_tools:
            known["tools"] = self.kept_tools
        taskset, model = (getattr(it, "ref", "") for it in (self.taskset, self.model))
        if sources := digests([self.agent_ref, taskset, model, *references(self.kept_tools)]):
            known["sources"] = sources
        told = task_json(task.id, task.prompt, task.data, task.limits)
        row = RunRow(
            id=new_id(),
            agent=self.agent_ref,
            taskset=taskset,
            model=model,
            task_id=task.id,
            task=json.dumps(told, ensure_ascii=False, allow_nan=False),
            agent_digest=self.agent_digest,
            config=json.dumps(self.config, ensure_ascii=False, sort_keys=True, allow_nan=False),
            created=time.time(),
            settings=json.dumps({**known, **({"name": name} if name else {})}, sort_keys=True),
        )
        return row._replace(**fields)

    def task_of(self, row: RunRow) -> Task:
        """The run's Task, with the judge's material where its taskset still has it."""
        if self.taskset is not None:
            try:
                return self.taskset.find(row.task_id)
            except UnknownName:
                pass
        if not row.task:
            return Task(row.task_id, "")
        data = json.loads(row.task)
        return Task(data["id"], data["prompt"], data["data"], Limits(**data["limits"]))


class Budget:
    """What one run has used of its limits. ``prior``: seconds that its recorded Calls took."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.prior = limits, 0.0
        self._tokens, self._cost, self._started = 0, 0.0, time.monotonic()

    def spend(self, call: Call) -> None:
        self._tokens += call.usage.prompt - call.usage.cached + call.usage.completion
        self._cost += call.cost

    def deadline(self) -> float | None:
        """Seconds that the time limit leaves."""
        if self.limits.seconds is None:
            return None
        return max(0.0, self.limits.seconds - self.prior - (time.monotonic() - self._started))

    def reached(self, steps: int) -> StopReason | None:
        """The limit that is reached after so many steps; None where there is room."""
        limits = self.limits
        if limits.steps is not None and steps >= limits.steps:
            return StopReason.STEP_LIMIT
        if limits.tokens is not None and self._tokens >= limits.tokens:
            return StopReason.TOKEN_LIMIT
        if limits.cost is not None and self._cost >= limits.cost:
            return StopReason.COST_LIMIT
        return StopReason.TIME_LIMIT if self.deadline() == 0 else None


class Specified(Protocol):
    """The Runner as code below it sees it."""

    @property
    def spec(self) -> RunSpec: ...


def sampling_of(known: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of Sampling from JSON, where a tuple is a list."""
    return {k: tuple(v) if k == "stop" else v for k, v in known.get("sampling", {}).items()}


def task_json(task_id: str, prompt: str, data: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """The part of a Task that may be recorded."""
    return {
        "id": task_id,
        "prompt": prompt,
        "data": dict(data),
        "limits": {k: getattr(limits, k) for k in ("steps", "tokens", "seconds", "cost")},
    }
