"""Limits that concurrent runs share at one endpoint: request and token rates, pauses, a budget."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from clew.core.errors import BadInput, Refused


class Bucket:
    """Admits ``per_minute`` units a minute, evenly, with bursts of at most one second's worth.

    Units are taken at once and may be owed; ``take`` gives the seconds to wait until the debt is paid.
    """

    def __init__(self, per_minute: float | None, clock: Callable[[], float]) -> None:
        if per_minute is not None and per_minute <= 0:
            raise BadInput(f"a rate of {per_minute} a minute", remedy="Give a rate above 0, or None for no limit.")
        self.rate = None if per_minute is None else per_minute / 60
        self._clock = clock
        self._level = self._full = max(1.0, self.rate or 0.0)
        self._at = clock()

    def take(self, units: float) -> float:
        if self.rate is None:
            return 0.0
        now = self._clock()
        self._level = min(self._full, self._level + (now - self._at) * self.rate)
        self._at = now
        self._level -= units
        return max(0.0, -self._level / self.rate)

    def give(self, units: float) -> None:
        """Hand back what was taken and not used; negative for what was used beyond it."""
        self._level += units


class Purse:
    """Dollars that one or several endpoints may spend together, in whatever event loop or thread."""

    def __init__(self, most: float | None = None) -> None:
        self.most, self.spent, self._promised = most, 0.0, 0.0
        self.estimated = 0.0  # of what was spent: for tokens that the endpoint did not count
        self._lock = threading.Lock()

    def promise(self, dollars: float) -> None:
        """Set money aside before a request is sent.

        Raises:
            Refused: there could be too little; nothing was sent.
        """
        with self._lock:
            if self.most is not None and self.spent + self._promised + dollars > self.most:
                guessed = f" (${self.estimated:.4f} of it estimated by the texts)" if self.estimated else ""
                raise Refused(
                    f"a request of up to ${dollars:.4f} could exceed the budget of ${self.most:g}: "
                    f"${self.spent:.4f} spent{guessed}, ${self._promised:.4f} under way; it was not sent",
                    remedy="Raise max_cost, lower max_tokens, or use a cheaper model.",
                )
            self._promised += dollars

    def pay(self, promised: float, spent: float, estimated: bool = False) -> None:
        """A request has ended, and cost so much of what was set aside for it, or about so much."""
        with self._lock:
            self._promised -= promised
            self.spent += spent
            self.estimated += spent if estimated else 0.0


class RateLimiter:
    """One per endpoint, shared by all that ask there, in whatever event loop or thread.

    Args:
        requests: most requests a minute.
        tokens: most prompt and completion tokens a minute.
        max_cost: US dollars that may be spent in all, or a Purse that other endpoints spend from too.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        requests: float | None = None,
        tokens: float | None = None,
        max_cost: float | Purse | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._requests, self._tokens = Bucket(requests, clock), Bucket(tokens, clock)
        self._until = 0.0
        self.purse = max_cost if isinstance(max_cost, Purse) else Purse(max_cost)

    def enter(self, tokens: float) -> float:
        """Take one request of so many tokens; gives the seconds to wait before it may be sent."""
        with self._lock:
            paused = self._until - self._clock()
            return max(0.0, paused, self._requests.take(1), self._tokens.take(tokens))

    def paused(self) -> float:
        """Seconds for which the server has asked to be left alone."""
        return max(0.0, self._until - self._clock())

    def pause(self, seconds: float) -> None:
        """The server asked everybody to wait."""
        with self._lock:
            self._until = max(self._until, self._clock() + seconds)

    def settle(self, taken: float, used: float) -> None:
        """Correct the tokens of a request once they are known."""
        with self._lock:
            self._tokens.give(taken - used)
