"""One program, several ranks: rank 0 runs it, and the others do what its trainer does.

``clew train --nproc`` works so: rank 0 samples, keeps the store and decides, and each call of its ``Leader`` that all
ranks must make is told to them first. The other ranks are in ``follow`` meanwhile. They hold no record: one that ends
early takes nothing with it but its share of the weights, which the checkpoint has as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clew.core.errors import BadInput
from clew.core.records import LossRow
from clew.fit import checkpoint
from clew.fit.sharding.ranks import Ranks
from clew.fit.trainer import StepReport, Trainer


class Leader(Trainer):
    """The trainer of rank 0, whose steps, saving and loading the other ranks follow; call ``release`` at the end."""

    def step(self, rows: Sequence[LossRow], lr_scale: float = 1.0) -> StepReport:
        """See Trainer.step."""
        self.ranks.told(("step", list(rows), lr_scale))
        return super().step(rows, lr_scale)

    def save(
        self, path: str | Path, position: Mapping[str, Any] | None = None, also: Callable[[Path], None] | None = None
    ) -> Path:
        """See Trainer.save."""
        return checkpoint.replace(path, lambda folder: self.write(folder, position, also))

    def write(
        self, folder: Path, position: Mapping[str, Any] | None = None, also: Callable[[Path], None] | None = None
    ) -> None:
        """See Trainer.write."""
        self.ranks.told(("write", folder))
        super().write(folder, position, also)

    def load(self, path: str | Path) -> dict[str, Any]:
        """See Trainer.load."""
        self.ranks.told(("load", str(path)))
        return super().load(path)

    def release(self) -> None:
        """Let the other ranks go."""
        self.ranks.told(("release",))


def kind(ranks: Ranks) -> type[Trainer]:
    """The class of trainer for a rank: a Leader at rank 0 of several, else a plain one."""
    return Leader if ranks.world > 1 and ranks.leads else Trainer


def follow(trainer: Trainer) -> None:
    """Do what the Leader at rank 0 does, until it lets go.

    Raises:
        BadInput: rank 0 is gone; what it refuses is refused here as well.
    """
    while True:
        try:
            what, *given = trainer.ranks.told(None)
        except RuntimeError as error:
            raise BadInput("rank 0 has ended", remedy="See what it printed, and start all ranks again.") from error
        if what == "release":
            return
        getattr(trainer, what)(*given)
