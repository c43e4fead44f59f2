"""Between synchronous code and event loops: one way in, one way aside, and a handle that stops what was begun.

Everything synchronous that needs a coroutine's result calls ``run_sync``. Nothing here keeps a loop or a thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")
_hand: ContextVar[Callable[[Callable[[], None]], None] | None] = ContextVar("hand", default=None)


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from synchronous code; where a loop already runs (a notebook), in a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_handed(work))
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, asyncio.run, _handed(work)).result()


@contextmanager
def stoppable(hand: Callable[[Callable[[], None]], None]) -> Iterator[None]:
    """Hand out what cancels the work that is begun inside: a function that any thread may call.

    The work then ends in ``asyncio.CancelledError``; its runs are left as they are and can be resumed.
    """
    token = _hand.set(hand)
    try:
        yield
    finally:
        _hand.reset(token)


async def _handed(work: Coroutine[Any, Any, T]) -> T:
    hand, loop, task = _hand.get(), asyncio.get_running_loop(), asyncio.current_task()

    def stop() -> None:
        with suppress(RuntimeError):  # the loop is closed: the work has ended
            if task is not None:
                loop.call_soon_threadsafe(task.cancel)

    if hand is not None:
        hand(stop)
    return await work


async def in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread and loop of its own: what computes there without end stops nothing here.

    Where the waiting is cancelled, as by ``asyncio.timeout``, the thread is left to itself; it ends with the process.
    """
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(asyncio.run(work))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="clew-aside", daemon=True).start()
    return await asyncio.wrap_future(done)
