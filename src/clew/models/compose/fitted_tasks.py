"""Which tasks a router was fitted on: marks in what its folder tells of the fit, so that none of them counts later.

``clew route fit`` and ``clew route evolve`` write them, ``clew route report --with`` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from clew.core.keys import value_digest

FIELD, WIDE, MOST = "fitted on", 10, 50_000  # hexadecimal digits of a mark; tasks


def mark(question: str) -> str:
    """The mark of a task, by its id; of a question of several worlds, by what stands behind the world's name."""
    return value_digest(question.rpartition("\n")[2]).hex()[:WIDE]


def told(questions: Iterable[str], earlier: frozenset[str] | None = frozenset()) -> str:
    """The field's value for these tasks and those marked earlier. Empty, for "not known", where ``earlier`` is None or
    there are more than 50,000, which would not fit."""
    found = sorted({*(earlier or ()), *map(mark, questions)})
    return "" if earlier is None or len(found) > MOST else "".join(found)


def marks(about: Mapping[str, Any]) -> frozenset[str] | None:
    """Marks of the tasks that a router was fitted on; None where its folder does not tell."""
    said = about.get(FIELD)
    if not isinstance(said, str) or not said or len(said) % WIDE:
        return None
    return frozenset(said[i : i + WIDE] for i in range(0, len(said), WIDE))
