"""Runs sent as spans as they end, whichever process makes them. ``clew export --otel URL --follow`` calls it.

A run waits for its reward, for a while. A receiver that does not answer is tried again: nothing is passed over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from clew.core.errors import ClewError, UnknownName, Unreachable
from clew.exchange.telemetry.send import send
from clew.store import Keeper, Run

EVERY = 0.5  # seconds between two looks
VERDICT = 10.0  # seconds for which an ended run waits for its reward
AGAIN = 5.0  # seconds before a receiver that did not answer is tried again


def follow(
    store: Keeper,
    chosen: Callable[[], Iterable[Run]],
    url: str,
    told: Callable[[int, ClewError | None], object],
    *,
    over: Callable[[], bool] = lambda: False,
    pause: Callable[[float], object] = time.sleep,
) -> int:
    """Send each chosen run once it has ended, those that have ended already too; gives their number.

    Args:
        chosen: the runs that are asked for, as they are now; called when the store has changed.
        told: called with the number of runs sent so far and, where the receiver did not answer, why.
        over: whether to stop, once what has ended by then has been sent.

    Raises:
        BadInput: the address is none. MissingExtra: the extra ``otel`` is not installed. Unreachable: the receiver does
        not answer, and it is to stop.
    """
    sent, ended = set[str](), dict[str, float]()
    mark: int | None = None
    fresh = 0.0  # until when the store may still say more of what has just ended
    while True:
        last, now, (after, _) = over(), time.monotonic(), store.changed(mark)
        fresh = now + VERDICT if after != mark else fresh
        mark, wait = after, EVERY
        for run in chosen() if last or now <= fresh else ():
            if run.id not in sent and run.stop:
                ended.setdefault(run.id, now)
        for run_id, since in list(ended.items()):
            if not (last or now - since >= VERDICT or _judged(store, run_id)):
                continue
            try:
                send([Run(store, run_id)], url)
            except Unreachable as error:
                if last:
                    raise
                told(len(sent), error)
                wait = AGAIN
                break
            except UnknownName:
                pass  # it was removed meanwhile
            else:
                sent.add(run_id)
                told(len(sent), None)
            del ended[run_id]
        if last:
            return len(sent)
        pause(wait)


def _judged(store: Keeper, run: str) -> bool:
    try:
        return Run(store, run).reward is not None
    except UnknownName:
        return True
