"""Reads many files on several processes.

The repository index calls it. The workers are plain child processes that run ``serve``. Unlike the workers of
``multiprocessing`` they must never import the caller's main module, which would run a script without a guard again.
"""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import IO, Any

from clew.coding.repository.digest import Digest, digest

Lot = list[tuple[str, str, bytes]]  # key, how it is read, content
Found = list[tuple[str, Digest]]


def digests(lots: Iterator[Lot], take: Callable[[Found], None], workers: int) -> None:
    """Digest every lot and hand each result to ``take``, one at a time, in any order.

    Args:
        workers: child processes; 0 reads in this one.

    Raises:
        RuntimeError: a worker died.
    """
    if not workers:
        for lot in lots:
            take([(key, digest(content, how)) for key, how, content in lot])
        return
    lock, failed = threading.Lock(), list[BaseException]()

    def work() -> None:
        command = [sys.executable, "-P", "-c", "from clew.coding.repository.workers import serve; serve()"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                while True:
                    with lock:
                        lot = next(lots, None)
                    if lot is None or failed:
                        break
                    _send(process.stdin, lot)
                    found = _receive(process.stdout)
                    with lock:
                        take([(key, Digest(data)) for key, data in found])
            except BaseException as error:
                failed.append(error)
            finally:
                process.stdin.close()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise RuntimeError("a process that reads files ended early; is there enough memory?") from failed[0]


def serve() -> None:
    """What a worker does: answer lots on its standard streams until they close."""
    gc.disable()  # a syntax tree has no cycles; walking it for some takes a fifth of the time
    while True:
        try:
            lot = _receive(sys.stdin.buffer)
        except EOFError:
            return
        _send(sys.stdout.buffer, [(key, digest(content, how).packed) for key, how, content in lot])


def _send(stream: IO[bytes], value: object) -> None:
    data = pickle.dumps(value)
    stream.write(len(data).to_bytes(8, "little") + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> Any:
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError
    return pickle.loads(stream.read(int.from_bytes(head, "little")))
