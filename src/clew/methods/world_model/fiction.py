"""A table of invented facts, of which a model of a world is told the rows that an action is about.

``Instruction(fiction=FILE)`` names it. No model can answer such facts from memory, and they do not leave the fiction.
The file is never shown whole, nor to an agent.
"""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from clew.core.errors import BadInput
from clew.core.sources import placed
from clew.methods.world_model.text_files import text_of

LARGEST, MOST = 16 << 20, 20_000  # bytes, rows
WORD = re.compile(r"\w+")
REMEDY = "Give a CSV file with a first line of names, or JSON lines, each an object."


class Fiction:
    """The rows of a file and the words in them.

    Raises:
        BadInput: there is no such file, or it holds no rows.
    """

    def __init__(self, path: str) -> None:
        self.rows = _rows(Path(placed(path)))
        self._where: dict[str, list[int]] = defaultdict(list)
        for i, row in enumerate(self.rows):
            for word in sorted(_words(" ".join(row.values()))):
                self._where[word].append(i)

    def about(self, text: str, most: int = 8) -> list[str]:
        """The rows that share the rarest words with a text, best first, each as one line."""
        worth: dict[int, float] = defaultdict(float)
        for word in sorted(_words(text)):
            found = self._where.get(word, ())
            for i in found:
                worth[i] += 1 / len(found)
        best = sorted(worth, key=lambda i: (-worth[i], i))[:most]
        return ["; ".join(f"{name}: {value}" for name, value in self.rows[i].items()) for i in best]


def _words(text: str) -> set[str]:
    return {word.lower() for word in WORD.findall(text)}


def _rows(path: Path) -> list[dict[str, str]]:
    text = text_of(path, "a table of facts", LARGEST, REMEDY)
    try:
        raw = list(csv.DictReader(text.splitlines())) if path.suffix.lower() == ".csv" else _objects(text)
        rows = [{str(k): str(v) for k, v in row.items() if v is not None} for row in raw if isinstance(row, Mapping)]
    except (ValueError, RecursionError, csv.Error) as error:
        raise BadInput(f"{path} is no table: {error}", remedy=REMEDY) from error
    if not rows or len(rows) != len(raw) or len(rows) > MOST:
        raise BadInput(f"{path} holds {len(rows):,} rows of {len(raw):,}", remedy=f"{REMEDY} At most {MOST:,} rows.")
    return rows


def _objects(text: str) -> list[object]:
    return [json.loads(line) for line in text.splitlines() if line.strip()]
