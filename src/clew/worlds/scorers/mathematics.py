"""The scorer ``mathematics``: whether two expressions are equal, by the package ``math-verify`` (extra ``math``).

What a model writes goes to a computer algebra system, which can compute without end. So it goes to a process of its own
with bounds on memory and time, started at the first reply; see ``math_worker``. Nothing of it may be parsed here.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from clew.core.errors import BadInput, MissingExtra, WorldError

LONGEST = 20_000  # last characters of a reply that are read
STARTS = 120.0  # seconds in which the process has loaded its packages
WORKER = Path(__file__).with_name("math_worker.py")


class Mathematics:
    """1 where the reply's last expression, or its boxed one, equals the answer; else 0.

    ``1/2``, ``0.5`` and ``\\frac{1}{2}`` are equal, and so are sets, intervals and equations by math-verify's rules. A
    reply that cannot be parsed within the time gets 0.

    Args:
        seconds: for one reply, parsing and comparing together.

    Raises:
        MissingExtra: math-verify is not installed.
    """

    def __init__(self, seconds: float = 10.0) -> None:
        if find_spec("math_verify") is None:
            raise MissingExtra("math-verify is not installed", remedy='Run pip install "clew[math]".')
        self.seconds, self._lock = seconds, threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    async def __call__(self, reply: str, answer: object) -> float:
        """Raises BadInput where the answer is no expression, WorldError where the process cannot be started."""
        return await asyncio.to_thread(self._ask, reply[-LONGEST:], str(answer))

    def _ask(self, reply: str, answer: str) -> float:
        with self._lock:
            process = self._process
            if process is None or process.poll() is not None:
                process = self._process = self._start()
            told = _line(process, json.dumps([answer, reply]), self.seconds)
            if not told:  # the process took too long or too much memory
                _end(process)  # its output closes before the system counts it as ended: the next reply must not meet it
                return 0.0
        value = json.loads(told)
        if value is None:
            remedy = "Mend the row, or use `exact` or `numeric`."
            raise BadInput(f"the answer {answer[:60]!r} is no expression that math-verify reads", remedy=remedy)
        return float(value)

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-I", str(WORKER)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        weakref.finalize(self, _end, process)
        if _line(process, "", STARTS).strip() != "ready":
            raise WorldError("math-verify cannot be loaded", remedy="`python -c 'import math_verify'` tells why.")
        return process


def _line(process: subprocess.Popen[str], order: str, seconds: float) -> str:
    """The line that answers an order; empty where none came in time: the process is then ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    late = threading.Timer(seconds, process.kill)
    late.start()
    try:
        if order:
            process.stdin.write(order + "\n")
            process.stdin.flush()
        return process.stdout.readline()
    except OSError:
        return ""
    finally:
        late.cancel()


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):  # an order that was never read is written again as its pipe is closed
                pipe.close()
