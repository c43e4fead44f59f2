"""What a trainer asks of the processes that it shares a step with: ``Alone``, or ``sharding.Sharded`` of several.

``Trainer`` alone calls these. Every rank must call the same methods in the same order: most of them wait for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor, nn

from clew.core.records import LossRow
from clew.fit.collate import Micro
from clew.fit.forward import Scorer


class Ranks(Protocol):
    """The processes of one training.

    ``world``: how many there are. ``cut`` cuts the module's weights before an optimiser is built over them. ``check``
    compares the rows of a step. ``share`` gives this rank's micro-batches, each with whether it counts: one that does
    not keeps the ranks in step. ``factor``: what a loss is multiplied by, since gradients are averaged over ranks.
    ``total`` and ``most`` are over all ranks, ``all`` gives the tensors of all.
    """

    world: int
    factor: float

    def cut(self, module: nn.Module, scorer: Scorer) -> None: ...
    def check(self, rows: Sequence[LossRow], parameters: Sequence[nn.Parameter], module: nn.Module) -> None: ...
    def share(self, micros: Sequence[Micro]) -> list[tuple[Micro, bool]]: ...
    def total(self, value: float) -> float: ...
    def most(self, value: float | None) -> float | None: ...
    def all(self, values: list[Tensor]) -> list[Tensor]: ...


class Alone:
    """One process, which holds all weights and does everything."""

    world, factor = 1, 1.0

    def cut(self, module: nn.Module, scorer: Scorer) -> None:
        """Nothing is cut."""

    def check(self, rows: Sequence[LossRow], parameters: Sequence[nn.Parameter], module: nn.Module) -> None:
        """Nobody can disagree."""

    def share(self, micros: Sequence[Micro]) -> list[tuple[Micro, bool]]:
        return [(micro, True) for micro in micros]

    def total(self, value: float) -> float:
        return value

    def most(self, value: float | None) -> float | None:
        return value

    def all(self, values: list[Tensor]) -> list[Tensor]:
        return values


ALONE = Alone()
