"""The process that a user started with ``--nproc``: it starts one process a rank by torchrun's agent, and waits.

Rank 0 writes to the user's terminal; what the others say goes to files that live as long as they do, and is shown where
one of them fails first. Whatever ends this process ends the ranks: the agent hands signals on, and a rank whose parent
is gone ends itself (see ``rank.py``).
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

import click

from clew.core.errors import BadInput, ClewError

REMEDY = "The same line again goes on from the last checkpoint."
LINES = 6  # of a rank that failed
ARGUMENTS = "clew.arguments"  # where the words of the line are kept, in click's context


class RankFailed(ClewError):
    """A rank other than the first ended with an error."""


def launch(nproc: int) -> None:
    """Run the line at hand in ``nproc`` ranks, and end as rank 0 does, which also tells of an interrupt.

    Raises:
        RankFailed: a rank ended with an error that rank 0 has not told.
    """
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    _check(nproc)
    words = click.get_current_context().find_root().meta[ARGUMENTS]
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // nproc)))
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("torch.distributed.elastic")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # we say what failed
    with tempfile.TemporaryDirectory(prefix="clew-ranks-") as logs:
        config: Any = LaunchConfig(
            min_nodes=1, max_nodes=1, nproc_per_node=nproc, run_id=uuid.uuid4().hex, max_restarts=0,
            rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:0", local_addr="127.0.0.1",
            logs_specs=DefaultLogsSpecs(logs, redirects=dict.fromkeys(range(1, nproc), Std.ALL)),
        )  # fmt: skip
        try:
            elastic_launch(config, sys.executable)("-P", "-m", "clew.cli", *words)
        except ChildFailedError as error:
            _tell(error, Path(logs))
        except (SignalException, KeyboardInterrupt) as error:
            raise click.exceptions.Exit(128 + getattr(error, "sigval", signal.SIGINT)) from error  # rank 0 has told it


def _check(nproc: int) -> None:
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else nproc
    if nproc > gpus:
        raise BadInput(f"--nproc {nproc} on a machine with {gpus} GPUs", remedy=f"Write at most --nproc {gpus}.")


def _tell(error: Any, logs: Path) -> None:
    """End as the rank did that failed first; rank 0 has told its error already."""
    first = error.failures.get(0)
    if first is not None and first.exitcode > 0:
        raise click.exceptions.Exit(first.exitcode)
    rank, failure = error.get_first_failure()
    said = [path.read_text(errors="replace") for path in logs.glob(f"*/attempt_*/{rank}/std*.log")]
    lines = [line for text in said for line in text.splitlines() if line.strip()][-LINES:]
    told = "\n".join(lines) or f"it printed nothing and ended with status {failure.exitcode}"
    raise RankFailed(f"rank {rank} of the training failed:\n{told}", remedy=REMEDY)
