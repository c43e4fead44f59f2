"""Between synchronous code and event loops: one way in, one way aside, and a handle that stops what was begun.

Everything synchronous that needs a coroutine's result calls ``run_sync``. Nothing here keeps a loop or a thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")
GRACE = 3.0  # seconds that work has to end once it is cancelled
_hand: ContextVar[Callable[[Callable[[], None]], None] | None] = ContextVar("hand", default=None)


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from synchronous code; where a loop already runs (a notebook), in a thread of its own.

    A first interrupt cancels the work, which then has ``GRACE`` seconds; a second one leaves everything at once.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, _run, work).result()


def _run(work: Coroutine[Any, Any, T]) -> T:
    runner, closes = asyncio.Runner(), True
    try:
        return runner.run(_handed(work))
    except KeyboardInterrupt:  # where it is the second, the work has not ended, and may never do
        closes = runner.run(_ended())
        raise
    finally:
        if closes:
            runner.close()


async def _ended() -> bool:
    """Whether all work of this loop has ended, within a while; to close the loop would wait for it."""
    await shut(asyncio.all_tasks() - {asyncio.current_task()})
    await asyncio.sleep(0)
    return len(asyncio.all_tasks()) == 1


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
    done = await work
    await shut(asyncio.all_tasks() - {task})
    return done


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


async def shut(tasks: Iterable[asyncio.Future[Any]]) -> bool:
    """Cancel tasks and wait ``GRACE`` seconds until they have ended; False where some did not heed it and were closed.

    What swallows its cancellation is closed from outside: ``close`` raises GeneratorExit at the place it waits at.
    """
    left = set(tasks)
    for task in left:
        task.cancel()
        task.add_done_callback(_heard)
    if left:
        _, left = await asyncio.wait(left, timeout=GRACE)
    for task in left:
        coroutine = task.get_coro() if isinstance(task, asyncio.Task) else None
        with suppress(RuntimeError):  # it swallows that too: it is left to itself
            if coroutine is not None:
                coroutine.close()
        task.cancel()  # wakes the task, which finds its coroutine closed
    return not left


def _heard(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()  # nobody waits for it any more: it is not reported as unheard
