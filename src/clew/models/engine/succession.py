"""The batch under way and, while it ends under earlier weights, the one before: new weights wait for no reply.

``Engine`` steps both in turn. Each reply is sampled under one version of the weights, whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clew.models.engine.forwards.fast import Fast
from clew.models.engine.forwards.generic import Generic
from clew.models.engine.live_batch import Batch
from clew.models.engine.state import Fresh, Inbox, Result, Waiting


class Succession:
    """Batches of one engine; arguments as of ``Batch``. The earlier one takes no more requests, and is forgotten when
    its last reply has ended. Until then its cache is held beside the new one's.

    Attributes:
        batch: the one that takes requests.
    """

    def __init__(self, forward: Fast | Generic, *how: Any) -> None:
        self.batch, self._how = Batch(forward, *how), how
        self._before: Batch | None = None

    @property
    def active(self) -> int:
        """Requests that have a row, in both."""
        return self.batch.active + (self._before.active if self._before is not None else 0)

    @property
    def open(self) -> bool:
        """Whether newer weights can come into force now. A drafter's caches are those of one batch, which then ends
        first."""
        return not self.batch.active or (self.batch.drafts is None and self._before is None)

    def use(self, version: int, weights: object) -> None:
        """Sample what comes from now on under these weights; ``open`` must hold."""
        if self.batch.active:
            self._before, self.batch = self.batch, Batch(self.batch.forward.again(), *self._how)
            self.batch.counts = self._before.counts
        self.batch.use(version, weights)

    def step(self, results: list[Result]) -> None:
        """One more token for every request that runs."""
        for batch in self._both():
            if batch.active:
                batch.step(results)
        if self._before is not None and not self._before.active:
            self._before = None

    def fresh(self) -> list[tuple[Inbox, Fresh]]:
        """Tokens of streams that have not gone out."""
        return [one for batch in self._both() for one in batch.fresh()]

    def cut(self, entries: Sequence[Waiting], results: list[Result]) -> None:
        """End what these requests sample; what they have is their answer."""
        for batch in self._both():
            batch.cut([entry for entry in entries if not entry.answered], results)

    def abandon(self) -> None:
        """After a failure nothing in a cache can be trusted."""
        self._before = None
        self.batch.abandon()

    def _both(self) -> list[Batch]:
        return [self.batch] if self._before is None else [self._before, self.batch]
