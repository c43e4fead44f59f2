"""An embedding model for tests of a memory's doors, as an object and behind the loopback endpoint of tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

WORDS = ("pay", "invoice", "bakery", "whales", "sing", "twice", "money")


class Meanings:
    """Knows seven words, and that to settle a bill is to pay an invoice."""

    ref, seconds = "http://model/v1#seven-words", 5.0

    def __init__(self) -> None:
        self.queries = 0
        self.fails: Exception | None = None

    def query(self, text: str, seconds: float) -> np.ndarray:
        self.queries += 1
        if self.fails is not None:
            raise self.fails
        return vector(text)

    def texts(self, texts: Sequence[str], seconds: float) -> np.ndarray:
        return np.stack([vector(text) for text in texts])


def vector(text: str) -> np.ndarray:
    """float32 [8], of length 1."""
    said = text.lower().replace("settle", "pay").replace("bill", "invoice")
    row = np.array([0.05, *(min(3, said.count(word)) for word in WORDS)], np.float32)
    unit: np.ndarray = row / np.sqrt((row * row).sum())
    return unit


def answered(body: dict[str, Any]) -> dict[str, Any]:
    """What an endpoint answers to a request for vectors."""
    rows = [{"index": at, "embedding": vector(text).tolist()} for at, text in enumerate(body["input"])]
    return {"data": rows, "usage": {"prompt_tokens": len(rows)}}
