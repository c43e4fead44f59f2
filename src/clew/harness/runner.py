"""Runner: agent + taskset + model + store. Collect, fork, replay, resume and judge are its methods."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from clew.core.aio import run_sync
from clew.core.errors import BadInput
from clew.core.protocols import Judge, Model, Taskset, World
from clew.core.records import Annotation, Call, Cursor, Edit, Intervention, RunRow
from clew.core.registry import build
from clew.core.sources import changed, file_of
from clew.core.values import Limits, Sampling, StopReason, Task
from clew.harness.blame import agent_failed
from clew.harness.collecting import Collecting, ended, open_groups
from clew.harness.executors import IN_LOOP, Executor
from clew.harness.fork import forks
from clew.harness.fork.edits import Given, plan
from clew.harness.loading import Agent, agent_ref, load_agent, source_digest
from clew.harness.memory.meaning import Embeds
from clew.harness.memory.recalling import Memories
from clew.harness.run.dispatch import Dispatcher
from clew.harness.run.drive import drive, follow
from clew.harness.run.restore import world_at
from clew.harness.run.spec import Models, OnRun, RunSpec, sampling_of
from clew.harness.toolbox import again, given, recorded, told_of_tools
from clew.harness.tools import Tool, as_tools
from clew.harness.verdicts import verdict
from clew.models.shaping import sampling_with
from clew.models.taps.tap import Tap
from clew.store import Group, Groups, Run, open_store
from clew.store.base import Keeper
from clew.store.owners import owner_name


class Replay(NamedTuple):
    """What a replay proved: every Call issued again, every key equal."""

    run: str
    calls: int
    seconds: float


class Runner:
    """Makes runs and keeps them.

    Args:
        agent: an async function over a LiveRun, or its reference ``module:function``.
        taskset: makes tasks, opens worlds, judges; None for agents that only talk.
        model: the run's default model.
        store: a path, ``:memory:`` or an open store.
        config: keyword arguments of the agent (JSON).
        limits: bounds of each run; a task's own limits go before them.
        sampling: fields of ``Sampling`` every ask starts from.
        tools: what agents may call beside the world: typed Python functions, Tools, or references such as
            ``tools.py:search,add`` and ``mcp:COMMAND ARGUMENTS`` (see ``harness.toolbox``).
        concurrency: how many runs are live at once; fewer where the taskset has an attribute ``max_concurrency``.
        snapshot_every: worlds with snapshots of 1 kB or more keep one every so many acts.
        judge_seconds: how long a verdict may take; a judge that takes longer leaves its run undecided.
        executor: where the runs of collections and forks are driven; default: all in the running event loop. A
            reference, as ``workers(n=4)``, is looked up among ``clew.executors``; close ``Runner.executor`` then.
        embedder: ranks what memories recall by meaning too, beside words; ``models.remote.embedder.Embedder`` is one.
    """

    def __init__(
        self,
        agent: Agent | str,
        taskset: Taskset | None = None,
        model: Model | None = None,
        store: str | Path | Keeper = ":memory:",
        config: Mapping[str, Any] | None = None,
        *,
        limits: Limits | None = None,
        sampling: Mapping[str, Any] | None = None,
        tools: Sequence[Tool | Callable[..., Any] | str] = (),
        concurrency: int = 256,
        snapshot_every: int = 16,
        judge_seconds: float | None = 600.0,
        resolve_model: Callable[[str], Model] | None = None,
        executor: Executor | str = IN_LOOP,
        embedder: Embeds | None = None,
    ) -> None:
        self.agent = load_agent(agent) if isinstance(agent, str) else agent
        self.agent_ref, self.agent_digest = agent_ref(agent), source_digest(self.agent)
        self.taskset, self.model, self.store = taskset, model, open_store(store)
        self.config = dict(config or {})
        self.limits, self.concurrency, self.snapshot_every = limits or Limits(), concurrency, snapshot_every
        self.judge_seconds = judge_seconds
        own = given(tools)
        self.tools, self.kept_tools = as_tools([*getattr(taskset, "functions", ()), *own]), recorded(own)
        self.sampling = dict(sampling or {})
        sampling_with(Sampling(), self.sampling)
        self.owner, self.models = owner_name(), Models(resolve_model)
        self.executor: Executor = build("executors", executor) if isinstance(executor, str) else executor
        self.memories = Memories(self.store, embedder)

    @property
    def spec(self) -> RunSpec:
        """The settings as they are now, frozen: what one collection, fork or replay hands down."""
        names = [field.name for field in fields(RunSpec) if field.default is MISSING]
        spec = RunSpec(**{name: getattr(self, name) for name in names})
        return replace(spec, concurrency=min(spec.concurrency, getattr(self.taskset, "max_concurrency", sys.maxsize)))

    def model_of(self, model: str | Model | None, replay: bool = False) -> Model | None:
        """The run's model, or the one meant by a reference. A replay needs none and never builds one."""
        return self.model if model is None else self.models.of(model, not replay) or self.model

    # ---- collect ---------------------------------------------------------------------------------------------------

    def collect(
        self,
        tasks: Sequence[Task],
        n: int = 8,
        seed: int = 0,
        *,
        model: Model | None = None,
        name: str = "",
        iteration: int = 0,
        on_run: OnRun | None = None,
    ) -> Groups:
        """Run every task ``n`` times, all at once, and judge each run.

        Args:
            seed: run seeds derive from (seed, iteration, task id, member).
            model: instead of the runner's.
            name: names the groups ``name/iteration/task index``; what a stopped collection of that name already has is
                reused, its unfinished runs are resumed.
            on_run: called with each run when it has been judged.

        Raises:
            AgentFailed: every run ended in an error of the agent's code.
        """

        spec = replace(self.spec, model=model or self.model)
        opened = open_groups(spec, tasks, n, seed, name, iteration)

        async def all_groups() -> Groups:
            got = {group.id: group async for group in ended(spec, self.executor, opened, on_run)}
            return Groups([got[it.group.id] for it in opened])

        groups = run_sync(all_groups())
        if groups.runs and all(run.stop is StopReason.AGENT_ERROR for run in groups.runs):
            raise agent_failed(groups.runs, f"all {len(groups.runs)} runs")
        return groups

    async def stream(
        self, tasks: Sequence[Task], n: int = 8, seed: int = 0, **options: Unpack[Collecting]
    ) -> AsyncIterator[Group]:
        """As ``collect``, giving each group when its last run has ended.

        Several streams of one runner may be open at once, each with its own model.
        """
        spec = replace(self.spec, model=options.get("model") or self.model)
        opened = open_groups(spec, tasks, n, seed, options.get("name", ""), options.get("iteration", 0))
        async with aclosing(ended(spec, self.executor, opened, options.get("on_run"))) as groups:
            async for group in groups:
                yield group

    def row(self, task: Task, *, meta: str = "", **fields: Any) -> RunRow:
        """The row of a new run; ``meta`` names its collection, ``fields`` of RunRow go before all others."""
        return self.spec.row(task, name=meta, **fields)

    # ---- fork ------------------------------------------------------------------------------------------------------

    def fork(
        self,
        run: Run | str,
        at: Cursor | int | None = None,
        n: int = 1,
        *,
        reply: Given | None = None,
        prefix: str | Sequence[int] | None = None,
        result: str | Mapping[str, Any] | None = None,
        rewrite: Mapping[Any, Any] | None = None,
        world: Sequence[str] | bytes | None = None,
        model: str | Model | None = None,
        sampling: Mapping[str, Any] | None = None,
        tap: Tap | Sequence[Tap] | None = None,
        memory: Mapping[str, Any] | None = None,
        seed: str | int | None = None,
        limits: Limits | None = None,
        keep: bool = False,
        edits: Sequence[Edit] = (),
        on_run: OnRun | None = None,
    ) -> Group:
        """Run on from a place in a recorded run, with something changed there or nothing.

        The Calls below the place are shared by reference; the agent is started afresh, fed their results, and goes
        live. A place inside a child run forks each ancestor at its spawn; the group then holds the outermost forks.

        Args:
            at: ``run.at(...)``, a Call's number, or None where ``rewrite`` says it.
            n: how many forks; siblings differ in their seeds.
            reply: the whole reply of the ask at the place, as text, Message or token ids.
            prefix: its first tokens (ids) or text; the rest is sampled.
            result: the observation of the act at the place, as text or fields of Observation.
            rewrite: {Node, key, index or (conversation, index): new text, Message or None} for what the agent said.
            world: actions to perform (or a snapshot to restore) in the world before going live.
            model: the run's default model from the place on.
            sampling: fields of Sampling from the place on.
            tap: writes into hidden states from the place on, in each request of it; () ends those of the forked run.
            memory: ``{"without": [item ids]}`` or ``{"without": "all"}``: recalls from the place on do without these,
                by default from the first that gave one of them.
            seed: ``same``, ``fresh`` or a number. Default: ``same`` where something is changed, else ``fresh``.
            limits: bounds of the forks; default: those of the run, what it has used up counted.
            keep: after the change, force the later replies as they were, by ordinal, where they still come up.

        Raises:
            BadInput: the place and the change do not fit. CannotRestore: the world cannot be brought back there.
        """
        view = Run(self.store, run) if isinstance(run, str) else run
        if isinstance(at, Cursor) and at.run != view.id:
            view = Run(self.store, at.run)
        if model is not None and not isinstance(model, str):
            model = self.models.add(model)
        later: dict[str, Any] = {"world": world, "model": model, "sampling": sampling, "tap": tap, "memory": memory}
        seq, changes = plan(
            view, at, reply=reply, prefix=prefix, result=result, rewrite=rewrite, edits=edits, keep=keep, **later
        )
        changed = any(v is not None for v in (reply, result, rewrite, *later.values())) or bool(edits)
        mode = seed if seed is not None else "same" if changed else "fresh"
        if view.row.spawned_by:
            return self._fork_child(view, seq, n, changes, mode, on_run)
        return run_sync(forks.fork(self.spec, view, seq, n, changes, mode, on_run, limits, self.executor))

    def _fork_child(
        self, child: Run, seq: int, n: int, changes: Intervention, mode: str | int, on_run: OnRun | None
    ) -> Group:
        """Fork a child run: its parent is forked at the spawn, with the child's fork as what the spawn then starts."""
        spawn = Cursor.parse(child.row.spawned_by)
        parent = Run(self.store, spawn.run)
        if not any(call.kind == "spawn" for call in self.store.calls(parent.id, spawn.seq, spawn.seq + 1)):
            told = f"run {child.id} is what a program asked while it worked in run {parent.id}, which did not start it"
            raise BadInput(told, remedy="Fork that run instead, or start the program again.")
        runner = self if parent.agent == self.agent_ref else Runner.of(self.store, parent, model=self.model)
        edit = Edit("child", spawn.seq, {"run": child.id, "seq": seq, "changes": changes.to_json(), "mode": mode})
        return runner.fork(parent, Cursor(parent.id, spawn.seq), n, edits=[edit], seed=mode, on_run=on_run)

    async def world_at(
        self, task: Task, calls: Sequence[Call], changes: Intervention, *, resuming: bool = False, redo: bool = False
    ) -> World | None:
        """The world in the state it had after ``calls``; see ``restore.world_at``."""
        return await world_at(self.spec, task, calls, changes, resuming=resuming, redo=redo)

    def task_of(self, row: RunRow) -> Task:
        """The run's Task, with the judge's material where its taskset still has it."""
        return self.spec.task_of(row)

    # ---- replay, resume, judge -------------------------------------------------------------------------------------

    def replay(self, run: Run | str) -> Replay:
        """Follow a record from its first Call to its last, touching neither model nor world.

        Raises:
            ReplayDiverged: the agent asks for something else than recorded, or the record was altered.
        """
        spec, row = self.spec, self.store.row(run if isinstance(run, str) else run.id)
        began = time.perf_counter()

        async def go() -> int:
            async with Dispatcher(spec.store, spec.owner, spec.concurrency) as dispatch:
                return await follow(spec, dispatch, row, self.task_of(row))

        calls = run_sync(go())
        return Replay(row.id, calls, time.perf_counter() - began)

    def resume(self, run: Run | str, *, in_doubt: str = "stop", on_run: OnRun | None = None) -> Run:
        """Go on with a run whose process died: what is recorded is fed back, the rest is made.

        Args:
            in_doubt: ``stop`` or ``redo`` effects that were begun, cannot be undone and never answered.

        Raises:
            LeaseHeld: another live process writes the run. InDoubt: see ``in_doubt``.
        """
        spec, row = self.spec, self.store.row(run if isinstance(run, str) else run.id)

        async def go() -> Run:
            async with Dispatcher(spec.store, spec.owner, spec.concurrency) as dispatch:
                return await drive(spec, dispatch, row, self.task_of(row), on_run, redo=in_doubt)

        return run_sync(go())

    def judge(self, runs: Sequence[Run], judge: Judge | None = None) -> list[Annotation]:
        """Judge finished runs (again) from their records. Default: the taskset's own judge."""

        spec = self.spec

        async def go() -> list[Annotation]:
            return [row for run in runs for row in await verdict(spec, run, self.task_of(run.row), None, judge)]

        rows = run_sync(go())
        self.store.annotate(rows)
        self.store.commit()
        return rows

    @classmethod
    def of(cls, store: str | Path | Keeper, run: Run | str, *, model: Model | None = None, **options: Any) -> Runner:
        """The runner that made a stored run, rebuilt from its record; ``model`` replaces the recorded one."""

        keeper = open_store(store)
        row = keeper.row(run if isinstance(run, str) else run.id)
        known = json.loads(row.settings)
        taskset = build("tasksets", row.taskset) if row.taskset else None
        options.setdefault("limits", Limits(**known.get("limits", {})))
        options.setdefault("sampling", sampling_of(known))
        options.setdefault("snapshot_every", known.get("snapshot_every", 16))
        options.setdefault("tools", again(known.get("tools", ()), lambda: told_of_tools(keeper, row.id)))
        runner = cls(row.agent, taskset, model, keeper, json.loads(row.config or "{}"), **options)
        agent_changed = row.agent_digest and runner.agent_digest not in ("", row.agent_digest)
        names = changed(known.get("sources", {}))
        if agent_changed:
            names = [row.agent, *(name for name in names if name != file_of(row.agent))]
        for name in names:
            warnings.warn(f"the source of {name} changed since run {row.id} was made; replay will tell", stacklevel=2)
        if model is None and row.model:
            try:
                runner.model = runner.models.of(row.model)
            except BadInput as error:  # a replay, and a fork whose replies are given, need none
                runner.models.missing = error
        return runner
