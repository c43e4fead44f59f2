"""A process of a training with ``--nproc``: which rank it is, and what a rank other than the first does.

A verb that trains asks ``begin`` first. In the user's own process that starts the ranks and returns nothing; in a rank
it returns what the trainer needs.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli.shared import common, option, run_options, trainer_options
from clew.cli.shared.ranks import launching
from clew.cli.shared.ranks.launching import REMEDY
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.fit.sharding.ranks import Ranks
    from clew.fit.trainer import Trainer
    from clew.models.local import Local

NPROC_HELP = """Processes that train together, one for each GPU (or for a share of the cores): each holds a part of the
weights. The first reads and writes the store."""
LATER = 3.0  # seconds that a rank waits before it tells an error which another one tells better
BROKEN = ("Connection closed", "Connection reset", "gloo", "NCCL")  # in errors of the connections between ranks

ranks_option = option("--nproc", type=common.Amount(int, 1), default=1, help=NPROC_HELP)


def begin(nproc: int) -> Ranks | None:
    """The ranks of the training; None in the process that started them, when they have ended.

    Raises:
        BadInput: more ranks than devices, ranks that disagree, or another number of them than ``nproc``.
    """
    from clew.fit.sharding import joining
    from clew.fit.sharding.ranks import Ranks

    if nproc == 1:
        return Ranks()
    if not joining.is_rank(os.environ):
        launching.launch(nproc)
        return None
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    words = click.get_current_context().find_root().meta[launching.ARGUMENTS]
    if int(os.environ["RANK"]):
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # it has nothing to say: rank 0 speaks
    with telling():
        ranks = joining.join(os.environ, {"command line": " ".join(words)})
        if ranks.world != nproc:
            told = f"--nproc {nproc} in a world of {ranks.world} ranks"
            raise BadInput(told, remedy=f"Write --nproc {ranks.world}, as torchrun was told.")
    return ranks


def model(ref: str, ranks: Ranks) -> Local:
    """Local weights for training, loaded by rank 0 first: a registered model may be made when it is first named."""
    from clew.fit.sharding import starting

    if not ranks.leads:
        ranks.wait()
    if ranks.world > 1 and starting.devices() and Path(ref).exists():
        made: Any = run_options.load_model(ref, {"model_options": '{"device": "cuda"}'})
    else:
        made = trainer_options.trainable(ref)
    if ranks.leads:
        ranks.wait()
    return made  # type: ignore[no-any-return]


def follow(trainer: Trainer) -> None:
    """What a rank other than the first does from when it has its trainer."""
    from clew.fit.sharding import joining, leading

    leading.follow(trainer)
    joining.leave()


def release(trainer: Trainer) -> None:
    """At the end of a training: let the other ranks go."""
    from clew.fit.sharding import joining, leading

    if isinstance(trainer, leading.Leader):
        trainer.release()
        joining.leave()


@contextmanager
def telling() -> Iterator[None]:
    """Around what a rank does: let the right one tell what went wrong, as the agent ends the others at the first error.

    Rank 0 speaks to the user, so the others wait with theirs. Where the connection to another rank breaks, that one has
    failed, and this one waits for the agent to see it.
    """
    try:
        yield
    except Exception as error:
        broken = isinstance(error, RuntimeError) and any(word in str(error) for word in BROKEN)
        if "RANK" in os.environ and (broken or int(os.environ["RANK"])):
            time.sleep(LATER)
        if broken:
            raise launching.RankFailed("another rank of the training has ended", remedy=REMEDY) from error
        raise


def _end_with(parent: int) -> None:
    """End this process when the one that started it is gone: nobody would end it."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
