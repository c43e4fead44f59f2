"""Brings the weights of a training to the servers that sample its runs, before they are asked.

``Training`` calls ``begin`` before it collects runs. The servers must see the folder under the same path. No run may be
sampled under weights that are older than those the trainer holds at that moment.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from clew.core.errors import Unreachable
from clew.fit import checkpoint
from clew.fit.trainer import Trainer
from clew.models.fleet import Fleet

KEPT = 2  # folders of weights: an endpoint may be reading the one before


class Pushing:
    """The servers of a training.

    Args:
        folder: where the weights of each version are written.
    """

    def __init__(self, fleet: Fleet, trainer: Trainer, folder: str | Path) -> None:
        self.fleet, self.trainer, self.folder = fleet, trainer, Path(folder)
        self._sent: list[Path] = []

    def begin(self) -> None:
        """Let the servers have the present weights, where they have not.

        Raises:
            ModelError: no server takes them.
        """
        version = self.trainer.model.version
        path = self.folder / f"weights-{version}"
        if path not in self._sent:
            checkpoint.replace(path, self.trainer.write_weights)
        elif path == self._sent[-1] and self.fleet.answers:
            return
        self.fleet.push(path, version)
        self._sent = [*(one for one in self._sent if one != path), path]
        for old in self._sent[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        self._sent = self._sent[-KEPT:]

    def check(self) -> None:
        """Stop before an iteration is counted during which all servers were lost.

        Raises:
            Unreachable: none answered when it was asked last.
        """
        if not self.fleet.answers:
            remedy = "Start the servers, then type the same line again."
            raise Unreachable("no server answers any more; the runs so far are in the store", remedy=remedy)
