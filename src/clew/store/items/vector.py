"""``Vector``: what an embedding model made of one item's text, kept beside the item and gone when it is deleted.

Both stores keep vectors in one table, an item's one for each model. They can be made again at any time: no merge takes
them over and no export writes them. Nothing here knows what the numbers mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from clew.core.errors import BadInput
from clew.store.items.entry import NAME

MODEL, BYTES = 500, 32_768  # characters of a model's reference, bytes of a vector's numbers
DIGEST = 16  # bytes


class Vector(NamedTuple):
    """One vector. ``text``: 16 bytes of digest of what was embedded and by which model; ``values``: the numbers."""

    item: str  # id of the item
    model: str  # reference of the model
    text: bytes
    values: bytes


def check_vectors(vectors: Iterable[Vector]) -> list[Vector]:
    """The vectors, each of which a store can keep.

    Raises:
        BadInput: one is empty or too large.
    """
    found = list(vectors)
    for one in found:
        sizes = 0 < len(one.item) <= NAME and 0 < len(one.model) <= MODEL and len(one.text) == DIGEST
        if not sizes or not 0 < len(one.values) <= BYTES:
            remedy = f"Its model has up to {MODEL} characters, its numbers up to {BYTES:,} bytes."
            raise BadInput(f"a vector of item {one.item[:NAME]!r} cannot be kept", remedy=remedy)
    return found
