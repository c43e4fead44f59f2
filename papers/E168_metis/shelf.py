"""Where the items of a stream are kept and recalled from: a memory of a store, or the same without a store.

``StoreShelf`` is ``clew.harness.memory`` as any agent uses it. ``BareShelf`` gives the same items for the same query, ranked by
the same code over the same texts, and writes nothing down; tier ``store`` and a test hold the two against each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, cast

import numpy as np

from clew.harness.memory import Memory
from clew.harness.memory.item_kinds import text_of
from clew.harness.memory.ranking import Ranking
from clew.harness.run.live import LiveRun
from papers.E168_metis.errands import Bare
from papers.E168_metis.player import Errand

NAME = "apps"  # of the memory in a store


class Found(NamedTuple):
    """An item that was recalled."""

    id: str
    text: str


class Shelf(Protocol):
    """The items of one memory."""

    async def recall(self, run: Errand, query: str, k: int, app: str, kinds: Sequence[str]) -> list[Found]: ...
    def add(self, kind: str, body: Mapping[str, str], app: str, place: str) -> str: ...
    def replace(self, item: str, body: Mapping[str, str]) -> str: ...
    def retire(self, item: str, why: str) -> None: ...


class StoreShelf:
    """A memory of a store."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    async def recall(self, run: Errand, query: str, k: int, app: str, kinds: Sequence[str]) -> list[Found]:
        found = await cast(LiveRun, run).memory(self.memory.name).recall(query, k=k, scope=app, kinds=kinds)
        assert not found.error, found.error
        return [Found(item.id, item.text) for item in found.items]

    def add(self, kind: str, body: Mapping[str, str], app: str, place: str) -> str:
        return self.memory.add(kind, body, scope=app, provenance=place).id

    def replace(self, item: str, body: Mapping[str, str]) -> str:
        return self.memory.edit(item, body).id

    def retire(self, item: str, why: str) -> None:
        self.memory.retire(item, why)


class _Held(NamedTuple):
    kind: str
    text: str
    app: str


class BareShelf:
    """The same in this process alone."""

    def __init__(self) -> None:
        self._ranking = Ranking()
        self._items: list[_Held] = []
        self._ended: set[int] = set()
        self._new: list[str] = []
        self._query, self._scores = "", np.zeros(0, np.float32)

    async def recall(self, run: Errand, query: str, k: int, app: str, kinds: Sequence[str]) -> list[Found]:
        await cast(Bare, run).recall()
        if self._new or query != self._query:
            self._ranking.add(self._new)
            self._new = []
            self._query, self._scores = query, self._ranking.scores(query)
        order = np.argsort(-self._scores, kind="stable")[: int((self._scores > 0).sum())]
        fit = (at for at in order.tolist() if self._stands(at, app, kinds))
        return [Found(str(at), self._items[at].text) for _, at in zip(range(k), fit, strict=False)]

    def _stands(self, at: int, app: str, kinds: Sequence[str]) -> bool:
        item = self._items[at]
        return item.kind in kinds and item.app == app and at not in self._ended

    def add(self, kind: str, body: Mapping[str, str], app: str, place: str) -> str:
        text = text_of(kind, body)
        self._items.append(_Held(kind, text, app))
        self._new.append(f"{text} {app}")
        return str(len(self._items) - 1)

    def replace(self, item: str, body: Mapping[str, str]) -> str:
        held = self._items[int(item)]
        self._ended.add(int(item))
        return self.add(held.kind, body, held.app, "")

    def retire(self, item: str, why: str) -> None:
        self._ended.add(int(item))
