"""Brings the weights of a training to the servers that sample its runs, before they are asked.

``Training`` calls ``begin`` before it collects runs. The servers must see the folder under the same path. Of a training
of LoRA adapters the adapters alone are written, where the servers load such. No run may be sampled under weights that
are older than those the trainer holds at that moment.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from clew.core.errors import Unreachable
from clew.fit import adapter_files, checkpoint
from clew.fit.trainer import Trainer
from clew.models.fleet import Fleet
from clew.models.fleet.adapter_swap import MISSING

KEPT = 2  # folders of weights: an endpoint may be reading the one before


class Pushing:
    """The servers of a training.

    Args:
        folder: where the weights of each version are written.
    """

    def __init__(self, fleet: Fleet, trainer: Trainer, folder: str | Path) -> None:
        self.fleet, self.trainer, self.folder = fleet, trainer, Path(folder)
        self._sent: list[Path] = []
        self._adapters: bool | None = None if trainer.lora else False  # whether these alone travel, once known

    def begin(self) -> None:
        """Let the servers have the present weights, where they have not.

        Raises:
            ModelError: no server takes them.
        """
        if self._adapters is None:
            self._adapters = self.fleet.takes_adapters()
            if not self._adapters:
                self.fleet.note(f"not all servers load LoRA adapters, so that all weights are pushed; {MISSING}")
        version = self.trainer.model.version
        path = self.folder / f"{'adapter' if self._adapters else 'weights'}-{version}"
        if path not in self._sent:
            checkpoint.replace(path, self._write)
        elif path == self._sent[-1] and self.fleet.answers:
            return
        self.fleet.push(path, version)
        self._sent = [*(one for one in self._sent if one != path), path]
        for old in self._sent[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        self._sent = self._sent[-KEPT:]

    def _write(self, folder: Path) -> None:
        if self._adapters:
            adapter_files.write(self.trainer.serving.served, folder, self.trainer.base)
        else:
            self.trainer.write_weights(folder)

    def check(self) -> None:
        """Stop before an iteration is counted during which all servers were lost.

        Raises:
            Unreachable: none answered when it was asked last.
        """
        if not self.fleet.answers:
            remedy = "Start the servers, then type the same line again."
            raise Unreachable("no server answers any more; the runs so far are in the store", remedy=remedy)
