"""Training on given rows: passes over a data set in an order fixed by the seed, resumed to the bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from clew.core.errors import BadInput
from clew.core.keys import derive, value_digest
from clew.core.records import LossRow
from clew.fit import checkpoint, schedules
from clew.fit.trainer import StepReport, Trainer
from clew.train import begun
from clew.train.minibatches import units as together


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """How rows are gone over: ``epochs`` times, about ``batch`` rows a step, rows of one set or run together.

    The rate rises over the first share ``warmup`` of the steps, and then follows ``schedule``: by default it falls to 0
    along a cosine. A checkpoint follows every ``checkpoint_every`` steps.

    Raises:
        BadInput: a count below 1, a warm-up that is no share, or an unknown schedule.
    """

    epochs: int = 1
    batch: int = 64
    warmup: float = 0.1
    seed: int = 0
    checkpoint_every: int = 20
    schedule: schedules.Schedule = "cosine"

    def __post_init__(self) -> None:
        if min(self.epochs, self.batch, self.checkpoint_every) < 1 or not 0 <= self.warmup < 1:
            raise BadInput(f"{self}", remedy="Counts are at least 1, warmup within [0, 1).")
        schedules.check(self.schedule, 1, 0)

    def told(self) -> dict[str, object]:
        """The fields as they are recorded: a schedule only where it is not that of earlier trainings."""
        return {k: v for k, v in asdict(self).items() if (k, v) != ("schedule", "cosine")}

    def steps(self, rows: Sequence[LossRow]) -> list[list[int]]:
        """The rows of every step, by number."""
        units, out = together(rows), list[list[int]]()
        for epoch in range(self.epochs):
            fresh = True
            for unit in np.random.default_rng(derive(self.seed, "epoch", epoch)).permutation(len(units)).tolist():
                if fresh or len(out[-1]) >= self.batch:
                    out.append([])
                fresh = False
                out[-1] += units[unit]
        return out

    def rate(self, step: int, total: int) -> float:
        """Factor of the learning rate at a step, from 0."""
        warmup = max(1, round(self.warmup * total)) if self.warmup or self.schedule == "cosine" else 0
        return schedules.factor(self.schedule, step, total, warmup)


def fit(
    trainer: Trainer,
    rows: Sequence[LossRow],
    passes: Passes,
    folder: str | Path | None = None,
    *,
    settings: Mapping[str, object] | None = None,
) -> Iterator[tuple[int, int, StepReport]]:
    """Train, giving (steps done, steps in all, report) after each; goes on from the checkpoint in ``folder``.

    Reference logprobs must be in the rows, from the weights as they were before the first step.

    Args:
        settings: further JSON that must be the same when the training goes on, such as the loss and its parameters.

    Raises:
        BadInput: the folder was begun with other rows, passes or settings.
    """
    order, home = passes.steps(rows), Path(folder) if folder is not None else None
    start = 0
    if home is not None:
        _record(home, {"passes": passes.told(), "rows": _digest(rows), "settings": dict(settings or {})})
        if checkpoint.exists(home / "checkpoint"):
            start = trainer.load(home / "checkpoint")["step"]
    for step in range(start, len(order)):
        report = trainer.step([rows[i] for i in order[step]], passes.rate(step, len(order)))
        if home is not None and ((step + 1) % passes.checkpoint_every == 0 or step + 1 == len(order)):
            trainer.save(home / "checkpoint", {"step": step + 1})
        yield step + 1, len(order), report


def _digest(rows: Sequence[LossRow]) -> str:
    """Names the rows by what they hold and in which order."""
    told = [[row.ids.tobytes(), row.set, row.role, [w.tobytes() for w in row.weights.values()]] for row in rows]
    return value_digest(told).hex()


def _record(home: Path, mine: dict[str, object]) -> None:
    path = home / "offline.json"
    if (home / "settings.json").exists():
        raise BadInput(f"{home} is a training that samples", remedy="Give this one another name.")
    before = begun.read(path)
    if before is not None and before != mine:
        told = begun.differences({**before, "rows": ""}, {**mine, "rows": ""})
        other = ["other rows"] if before["rows"] != mine["rows"] else []
        raise BadInput(
            f"{home} was begun with {' and '.join(other + ([f'other settings: {told}'] if told else []))}",
            remedy="Give the training another name, or go on with its own rows and settings.",
        )
    begun.write(path, mine)
