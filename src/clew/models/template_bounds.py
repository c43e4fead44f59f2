"""Renders chat templates within bounds: a template is a stranger's program, which may loop, recurse, grow or fail.

``rendering`` calls it for every text. What a template does must never end the program that loaded it, nor hold it up.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

from clew.core.errors import BadInput

SECONDS = 5.0  # of the processor, for one text
LOOK = 0.2  # seconds between looks at what is rendered
LONGEST = 1 << 26  # characters of a text
FAILS = (MemoryError, RecursionError, ArithmeticError, TypeError, ValueError, AttributeError, LookupError)
REMEDY = "Use the template of the model's publisher, or set tokenizer.chat_template."


class TooLong(Exception):
    """Raised in a thread whose template takes too long."""


class _Watch:
    """Interrupts threads whose template takes too long; its own thread ends when there was nothing to do."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._until: dict[int, float] = {}  # by thread: what its clock may come to
        self._thread: threading.Thread | None = None

    def enter(self, seconds: float) -> None:
        me = threading.get_ident()
        with self._changed:
            self._until[me] = _used(me) + seconds
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._look, name="clew-templates", daemon=True)
                self._thread.start()
            self._changed.notify()

    def leave(self) -> None:
        me = threading.get_ident()
        with self._changed:
            if self._until.pop(me, None) is None:  # interrupted as it ended
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(me), None)

    def _look(self) -> None:
        with self._changed:
            while True:
                for thread in [one for one, until in self._until.items() if _used(one) > until]:
                    del self._until[thread]
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TooLong))
                if not self._changed.wait(LOOK if self._until else 10.0) and not self._until:
                    self._thread = None
                    return


def _used(thread: int) -> float:
    """Seconds of the processor that a thread has used; where nobody counts them, seconds."""
    clock = getattr(time, "pthread_getcpuclockid", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock(thread))


_watch = _Watch()


def rendered(render: Callable[[], object]) -> str:
    """What a template writes, within ``SECONDS`` of the processor.

    Raises:
        BadInput: it takes too long, writes too much, or fails. Whatever else it raises on purpose goes through.
    """
    try:
        _watch.enter(SECONDS)
        try:
            text = str(render())
        finally:
            _watch.leave()
    except TooLong:
        raise BadInput(f"the chat template did not end within {SECONDS:g} s", remedy=REMEDY) from None
    except FAILS as error:
        told = f"{type(error).__name__}: {error}".rstrip(": ")[:200]
        raise BadInput(f"the chat template fails: {told}", remedy=REMEDY) from None
    if len(text) > LONGEST:
        raise BadInput(f"the chat template wrote {len(text):,} characters", remedy=REMEDY)
    return text
