"""The loop: grow, credit, rows, fit. Named, stoppable, and resumable to the bit in steady mode."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from clew.core.errors import BadInput
from clew.core.keys import derive
from clew.core.protocols import Scores
from clew.core.records import Report
from clew.core.values import Task
from clew.fit import checkpoint
from clew.fit.trainer import StepReport, Trainer
from clew.harness import Runner
from clew.harness.trees import grow
from clew.store import Groups
from clew.store.run import sampled
from clew.train.drafters.refresh import Drafting
from clew.train.rows import Annotated, reference, rows

Credit = Callable[[Groups], Annotated]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a training does; recorded, and compared when it is taken up again.

    Every iteration draws ``tasks`` fresh tasks and runs each ``rollouts`` times. ``eval_every`` k evaluates on the
    first ``eval_tasks`` tasks of ``eval_split`` before the first and after each k-th iteration (0: never). ``kl``
    weighs a k3 penalty towards the reference model (0: none). A checkpoint follows every ``checkpoint_every``
    iterations. With ``growth`` each task's runs are a tree grown by forks, and ``rollouts`` is not read.
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


class Iteration(NamedTuple):
    """What one iteration did. ``step`` is None where no group had a signal, ``evaluation`` where none was due."""

    number: int  # from 0
    groups: Groups
    success: Report
    dead: float  # share of groups whose runs were all rewarded alike
    tokens: int  # sampled, those that forks share once
    step: StepReport | None
    evaluation: Report | None
    seconds: dict[str, float]  # collect, credit, rows, fit; draft (its refresh) where there is a drafter
    draft: Mapping[str, float] = {}  # what came of drafts, see Drafting.end

    def metrics(self) -> dict[str, float]:
        out = {"success": self.success.estimate, "dead_groups": self.dead, "tokens": float(self.tokens)}
        out |= {f"seconds/{name}": value for name, value in self.seconds.items()}
        out |= {f"draft/{name}": value for name, value in self.draft.items()}
        if self.step is not None:
            out |= {f"step/{name}": value for name, value in self.step.metrics().items()}
        if self.evaluation is not None:
            out |= {
                "eval": self.evaluation.estimate,
                "eval_low": self.evaluation.low,
                "eval_high": self.evaluation.high,
            }
        return out


class Training:
    """A named training.

    Args:
        runner: collects with the model that the trainer trains.
        credit: annotates groups, as the functions of clew.credit do.
        folder: checkpoints, settings and the stop flag; default ``trainings/NAME`` beside the store, and none for a
            store in memory, which then cannot be resumed.
        ref: reference model for ``plan.kl``, with frozen weights.
        draft: the drafter under which runs are decoded. It lies in the checkpoint; a training may be taken up again
            with it, with another, or without.
        settings: further JSON to record, for whoever rebuilds the training.

    Raises:
        BadInput: a training of that name was begun with another plan, or kl without a reference model.
    """

    def __init__(
        self,
        runner: Runner,
        trainer: Trainer,
        credit: Credit,
        plan: Plan,
        *,
        folder: str | Path | None = None,
        ref: Scores | None = None,
        draft: Drafting | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if runner.taskset is None:
            raise BadInput("a training needs a taskset", remedy="Give the Runner one.")
        if plan.kl and ref is None:
            raise BadInput(f"kl={plan.kl:g} needs a reference model", remedy="Pass ref=, a model with frozen weights.")
        self.runner, self.trainer, self.credit, self.plan, self.ref = runner, trainer, credit, plan, ref
        self.draft = draft
        self.taskset, self.store = runner.taskset, runner.store
        self.folder = Path(folder) if folder is not None else default_folder(self.store.path, plan.name)
        self._stop = False
        if self.folder is not None:
            self._record(dict(settings or {}))

    def _record(self, settings: dict[str, Any]) -> None:
        assert self.folder is not None
        path = self.folder / "settings.json"
        plan = {k: v for k, v in asdict(self.plan).items() if k != "growth" or v is not None}
        mine = {"plan": plan, "agent": self.runner.agent_ref, "taskset": self.taskset.ref, **settings}
        mine = json.loads(json.dumps(mine))
        if path.exists():
            before = json.loads(path.read_text())
            longer = {**before, "plan": {**before["plan"], "iterations": self.plan.iterations}}
            changed = sorted(k for k in {*longer, *mine} if longer.get(k) != mine.get(k))
            if changed:
                raise BadInput(
                    f"training {self.plan.name!r} was begun with another {', '.join(changed)}",
                    remedy="Give it another name, or resume it with its own settings.",
                )
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".writing")
        fresh.write_text(json.dumps(mine, indent=1) + "\n")
        fresh.replace(path)  # a crash leaves the old settings or the new ones

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
        """The folder of the last checkpoint, itself a model folder."""
        return self.folder / "checkpoint" if self.folder is not None else None

    def run(self, on_run: Callable[[Any], None] | None = None) -> Iterator[Iteration]:
        """Train, giving each iteration when it is done; goes on from the last checkpoint where there is one.

        Iterations after the checkpoint whose runs the store holds are trained on those runs, not sampled again.

        Args:
            on_run: called with each run when it has been judged.
        """
        start = 0
        if self.checkpoint is not None and checkpoint.exists(self.checkpoint):
            start = self.trainer.load(self.checkpoint)["iteration"]
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
        if self.checkpoint is not None:
            self.trainer.save(self.checkpoint, {"iteration": iteration}, self.draft.save if self.draft else None)

    def _iterate(self, index: int, on_run: Callable[[Any], None] | None) -> Iteration:
        plan, seconds = self.plan, {}
        evaluation = self.evaluate(0) if index == 0 and plan.eval_every else None
        if self.draft is not None:
            self.draft.begin()
        clock = time.perf_counter()

        def lap(name: str) -> None:
            nonlocal clock
            now = time.perf_counter()
            seconds[name], clock = now - clock, now

        tasks = self.taskset.sample(plan.tasks, derive(plan.seed, "tasks", index), "train")
        groups = self._collect(tasks, index, on_run)
        lap("collect")
        drafted = {} if self.draft is None else self.draft.end(seconds["collect"])
        credit = self.credit(groups)
        lap("credit")
        made = rows(groups, credit, plan.component, also={"kl": plan.kl} if plan.kl else None)
        if self.ref is not None:
            reference(made, self.ref)
        lap("rows")
        signal = any(row.weights[plan.component].any() for row in made)
        step = self.trainer.step(made) if signal else None
        lap("fit")
        if self.draft is not None:
            self.draft.refresh(groups.runs, derive(plan.seed, "refresh", index))
            lap("draft")
        if plan.eval_every and (index + 1) % plan.eval_every == 0:
            evaluation = self.evaluate(index + 1)
        done = Iteration(
            number=index,
            groups=groups,
            success=groups.success(),
            dead=sum(not group.signal for group in groups) / len(groups),
            tokens=sum(sampled(call) for run in groups.runs for call in run.calls[run.shared :]),
            step=step,
            evaluation=evaluation,
            seconds=seconds,
            draft=drafted,
        )
        self.store.put_metrics(plan.name, index, done.metrics())
        self.store.commit()
        return done

    def _collect(self, tasks: Sequence[Task], index: int, on_run: Callable[[Any], None] | None) -> Groups:
        plan, kept = self.plan, {"name": self.plan.name, "iteration": index}
        if plan.growth is None:
            return self.runner.collect(tasks, plan.rollouts, plan.seed, on_run=on_run, **kept)  # type: ignore[arg-type]
        return grow.collect(self.runner, tasks, plan.growth, plan.seed, on_run=on_run, **kept)  # type: ignore[arg-type]

    def evaluate(self, iteration: int) -> Report:
        """Success on the fixed evaluation tasks, one run each, under seeds that do not depend on the iteration."""
        tasks = self.taskset.sample(self.plan.eval_tasks, 0, self.plan.eval_split)
        name = f"{self.plan.name}.eval{iteration}"
        return self.runner.collect(tasks, 1, derive(self.plan.seed, "eval"), name=name).success()


def default_folder(store: str, name: str) -> Path | None:
    """Where a training of a store on disk keeps its files; None for a store in memory."""
    return None if store == ":memory:" else Path(store).absolute().parent / "trainings" / name


def settings_of(folder: str | Path) -> dict[str, Any]:
    """What a training recorded about itself.

    Raises:
        BadInput: no training lies there.
    """
    path = Path(folder) / "settings.json"
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise BadInput(f"no training at {folder}", remedy="Give the name that `clew train --name` had.") from error
