"""Workers as actors of a Ray cluster: ``ray_workers`` makes them, on the machines where Ray has room.

Ray starts, places and reaches the processes; what they do is ``worker.py``, as on one machine. All machines need the
same versions of Clew and of what it computes with, and the files that agents, tasksets and tools are named by.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Any

from clew.core.errors import BadInput, WorkerLost, need
from clew.harness.workers.pool import Workers
from clew.harness.workers.worker import Told, Worker

PATIENCE = 300.0  # seconds in which an actor is up
REACHED = 10.0  # seconds in which a cluster answers that can be used
LOCAL = "local"
AGAIN = "Run the same line again: all it handed over is kept."


def ray_workers(n: int = 0, address: str = LOCAL, *, gpus: float = 0.0) -> Workers:
    """An executor of ``n`` actors: ``Runner(..., executor=ray_workers(8, "auto"))``.

    Each holds a copy of the model, with an engine of its own.

    Args:
        n: how many; 0: one for each CPU of the cluster, or for each ``gpus`` GPUs.
        address: of a cluster, as ``ray.init`` takes it ("auto", ``HOST:PORT``, ``ray://HOST:PORT``), or "local" for
            one that begins and ends with this process. Where this process is connected already, that cluster.
        gpus: how many GPUs each actor has to itself.

    Raises:
        MissingExtra: Ray is not installed. BadInput: no cluster answers there, or it has no room for so many.
    """
    ray: Any = need("ray", "ray")
    if not ray.is_initialized():
        quiet = {"logging_level": "ERROR", "log_to_driver": False}
        try:
            _answers(address)
            ray.init(address, **({"include_dashboard": False} if address == LOCAL else {}), **quiet)
        except Exception as error:  # Ray raises errors of many kinds where it cannot connect
            told = str(error).strip().partition("\n")[0]
            remedy = "Start one with `ray start --head`, check the address, or write `--ray local`."
            raise BadInput(f"no Ray cluster can be used at {address!r}: {told}", remedy=remedy) from error
    there = ray.cluster_resources()
    room = there.get("GPU", 0.0) / gpus if gpus else there.get("CPU", 0.0)
    if n > room or room < 1:
        told = f"the cluster has {there.get('CPU', 0):g} CPUs and {there.get('GPU', 0):g} GPUs"
        raise BadInput(f"{told}, too few for {n or 1} workers", remedy="Ask for fewer workers, or add machines.")
    return Workers(n or int(room), lambda number, closed: Actor(number, closed, ray, gpus), ray.put)


def _answers(address: str) -> None:
    """Raises OSError where nothing listens at ``HOST:PORT``; Ray itself would try for a minute."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=REACHED).close()


class Actor:
    """One worker as an actor; see ``Link``."""

    def __init__(self, number: int, closed: threading.Event, ray: Any, gpus: float) -> None:
        self.name, self._ray = f"worker {number}", ray
        how = {"max_concurrency": 4, "max_restarts": 0, "num_cpus": 1, "num_gpus": gpus}
        self.actor = ray.remote(Worker).options(**how).remote()
        try:
            up, latest = self.actor.hello.remote(), time.monotonic() + PATIENCE
            while not ray.wait([up], timeout=1.0)[0]:
                if closed.is_set() or time.monotonic() > latest:
                    self.end()
                    told = (
                        f"{self.name} was not up within {PATIENCE:g} s: the cluster has no room, or a machine is gone"
                    )
                    raise WorkerLost(told, remedy="See `ray status`, then run the same line again.")
            ray.get(up)
        except ray.exceptions.RayActorError as error:
            raise WorkerLost(f"{self.name} cannot start: {_first(error)}", remedy=AGAIN) from error

    def call(self, method: str, *arguments: object) -> Any:
        try:
            return self._ray.get(getattr(self.actor, method).remote(*arguments))
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self._ray.exceptions.RayError as error:
            raise WorkerLost(f"{self.name} is gone: {_first(error)}", remedy=AGAIN) from error

    def listen(self) -> Told | None:
        found: Told | None = self.call("next")
        return found

    def end(self) -> None:
        with suppress(Exception):  # it is gone already, or the whole cluster is
            self._ray.kill(self.actor)


def _first(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
