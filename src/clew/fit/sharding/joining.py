"""How a process becomes a rank: it tells rank 0 what it is, and joins where all are alike.

The command line calls ``join`` in every process that torchrun started, before anything else of a training. It asks no
collective operation before it knows that all ranks can make it, so that ranks which disagree end with a sentence and
none waits for good.
"""

from __future__ import annotations

import importlib.metadata
import json
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch

from clew.core.errors import BadInput
from clew.fit.sharding.ranks import Group, disagreement

WAIT = 120.0  # seconds in which every rank must have come
GIVEN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # variables that torchrun sets


def is_rank(environment: Mapping[str, str]) -> bool:
    """Whether torchrun, or somebody by hand, started this process as a rank."""
    return all(name in environment for name in GIVEN)


def join(environment: Mapping[str, str], facts: Mapping[str, object] | None = None, wait: float = WAIT) -> Group:
    """Join the ranks that the variables of torchrun name, on nccl where there are GPUs and on gloo elsewhere.

    Args:
        environment: variables RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, and LOCAL_RANK, which chooses the GPU.
        facts: what must be the same at every rank, beside the world's size and the versions of torch and Clew.
        wait: seconds in which all ranks must have come.

    Raises:
        BadInput: the variables are missing, a rank did not come, or ranks disagree; the same at every rank.
    """
    dist: Any = torch.distributed  # its stores are not exported by name
    if not is_rank(environment):
        missing = ", ".join(name for name in GIVEN if name not in environment)
        raise BadInput(f"this process is no rank: {missing} is not set", remedy="Start it by torchrun, or --nproc N.")
    rank, world = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    hosted = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    place = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    limit = timedelta(seconds=wait)
    try:
        tcp = dist.TCPStore(*place, is_master=not rank and not hosted, wait_for_workers=False, timeout=limit)
    except (RuntimeError, ValueError) as error:
        raise BadInput(
            f"rank {rank} reaches no rank 0 at {place[0]}:{place[1]}: {str(error).splitlines()[0]}",
            remedy="Start all ranks together, by one command such as `clew train --nproc N`.",
        ) from error
    store = dist.PrefixStore(f"clew/{environment.get('TORCHELASTIC_RESTART_COUNT', 0)}", tcp)
    mine = {
        "world size": world,
        "torch": torch.__version__,
        "clew": importlib.metadata.version("clew"),
        **(facts or {}),
    }
    _compare(store, rank, world, {name: str(value) for name, value in mine.items()}, wait)
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(environment.get("LOCAL_RANK", rank))) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if gpu else "gloo"
    dist.init_process_group(backend, store=dist.PrefixStore("group", store), rank=rank, world_size=world)
    return Group(device)


def leave() -> None:
    """End the ranks' connections; every rank calls it when all is done."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def _compare(store: Any, rank: int, world: int, mine: Mapping[str, str], wait: float) -> None:
    """Rank 0 reads what all ranks are and writes its verdict, which all read.

    Raises:
        BadInput: they disagree, or one did not come.
    """
    store.set(f"is/{rank}", json.dumps(mine))
    if rank == 0:
        came, told = _came(store, world, wait)
        store.set("verdict", json.dumps([told.message, told.remedy] if told is not None else []))
        store.set("first", json.dumps(mine))
        if told is not None:
            _linger(store, len(came))
            raise told
        return
    verdict = json.loads(_read(store, "verdict", 2 * wait, "rank 0"))
    first = json.loads(_read(store, "first", wait, "rank 0"))
    store.add("read", 1)
    if verdict:
        raise BadInput(verdict[0], remedy=verdict[1])
    if (told := disagreement([first, mine])) is not None:
        raise BadInput(told.message.replace("at rank 1", f"at rank {rank}"), remedy=told.remedy)


def _came(store: Any, world: int, wait: float) -> tuple[list[dict[str, str]], BadInput | None]:
    """What each rank said it is, in order, up to the first that differs or did not come in time."""
    found, until = list[dict[str, str]](), time.monotonic() + wait
    for rank in range(world):
        try:
            found.append(json.loads(_read(store, f"is/{rank}", max(0.1, until - time.monotonic()), f"rank {rank}")))
        except BadInput as error:
            return found, error
        if (told := disagreement(found)) is not None:  # at once: the rank that would come next may never do
            return found, told
    return found, None


def _read(store: Any, name: str, wait: float, who: str) -> str:
    try:
        store.wait([name], timedelta(seconds=wait))
        return str(store.get(name).decode())
    except RuntimeError as error:
        raise BadInput(
            f"{who} did not come within {wait:.0f} s",
            remedy="See what it printed, and start all ranks together, by one command such as `clew train --nproc N`.",
        ) from error


def _linger(store: Any, came: int, most: float = 5.0) -> None:
    """Where rank 0 holds the store: stay until the other ranks have read why it ends."""
    until = time.monotonic() + most
    while store.add("read", 0) < came - 1 and time.monotonic() < until:
        time.sleep(0.02)
