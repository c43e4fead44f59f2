"""The training loop: collect runs, assign credit, build rows, step the weights; named, stoppable, and resumable.

`clew train` and experiments make a ``Training`` and iterate over ``run``. In steady mode a resumed training ends with
the same bits. The loop never samples again what the store already holds.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from clew.core.errors import BadInput
from clew.core.keys import derive
from clew.core.protocols import Scores, Tracker
from clew.core.records import LossRow, Report
from clew.core.sources import file_of
from clew.core.values import Task
from clew.fit import checkpoint, schedules
from clew.fit.trainer import StepReport, Trainer
from clew.harness import Runner
from clew.harness.trees import grow
from clew.store import Groups
from clew.store.address import beside
from clew.store.run import sampled
from clew.train import begun, minibatches
from clew.train.ahead import Ahead
from clew.train.drafters.refresh import Drafting
from clew.train.pushing import Pushing
from clew.train.rows import Annotated, reference, rows

Credit = Callable[[Groups], Annotated]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a training does; recorded, and compared when it is taken up again.

    Every iteration draws ``tasks`` fresh tasks and runs each ``rollouts`` times. ``eval_every`` k evaluates on the
    first ``eval_tasks`` tasks of ``eval_split`` before the first iteration, after each k-th and after the last (0:
    never). ``kl`` weighs a k3 penalty towards the reference model (0: none). A checkpoint follows every
    ``checkpoint_every`` iterations. With ``growth`` each task's runs are a tree grown by forks, and ``rollouts`` is not
    read.

    An iteration's rows are gone over ``epochs`` times, each time cut into ``minibatches`` optimiser steps. The learning
    rate follows ``schedule`` after ``warmup`` iterations of rising. ``dynamic`` is how many times at most an iteration
    draws fresh tasks in place of those whose runs were all rewarded alike (dynamic sampling, DAPO, arXiv 2503.14476).
    With ``lag`` 1 workers collect an iteration's runs while the weights step on the one before (clew.train.ahead).

    Raises:
        BadInput: an unknown schedule, a warm-up that the training does not outlast, or a count that is too small.
    """

    name: str
    iterations: int = 45
    tasks: int = 8
    rollouts: int = 8
    seed: int = 0
    component: str = "pg"
    kl: float = 0.0
    eval_every: int = 0
    eval_tasks: int = 64
    eval_split: str = "eval"
    checkpoint_every: int = 5
    growth: grow.Growth | None = None
    schedule: schedules.Schedule = "constant"
    warmup: int = 0
    epochs: int = 1
    minibatches: int = 1
    dynamic: int = 0
    lag: int = 0

    def __post_init__(self) -> None:
        schedules.check(self.schedule, self.iterations, self.warmup)
        counts = ("tasks", "rollouts", "epochs", "minibatches", "checkpoint_every", "eval_tasks")
        small = [name for name in counts if getattr(self, name) < 1]
        small += [name for name in ("eval_every", "dynamic", "kl") if not getattr(self, name) >= 0]
        if self.lag not in (0, 1) or (self.lag and self.dynamic):
            told = f"lag={self.lag} with dynamic={self.dynamic}"
            raise BadInput(f"a plan with {told}", remedy="Give a lag of 0, or 1 without dynamic sampling.")
        if small:
            told = ", ".join(f"{name}={getattr(self, name)}" for name in small)
            raise BadInput(f"a plan with {told}", remedy="Counts are at least 1; eval_every, dynamic and kl 0 or more.")

    def told(self) -> dict[str, Any]:
        """The fields as they are recorded: those of ``LATER`` only where they are not their defaults."""
        return {k: v for k, v in asdict(self).items() if k not in LATER or v != LATER[k]}


LATER: dict[str, Any] = {
    "growth": None, "schedule": "constant", "warmup": 0, "epochs": 1, "minibatches": 1, "dynamic": 0,
    "lag": 0,
}  # fmt: skip
"""Fields that plans recorded earlier lack, with what those trainings did."""


class Iteration(NamedTuple):
    """What one iteration did. ``step`` is None where no group had a signal, ``evaluation`` where none was due."""

    number: int  # from 0
    groups: Groups
    success: Report
    dead: float  # share of groups whose runs were all rewarded alike
    tokens: int  # sampled, those that forks share once
    step: StepReport | None  # of the only policy, or the first
    evaluation: Report | None
    seconds: dict[str, float]  # collect, credit, rows, fit; draft (its refresh) where there is a drafter
    draft: Mapping[str, float] = {}  # what came of drafts, see Drafting.end
    steps: Mapping[str, StepReport] = {}  # by policy, of several; one whose rows had no signal is left out
    before: Report | None = None  # the evaluation before the first iteration
    lag: float = 0.0  # by how many versions the weights that sampled were behind, mean over rows

    def metrics(self) -> dict[str, float]:
        out = {"success": self.success.estimate, "zero_variance": self.dead, "tokens": float(self.tokens)}
        out |= {"lag": self.lag} if self.lag else {}
        out |= {f"seconds/{name}": value for name, value in self.seconds.items()}
        out |= {f"draft/{name}": value for name, value in self.draft.items()}
        alone = {} if self.step is None else {"": self.step}
        for policy, step in (self.steps or alone).items():
            prefix = f"step/{policy}/" if policy else "step/"
            out |= {prefix + name: value for name, value in step.metrics().items()}
        for name, report in (("eval", self.evaluation), ("before", self.before)):
            if report is not None:
                out |= {name: report.estimate, f"{name}_low": report.low, f"{name}_high": report.high}
        return out


class Training:
    """A named training.

    Args:
        runner: collects with the model that the trainer trains.
        trainer: of the policy; or a mapping from names to the trainers of several policies, which the agent asks by
            ``chat(model=)``. Each is trained on the replies of its own model, told by ``ref``, and one checkpoint
            holds them all, in a folder of its name each.
        credit: annotates groups, as the functions of clew.credit do; or a mapping of one for each policy.
        folder: checkpoints, settings and the stop flag; default ``trainings/NAME`` beside the store, and none for a
            store in memory, which then cannot be resumed.
        ref: reference model for ``plan.kl``, with frozen weights.
        pushing: brings the weights to servers that the runner's model asks; None where it is the trainer's own model.
        draft: the drafter under which runs are decoded. It lies in the checkpoint; a training may be taken up again
            with it, with another, or without.
        settings: further JSON to record, for whoever rebuilds the training.
        tracker: gets the metrics of every iteration, under its number.

    Raises:
        BadInput: a training of that name was begun with another plan; kl without a reference model; several policies
            with equal refs, with kl or with a drafter.
    """

    def __init__(
        self,
        runner: Runner,
        trainer: Trainer | Mapping[str, Trainer],
        credit: Credit | Mapping[str, Credit],
        plan: Plan,
        *,
        folder: str | Path | None = None,
        ref: Scores | None = None,
        draft: Drafting | None = None,
        pushing: Pushing | None = None,
        settings: Mapping[str, Any] | None = None,
        tracker: Tracker | None = None,
    ) -> None:
        if runner.taskset is None:
            raise BadInput("a training needs a taskset", remedy="Give the Runner one.")
        if plan.kl and ref is None:
            raise BadInput(f"kl={plan.kl:g} needs a reference model", remedy="Pass ref=, a model with frozen weights.")
        several = isinstance(trainer, Mapping)
        self.trainers: dict[str, Trainer] = dict(trainer) if isinstance(trainer, Mapping) else {"": trainer}
        self.credits = dict(credit) if isinstance(credit, Mapping) else dict.fromkeys(self.trainers, credit)
        if several:
            _check_policies(self.trainers, self.credits, bool(plan.kl) or draft is not None)
        self.runner, self.plan, self.ref = runner, plan, ref
        self.draft, self.tracker, self.pushing = draft, tracker, pushing
        self.taskset, self.store = runner.taskset, runner.store
        self.folder = Path(folder) if folder is not None else default_folder(self.store.path, plan.name)
        self._stop = False
        if self.folder is not None:
            self._record(dict(settings or {}))

    def _record(self, settings: dict[str, Any]) -> None:
        assert self.folder is not None
        path = self.folder / "settings.json"
        mine = {"plan": self.plan.told(), "agent": self.runner.agent_ref, "taskset": self.taskset.ref, **settings}
        if "" not in self.trainers:
            mine["policies"] = {name: trainer.model.ref for name, trainer in self.trainers.items()}
        mine = json.loads(json.dumps(mine))
        agent = {self.runner.agent_ref: self.runner.agent_digest} if file_of(self.runner.agent_ref) else {}
        named = [self.taskset.ref, *(str(mine.get(name) or "") for name in ("credit", "loss", "model"))]
        sources = begun.sources(named, agent)
        if (before := begun.read(path)) is not None:
            known = before.pop("sources", {})
            self._compare(before, mine)
            sources = begun.gone_on(known, sources, self.plan.name)
        begun.write(path, {**mine, **({"sources": sources} if sources else {})})

    def _compare(self, before: dict[str, Any], mine: dict[str, Any]) -> None:
        """Raises BadInput where the training was begun with other settings; more iterations are none."""
        longer = {**before, "plan": {**before["plan"], "iterations": self.plan.iterations}}
        if self.plan.schedule != "constant" and longer == mine != before:
            raise BadInput(
                f"training {self.plan.name!r} lets its learning rate fall over {before['plan']['iterations']} "
                f"iterations, not {self.plan.iterations}",
                remedy=f"Begin another training from {self.checkpoint}, or leave the schedule constant.",
            )
        if longer != mine:
            was, now = ({**it, "plan": {**it["plan"], **LATER, **it["plan"]}} for it in (longer, mine))
            raise BadInput(
                f"training {self.plan.name!r} was begun with other settings: {begun.differences(was, now)}",
                remedy="Give it another name, or resume it with its own settings.",
            )

    def stop(self) -> None:
        """End after the iteration at hand; a file ``stop`` in the folder does the same from another process."""
        self._stop = True

    def _stopped(self) -> bool:
        flag = self.folder / "stop" if self.folder is not None else None
        if flag is not None and flag.exists():
            flag.unlink()
            self._stop = True
        return self._stop

    @property
    def checkpoint(self) -> Path | None:
        """The folder of the last checkpoint, itself a model folder; of several policies, one folder in it is."""
        return self.folder / "checkpoint" if self.folder is not None else None

    def run(self, on_run: Callable[[Any], None] | None = None) -> Iterator[Iteration]:
        """Train, giving each iteration when it is done; goes on from the last checkpoint where there is one.

        Iterations after the checkpoint whose runs the store holds are trained on those runs, not sampled again.

        Args:
            on_run: called with each run when it has been judged.
        """
        self._ahead: Ahead | None = Ahead(self.runner) if self.plan.lag else None
        try:
            yield from self._run(on_run)
        finally:
            if self._ahead is not None:
                self._ahead.close()

    def _run(self, on_run: Callable[[Any], None] | None) -> Iterator[Iteration]:
        start = 0
        if self.checkpoint is not None and checkpoint.exists(self.checkpoint):
            for name, trainer in self.trainers.items():
                start = trainer.load(checkpoint.locate(self.checkpoint) / name)["iteration"]
            if self.draft is not None:
                self.draft.load(checkpoint.locate(self.checkpoint))
        saved = start
        for index in range(start, self.plan.iterations):
            if self._stopped():
                if index > saved:
                    self._save(index)
                return
            done = self._iterate(index, on_run)
            if index + 1 == self.plan.iterations or (index + 1) % self.plan.checkpoint_every == 0:
                self._save(saved := index + 1)
            yield done

    def _save(self, iteration: int) -> None:
        def write(folder: Path) -> None:
            for name, trainer in self.trainers.items():
                (folder / name).mkdir(exist_ok=True)
                trainer.write(folder / name, {"iteration": iteration}, self.draft.save if self.draft else None)

        if self.checkpoint is not None:
            checkpoint.replace(self.checkpoint, write)

    def _iterate(self, index: int, on_run: Callable[[Any], None] | None) -> Iteration:
        plan, seconds = self.plan, {}
        evaluation = before = self.evaluate(0) if index == 0 and plan.eval_every else None
        if self.draft is not None:
            self.draft.begin()
        clock = time.perf_counter()

        def lap(name: str) -> None:
            nonlocal clock
            now = time.perf_counter()
            seconds[name], clock = now - clock, now

        groups = (self._ahead.take() if self._ahead is not None else None) or self._collected(index, on_run)
        lap("collect")
        if self.pushing is not None:
            self.pushing.check()
        drafted = {} if self.draft is None else self.draft.end(seconds["collect"])
        credits = {name: credit(groups) for name, credit in self.credits.items()}
        lap("credit")
        made = {name: self._rows(name, groups, credits[name]) for name in self.trainers}
        lap("rows")
        signal = {name: any(row.weights[plan.component].any() for row in rows) for name, rows in made.items()}
        behind = [self.trainers[name].model.version - row.version for name in made for row in made[name]]
        if self._ahead is not None and index + 1 < plan.iterations:
            self._ahead.begin(partial(self._collected, index + 1, on_run))
        steps = {name: self._fit(name, made[name], index) for name in made if signal[name]}
        lap("fit")
        if self._ahead is not None:
            self._ahead.wait()
            lap("wait")
        if self.draft is not None:
            self.draft.refresh(groups.runs, derive(plan.seed, "refresh", index))
            lap("draft")
        if plan.eval_every and ((index + 1) % plan.eval_every == 0 or index + 1 == plan.iterations):
            evaluation = self.evaluate(index + 1)
        done = Iteration(
            number=index,
            groups=groups,
            success=groups.success(),
            dead=sum(not group.signal for group in groups) / len(groups),
            tokens=sum(sampled(call) for run in groups.runs for call in run.calls[run.shared :]),
            step=next(iter(steps.values()), None),
            evaluation=evaluation,
            seconds=seconds,
            draft=drafted,
            steps={name: step for name, step in steps.items() if name},
            before=before,
            lag=sum(behind) / max(1, len(behind)),
        )
        self.store.put_metrics(plan.name, index, done.metrics())
        self.store.commit()
        if self.tracker is not None:
            self.tracker.log(done.metrics(), index + 1)
        return done

    def _fit(self, policy: str, made: list[LossRow], index: int) -> StepReport:
        """Every optimiser step of an iteration; minibatches in which nothing weighs take none."""
        plan, trainer = self.plan, self.trainers[policy]
        parts = minibatches.cut(made, plan.epochs, plan.minibatches, derive(plan.seed, "fit", index))
        reports = []
        for i, part in enumerate(parts):
            if any(row.weights[plan.component].any() for row in part):
                at = (index * len(parts) + i, plan.iterations * len(parts), plan.warmup * len(parts))
                reports.append(trainer.step(part, schedules.factor(plan.schedule, *at)))
        return minibatches.together(reports)

    def _rows(self, policy: str, groups: Groups, credit: Annotated) -> list[LossRow]:
        of = self.trainers[policy].model.ref if policy else ""
        also = {"kl": self.plan.kl} if self.plan.kl else None
        made = rows(groups, credit, self.plan.component, also=also, model=of)
        if self.ref is not None:
            reference(made, self.ref)
        return made

    def _collected(self, index: int, on_run: Callable[[Any], None] | None) -> Groups:
        """The groups of an iteration; with dynamic sampling also those drawn in place of groups without a signal."""
        plan, seed = self.plan, derive(self.plan.seed, "tasks", index)
        batch = getattr(self.taskset, "batch", None)  # of a taskset with so many tasks and no more: passes over them
        tasks = batch(plan.tasks, index, plan.seed) if batch else self.taskset.sample(plan.tasks, seed, "train")
        groups = self._collect(tasks, plan.seed, index, plan.name, on_run)
        for again in range(1, plan.dynamic + 1):
            missing = plan.tasks - sum(group.signal for group in groups)
            if missing <= 0:
                break
            more = self.taskset.sample(missing, derive(seed, "again", again), "train")
            name, fresh = f"{plan.name}/{index}.again{again}", derive(plan.seed, "again", again)
            extra = self._collect(more, fresh, index, name, on_run)  # a task drawn twice gets other samples
            groups = Groups([*groups, *extra])
        return groups

    def _collect(
        self, tasks: Sequence[Task], seed: int, index: int, name: str, on_run: Callable[[Any], None] | None
    ) -> Groups:
        plan = self.plan
        if self.pushing is not None:
            self.pushing.begin()
        if plan.growth is None:
            return self.runner.collect(tasks, plan.rollouts, seed, on_run=on_run, name=name, iteration=index)
        return grow.collect(self.runner, tasks, plan.growth, seed, on_run=on_run, name=name, iteration=index)

    def evaluate(self, iteration: int) -> Report:
        """Success on the fixed evaluation tasks, one run each, under seeds that do not depend on the iteration."""
        tasks = self.taskset.sample(self.plan.eval_tasks, 0, self.plan.eval_split)
        name = f"{self.plan.name}.eval{iteration}"
        if self.pushing is not None:
            self.pushing.begin()
        return self.runner.collect(tasks, 1, derive(self.plan.seed, "eval"), name=name).success()


def default_folder(store: str, name: str) -> Path | None:
    """Where a training of a store on disk keeps its files; None for a store in memory."""
    return None if store == ":memory:" else beside(store).parent / "trainings" / name


def _check_policies(trainers: Mapping[str, Trainer], credits: Mapping[str, Credit], single: bool) -> None:
    refs = [trainer.model.ref for trainer in trainers.values()]
    named = all(re.fullmatch(r"[\w-]+", name) for name in trainers)
    if not refs or not named or len(set(refs)) < len(refs) or trainers.keys() != credits.keys():
        raise BadInput(
            f"policies {sorted(trainers)} of the models {refs} cannot be told apart, or their credit is missing",
            remedy="Give each a name of letters and digits, a model with a ref of its own, and a credit.",
        )
    if single:
        raise BadInput("kl and draft are for the training of one policy", remedy="Leave them out.")
