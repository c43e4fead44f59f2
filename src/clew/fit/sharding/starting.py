"""Starts the ranks of one machine by torchrun's agent (torch.distributed.launcher), and waits for them.

The command line calls ``start`` in the process that a user started. Rank 0 has that process's streams; what the others
say goes to files. When a rank ends with an error, the agent ends the others, and so it does on a signal.
"""

from __future__ import annotations

import logging
import signal
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

LINES = 6  # of a rank that failed


class Ended(NamedTuple):
    """How ranks ended. ``status`` 0: all is done. Else ``rank`` is the one that failed first, None after a signal to
    this process; ``status`` is an exit status (128 and the signal's number after one, negative where a signal ended the
    rank), and ``said`` the last lines of a rank other than the first."""

    status: int
    rank: int | None = None
    said: str = ""


def devices() -> int | None:
    """How many GPUs there are here, None where there is none."""
    return torch.cuda.device_count() if torch.cuda.is_available() else None


def start(world: int, words: Sequence[str], logs: Path) -> Ended:
    """Run a command as ``world`` ranks of this machine.

    Args:
        words: the command.
        logs: an empty folder, for what ranks other than the first say.
    """
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    for name in [name for name in logging.root.manager.loggerDict if name.startswith("torch.distributed.elastic")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # the caller says what failed
    apart = DefaultLogsSpecs(str(logs), redirects=dict.fromkeys(range(1, world), Std.ALL))
    here = {"rdzv_backend": "c10d", "rdzv_endpoint": "127.0.0.1:0", "local_addr": "127.0.0.1", "logs_specs": apart}
    how: dict[str, Any] = {"min_nodes": 1, "max_nodes": 1, "nproc_per_node": world, "max_restarts": 0, **here}
    try:
        elastic_launch(LaunchConfig(run_id=uuid.uuid4().hex, **how), words[0])(*words[1:])
    except ChildFailedError as error:
        return _failed(error, logs)
    except (SignalException, KeyboardInterrupt) as error:
        return Ended(128 + getattr(error, "sigval", signal.SIGINT))
    return Ended(0)


def _failed(error: Any, logs: Path) -> Ended:
    first = error.failures.get(0)
    if first is not None and first.exitcode > 0:  # it has told its error already
        return Ended(first.exitcode, 0)
    rank, failure = error.get_first_failure()
    texts = [path.read_text(errors="replace") for path in sorted(logs.glob(f"*/attempt_*/{rank}/std*.log"))]
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    return Ended(failure.exitcode, rank, "\n".join(lines[-LINES:]))
