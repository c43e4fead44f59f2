"""Where the items of a stream are kept and recalled from: a memory of a store, or the same without a store.

``StoreShelf`` is ``clew.harness.memory`` as any agent uses it. ``BareShelf`` gives the same items for the same query,
ranked by the same formula over the same texts, and keeps no index and no ledger; tier ``store`` and a test hold the two
against each other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, cast

from clew.harness.memory import Memory
from clew.harness.memory.item_kinds import text_of
from clew.harness.memory.ranking import words
from clew.harness.run.live import LiveRun
from papers.E168_metis.errands import Bare
from papers.E168_metis.player import Errand

NAME = "apps"  # of the memory in a store
K1, B = 1.5, 0.75  # of BM25


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
    words: Counter[str]  # with the app's name, as the store's index has them


class BareShelf:
    """The same in this process alone."""

    def __init__(self) -> None:
        self._items: list[_Held] = []
        self._ended: set[int] = set()
        self._holding: Counter[str] = Counter()  # word -> items that have it
        self._length = 0  # words of all items

    async def recall(self, run: Errand, query: str, k: int, app: str, kinds: Sequence[str]) -> list[Found]:
        await cast(Bare, run).recall()
        asked = list(dict.fromkeys(words(query)))
        fit = (
            at for at, one in enumerate(self._items) if one.kind in kinds and one.app == app and at not in self._ended
        )
        scores = sorted((-self._score(asked, self._items[at].words), at) for at in fit)
        return [Found(str(at), self._items[at].text) for score, at in scores[:k] if score < 0]

    def _score(self, asked: Sequence[str], own: Counter[str]) -> float:
        """BM25 as ``harness.memory.ranking`` has it (Lucene's form, k1 1.5, b .75), over all items ever added."""
        n = len(self._items)
        worn = K1 * (1 - B + B * own.total() * n / self._length)
        held = ((own[word], self._holding[word]) for word in asked if word in own)
        return sum(math.log(1 + (n - h + 0.5) / (h + 0.5)) * tf / (tf + worn) for tf, h in held)

    def add(self, kind: str, body: Mapping[str, str], app: str, place: str) -> str:
        text = text_of(kind, body)
        held = _Held(kind, text, app, Counter(words(f"{text} {app}")))
        self._items.append(held)
        self._holding.update(held.words.keys())
        self._length += held.words.total()
        return str(len(self._items) - 1)

    def replace(self, item: str, body: Mapping[str, str]) -> str:
        held = self._items[int(item)]
        self._ended.add(int(item))
        return self.add(held.kind, body, held.app, "")

    def retire(self, item: str, why: str) -> None:
        self._ended.add(int(item))
