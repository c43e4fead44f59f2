"""Calibrates a repository's confidence on its own past fixes: each snapshot before a fix is ranked, the fix is the
truth. ``clew diagnose`` calls it. It must never check anything out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from clew.coding.repository.git import Git
from clew.coding.repository.past_fixes import Fix, fixes
from clew.coding.repository.repository import Index, View
from clew.core.errors import BadInput
from clew.methods.diagnose.confidence import F64, FEWEST, Calibration, features, fit
from clew.methods.diagnose.rank import Corpus, rank


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A calibration and how it did on the newer third of the fixes when fitted on the older two thirds.

    ``accuracy``: share of the newer fixes whose file came first; ``surest``: of the surest 40 % of them; ``brier`` and
    ``constant``: Brier score of the confidence and of the older fixes' accuracy alone. ``n`` fixes in all, ``held``
    of them newer.
    """

    calibration: Calibration
    accuracy: float
    surest: float
    brier: float
    constant: float
    n: int
    held: int


def calibrate(
    git: Git, index: Index, n: int = 100, before: str = "HEAD", progress: Callable[[int, int], None] | None = None
) -> Calibrated:
    """Fit the confidence on the last ``n`` fixes.

    Raises:
        BadInput: there is no such commit, or too few past fixes can be told from the history.
    """
    found = fixes(git, n, git.commit(before))
    if len(found) < FEWEST:
        raise BadInput(
            f"{git.folder}: {len(found)} past fixes of 1 to 3 source files in the history of {before}",
            remedy=f"At least {FEWEST} are needed: commits that say 'Fix' or 'Fixes #n', or add a news fragment. "
            "Without a calibration the confidence fitted on other projects is used.",
        )
    rows, right = [], []
    for k, fix in enumerate(reversed(found)):
        x, hit = _row(git, fix, index)
        rows.append(x)
        right.append(hit)
        if progress:
            progress(k + 1, len(found))
    x, y = np.array(rows), np.array(right)
    return _held_out(x, y, f"{len(y)} past fixes of {git.folder.name}")


def _row(git: Git, fix: Fix, index: Index) -> tuple[F64, bool]:
    ranking = rank(Corpus(View(git, fix.parent, index)), fix.report, deep=1)
    first = ranking.paths[0]
    places = ranking.places[first]
    span = (places[0].chunk.start, places[0].chunk.end) if places else (1, 1)
    return features(ranking, first, *span), first in fix.gold


def _held_out(x: F64, y: Sequence[bool] | np.ndarray, source: str) -> Calibrated:
    y = np.asarray(y)
    whole, cut = fit(x, y, source), 2 * len(y) // 3
    try:
        older = fit(x[:cut], y[:cut], source)
    except BadInput:  # so few that the older part alone does not do
        older = whole
    p, newer = np.array([older(row) for row in x[cut:]]), y[cut:].astype(np.float64)
    sure = np.argsort(-p, kind="stable")[: max(round(0.4 * len(p)), 1)]
    return Calibrated(
        whole,
        float(newer.mean()),
        float(newer[sure].mean()),
        float(((p - newer) ** 2).mean()),
        float(((y[:cut].mean() - newer) ** 2).mean()),
        len(y),
        len(newer),
    )
