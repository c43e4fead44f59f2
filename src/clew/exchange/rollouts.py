"""Released rollouts: solutions with the share of right continuations after each token, and the cliffs they show.

``clew audit cliffs FILE`` calls it. A line is a JSON object: ``tokens``, ``potential`` (of each token the share of
``n_rollouts`` continuations that end right when they start right after it) and, where known, ``id``, ``model`` and
``cliffs`` with the ``position`` of each that its authors list (beaver-22/Cliff-token). There is nothing here to sample
from; no figure may claim more than the released shares say.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clew.core.errors import BadInput, BadRecord
from clew.exchange import files
from clew.exchange.files import brief
from clew.methods.cliffs import Counts, statistics

NEEDS = 'Each line needs "tokens", "potential" (a share in [0, 1] after each token) and "n_rollouts".'


class Rollouts(NamedTuple):
    """One solution. right: of ``n`` continuations after each token. listed: positions that its authors call cliffs."""

    id: str
    model: str
    tokens: tuple[str, ...]
    right: tuple[int, ...]
    n: int
    listed: frozenset[int] = frozenset()


class Drop(NamedTuple):
    """A token at which the published rule fires. drop: of the released shares, with its 95 % interval.

    p: of "at most the margin" on the places around, which did not fire; kept: whether it is at most the level.
    """

    path: str
    position: int
    token: str
    before: float
    after: float
    low: float
    high: float
    p: float
    kept: bool
    listed: bool


def read(path: Path) -> Iterator[Rollouts]:
    """The solutions of a file.

    Raises:
        BadInput: the file cannot be opened. BadRecord: a line is no solution.
    """
    for number, line in files.lines(path):
        where = f"{path.name}:{number}"
        try:
            yield _rollouts(files.loads(line), where)
        except BadRecord as error:
            raise BadRecord(f"{where}: {error.message}", remedy=NEEDS) from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadRecord(f"{where}: {brief(str(error))}", remedy=NEEDS) from None


def _rollouts(data: Any, where: str) -> Rollouts:
    if not isinstance(data, dict) or not all(isinstance(data.get(name), list) for name in ("tokens", "potential")):
        raise BadRecord("no tokens or no potential")
    tokens, shares, n = data["tokens"], data["potential"], data.get("n_rollouts")
    if not isinstance(n, int) or not 2 <= n <= 1_000_000:
        raise BadRecord(f"n_rollouts is {brief(n)}")
    if len(tokens) < len(shares):  # nothing is sampled after an end token
        raise BadRecord(f"{len(tokens)} tokens and {len(shares)} shares")
    for share in shares:
        if not isinstance(share, (int, float)) or not 0 <= share <= 1:
            raise BadRecord(f"a potential is {brief(share)}")
    right = tuple(round(share * n) for share in shares)
    cliffs: list[Any] = list(data.get("cliffs") or ())
    listed = [c["position"] for c in cliffs if isinstance(c, dict) and isinstance(c.get("position"), int)]
    if len(listed) < len(cliffs):
        raise BadRecord(f"cliffs without a position: {brief(cliffs)}")
    return Rollouts(
        str(data.get("id") or where), str(data.get("model") or ""), tuple(map(str, tokens)), right, n, frozenset(listed)
    )


def drops(it: Rollouts, margin: float = statistics.MARGIN, level: float = statistics.LEVEL) -> list[Drop]:
    """Where the published rule fires in a solution, and whether the places around share the drop."""
    every = Counts.all_decided(statistics.early_stop(it.right), it.n)
    first, then = every.take(slice(None, -1)), every.take(slice(1, None))
    found = np.flatnonzero(statistics.fires(first, then, margin, level)) + 1
    before, after = every.take(found - 1), every.take(found)
    low, high = statistics.drop_interval(before, after)
    p = statistics.p_values(*statistics.around(it.right, found, it.n), margin)
    return [
        Drop(
            it.id,
            int(position),
            it.tokens[position],
            float(before.potential[i]),
            float(after.potential[i]),
            float(low[i]),
            float(high[i]),
            float(p[i]),
            bool(p[i] <= level),
            int(position) in it.listed,
        )
        for i, position in enumerate(found)
    ]


def released(path: Path, margin: float, level: float) -> tuple[list[Rollouts], list[Drop]]:
    """Every solution of a file, and what falls in each.

    Raises:
        BadInput: the file cannot be opened, or is empty. BadRecord: a line is no solution.
    """
    paths = list(read(path))
    if not paths:
        raise BadInput(f"{path} is empty", remedy=NEEDS)
    return paths, [drop for it in paths for drop in drops(it, margin, level)]
