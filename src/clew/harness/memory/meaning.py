"""Vectors of what items say, as an embedding model has it: read from the store, asked for, and compared with a query's.

``recalling.py`` keeps one ``Meaning`` beside the word index of a memory where its user named a model. What an endpoint
or a file gives is a stranger's: a vector that does not fit the others is as none. It must never stop a recall: an item
without a vector is ranked by its words.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from clew.core.errors import BadInput, ContextOverflow, Refused
from clew.core.keys import digest, encode
from clew.core.values import F32
from clew.store.base import Keeper
from clew.store.entries import Vector

LOT = 64  # texts of one request
LONG, SHORT = 4000, 1000  # characters of a text that are embedded, and of one that is refused so
EVEN = 4  # decimals of a likeness: a difference below is one of the machine's rounding
KEY, HALF = b"clew.vector.1", np.dtype("<f2")  # what names a vector's text; how its numbers are kept


class Embeds(Protocol):
    """An embedding model; ``models.remote.embedder.Embedder`` is one. Vectors are float32 and have length 1."""

    @property
    def ref(self) -> str: ...  # names the model; vectors of another name are never compared with its own
    @property
    def seconds(self) -> float: ...  # that a recall may wait for it
    def query(self, text: str, seconds: float) -> F32: ...
    def texts(self, texts: Sequence[str], seconds: float) -> F32: ...


class Meant(NamedTuple):
    """A query as an embedding model has it: the model's reference, and the vector, float32 [numbers]."""

    model: str
    vector: F32

    @property
    def told(self) -> dict[str, str]:
        """As the record of a recall has it."""
        return {"model": self.model, "vector": base64.b64encode(self.vector.astype(HALF).tobytes()).decode()}


def read_meant(told: object) -> Meant | None:
    """What ``Meant.told`` wrote; None where it is none."""
    model, text = (told.get("model"), told.get("vector")) if isinstance(told, Mapping) else (None, None)
    if not isinstance(model, str) or not isinstance(text, str):
        return None
    try:
        row = _numbers(base64.b64decode(text, validate=True))
    except ValueError:
        return None
    return None if row is None else Meant(model, row)


def ask_query(embedder: Embeds, text: str, seconds: float) -> Meant:
    """A query as a model has it. Raises what the model raises."""
    try:
        row = embedder.query(text[:LONG], seconds)
    except (Refused, ContextOverflow):
        if len(text) <= SHORT:
            raise
        row = embedder.query(text[:SHORT], seconds)
    return Meant(embedder.ref, _numbers(row.astype(HALF).tobytes()))  # type: ignore[arg-type]


class Meaning:
    """The vectors of one list of texts by one model. Texts are numbered as they were added. ``fresh``: what the store
    has is not read, as all are made anew."""

    def __init__(self, model: str, fresh: bool = False) -> None:
        self.model, self._fresh = model, fresh
        self._names: list[tuple[str, bytes]] = []  # item and digest of its text
        self._rows = np.zeros((0, 0), np.float32)  # with room for more
        self._has = np.zeros(0, bool)
        self._looked = 0  # texts whose vectors were looked for in the store
        self._refused = set[int]()

    def add(self, items: Sequence[str], texts: Sequence[str]) -> None:
        """Add texts, each with the id of its item."""
        key = encode(self.model)
        self._names += [(item, digest(KEY, key, encode(text))) for item, text in zip(items, texts, strict=True)]
        if len(self._names) > len(self._has):
            self._grow(2 * len(self._names), self._rows.shape[1])

    def read(self, store: Keeper, again: bool = False) -> None:
        """Take in vectors that the store has of texts that were added since; ``again``: of all that lack one."""
        if self._fresh:
            return
        first, self._looked = 0 if again else self._looked, len(self._names)
        lacking = [at for at in range(first, len(self._names)) if not self._has[at]]
        known = {one.item: one for one in store.vectors(self.model, [self._names[at][0] for at in lacking])}
        for at in lacking:
            one = known.get(self._names[at][0])
            row = _numbers(one.values) if one is not None and one.text == self._names[at][1] else None
            if row is not None and self.fits(len(row)):
                self._put(at, row)

    def lacking(self, refused: bool = False) -> list[int]:
        """Texts that have no vector; with ``refused`` also those that the model refuses."""
        found: list[int] = np.flatnonzero(~self._has[: len(self._names)]).tolist()
        return found if refused or not self._refused else [at for at in found if at not in self._refused]

    def take(self, store: Keeper, places: Sequence[int], rows: Sequence[F32 | None]) -> None:
        """Keep what the model made of texts; None of one that it refused.

        Raises:
            BadInput: the vectors have another length than those that are here.
        """
        kept: list[Vector] = []
        for at, row in zip(places, rows, strict=True):
            data = b"" if row is None else row.astype(HALF).tobytes()
            if (made := _numbers(data)) is None:
                self._refused.add(at)
                continue
            self.check(len(made))
            self._put(at, made)
            kept.append(Vector(self._names[at][0], self.model, self._names[at][1], data))
        store.put_vectors(kept)

    def fits(self, numbers: int) -> bool:
        """Whether vectors of so many numbers can be compared with those that are here."""
        return self._rows.shape[1] in (0, numbers)

    def check(self, numbers: int) -> None:
        """As ``fits``.

        Raises:
            BadInput: they cannot.
        """
        if not self.fits(numbers):
            told = f"{self.model} gives vectors of {numbers:,} numbers and gave {self._rows.shape[1]:,} before"
            raise BadInput(told, remedy="`clew memory embed --again` makes those of the items anew.")

    def likeness(self, vector: F32) -> F32:
        """float32 [texts]: the cosine of each text with a query, to four decimals; -inf where a text has no vector."""
        size = len(self._names)
        found = np.full(size, -np.inf, np.float32)
        if self._rows.shape[1] == len(vector):
            has = self._has[:size]
            found[has] = np.round(self._rows[:size] @ vector, EVEN)[has]
        return found

    def _put(self, at: int, row: F32) -> None:
        if not self._rows.shape[1]:
            self._grow(len(self._has), len(row))
        self._rows[at], self._has[at] = row, True

    def _grow(self, texts: int, numbers: int) -> None:
        rows, has = np.zeros((texts, numbers), np.float32), np.zeros(texts, bool)
        rows[: len(self._rows), : self._rows.shape[1]], has[: len(self._has)] = self._rows, self._has
        self._rows, self._has = rows, has


def nearest(likeness: F32) -> list[int]:
    """Places of texts that have a vector, the likest first, of equals the first."""
    order = np.argsort(-likeness, kind="stable")
    return [int(at) for at in order[: int(np.isfinite(likeness).sum())]]


def ask_texts(embedder: Embeds, texts: Sequence[str], until: float) -> list[F32 | None]:
    """The vectors of at most 64 texts; None of one that the model refuses, also cut short.

    Args:
        until: seconds of the monotonic clock at which it ends.

    Raises:
        Unreachable: the endpoint does not answer, or not in time.
    """
    try:
        return [*embedder.texts([text[:LONG] for text in texts], max(0.001, until - time.monotonic()))]
    except (Refused, ContextOverflow):
        if len(texts) == 1 and len(texts[0]) <= SHORT:
            return [None]
        if len(texts) == 1:
            return ask_texts(embedder, [texts[0][:SHORT]], until)
        half = len(texts) // 2
        return ask_texts(embedder, texts[:half], until) + ask_texts(embedder, texts[half:], until)


def _numbers(data: bytes) -> F32 | None:
    """A vector as it is kept, float32 of length 1; None where it is none."""
    if not data or len(data) % HALF.itemsize:
        return None
    row = np.frombuffer(data, HALF).astype(np.float32)
    size = float(np.sqrt((row * row).sum()))
    return row / np.float32(size) if np.isfinite(size) and size > 0 else None
