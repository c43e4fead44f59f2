"""Workers as processes of this machine: ``local_workers`` starts them, each with two pipes to this process.

The pipes are inherited, so nothing else on the machine can speak to a worker, and a worker ends with this process.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from clew.core.errors import WorkerLost
from clew.harness.workers.pool import Workers
from clew.harness.workers.worker import Told, Worker, sendable

PROGRAM = "import sys; sys.path[:] = {path!r}; from clew.harness.workers.processes import serve; serve({asked}, {told})"


def local_workers(n: int) -> Workers:
    """An executor of ``n`` processes on this machine: ``Runner(..., executor=local_workers(4))``.

    Each holds a copy of the model, with an engine of its own.

    Raises:
        BadInput: ``n`` is below 1.
    """
    return Workers(n, lambda number, _: Process(number))


class Process:
    """One worker as a child process; see ``Link``."""

    def __init__(self, number: int) -> None:
        self.name = f"worker {number}"
        mine, theirs = zip(*(socket.socketpair() for _ in range(2)), strict=True)
        asked, told = (end.fileno() for end in theirs)
        program = PROGRAM.format(path=[os.path.abspath(place) for place in sys.path], asked=asked, told=told)
        self._process = subprocess.Popen(
            [sys.executable, "-c", program], pass_fds=(asked, told), stdin=subprocess.DEVNULL, start_new_session=True
        )
        for end in theirs:
            end.close()
        self._asked, self._told = (Connection(end.detach()) for end in mine)
        self._guard = threading.Lock()

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(self, method: str, *arguments: object) -> Any:
        with self._guard:
            return self._exchange(self._asked, (method, arguments))

    def listen(self) -> Told | None:
        found: Told | None = self._exchange(self._told, ("next", ()))
        return found

    def _exchange(self, pipe: Connection, message: object) -> Any:
        try:
            pipe.send(message)
            value, error = pipe.recv()
        except (OSError, EOFError, ValueError) as lost:
            code = self._process.poll()
            how = "closed its pipe" if code is None else f"ended with signal {-code}" if code < 0 else f"ended: {code}"
            raise WorkerLost(
                f"{self.name} {how}", remedy="Run the same line again: all it handed over is kept."
            ) from lost
        if error is not None:
            raise error
        return value

    def end(self) -> None:
        """Kill the process. Whoever listens is then told that the worker is lost."""
        self._process.kill()
        self._process.wait()


def serve(asked: int, told: int) -> None:
    """The whole life of a worker process: answer on both pipes until the first is closed."""
    worker = Worker()
    threading.Thread(target=_answer, args=(Connection(told), {"next": worker.next}), daemon=True).start()
    names = ("hello", "take_model", "take_weights", "open", "begin", "close")
    _answer(Connection(asked), {name: getattr(worker, name) for name in names})
    os._exit(0)  # runs that are under way are somebody else's now, and their threads must not hold the process


def _answer(pipe: Connection, methods: dict[str, Callable[..., object]]) -> None:
    while True:
        try:
            method, arguments = pipe.recv()
        except (OSError, EOFError):
            return
        answer: tuple[object, BaseException | None]
        try:
            answer = methods[method](*arguments), None
        except Exception as error:
            answer = None, sendable(error)
        try:
            pipe.send(answer)
        except (OSError, EOFError):
            return
