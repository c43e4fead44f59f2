"""The process that a user started with ``--nproc``: it starts one process a rank, waits, and ends as they do.

Whatever ends this process ends the ranks: torchrun's agent hands signals on, and a rank whose parent is gone ends
itself (see ``rank.py``).
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import click

from clew.core.errors import BadInput, ClewError

ARGUMENTS = "clew.arguments"  # where the words of the line are kept, in click's context
REMEDY = "The same line again goes on from the last checkpoint."


class RankFailed(ClewError):
    """A rank ended with an error that rank 0 has not told."""


def launch(nproc: int) -> None:
    """Run the line at hand in ``nproc`` ranks, and end as rank 0 does, which also tells of an interrupt.

    Raises:
        BadInput: there are fewer GPUs. RankFailed: a rank ended with an error that rank 0 has not told.
    """
    from clew.fit.sharding import starting

    gpus = starting.devices() or nproc
    if nproc > gpus:
        raise BadInput(f"--nproc {nproc} on a machine with {gpus} GPUs", remedy=f"Write at most --nproc {gpus}.")
    words = click.get_current_context().find_root().meta[ARGUMENTS]
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // nproc)))
    with tempfile.TemporaryDirectory(prefix="clew-ranks-") as logs:
        ended = starting.start(nproc, [sys.executable, "-P", "-m", "clew.cli", *words], Path(logs))
    if not ended.status:
        return
    if ended.rank is None or (ended.rank == 0 and ended.status > 0):
        raise click.exceptions.Exit(ended.status)
    said = ended.said or f"it printed nothing here and ended with status {ended.status}"
    raise RankFailed(f"rank {ended.rank} of the training failed:\n{said}", remedy=REMEDY)
