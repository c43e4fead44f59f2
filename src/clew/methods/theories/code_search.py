"""Fits a theory in source by search: many sets of parameters are asked in one run of the sandbox.

The verb calls it where ``theory_writer`` gave a theory. It takes the place of ``choice_fits.leave_one_out``, whose
gradients would need a run of the sandbox each. An experiment that is left out must not steer the sets that are tried
for it: beside the first draws each experiment left out has draws of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clew.core.errors import BadInput
from clew.methods.theories.choice_fits import F64, Cells, Choices, Fit, HeldOut, cells
from clew.methods.theories.theory_code import TheoryCode
from clew.sandbox.sandbox import Sandbox

DRAWS, ROUNDS, NEAR = 96, 3, 0.15  # sets of the first round; rounds; spread about the best, in shares of a range


def search(
    theory: TheoryCode, box: Sandbox, experiments: Sequence[Choices], *, draws: int = DRAWS, seed: int = 0
) -> HeldOut:
    """Each experiment's profile error under the best parameters for all others, of those that were tried.

    Raises:
        BadInput: there are fewer than two experiments. TheoryFailed: the theory gave no probabilities.
    """
    if len(experiments) < 2:
        raise BadInput("one experiment cannot be left out", remedy="Give at least two.")
    names, rng, known = list(theory.ranges), np.random.default_rng(seed), [cells(one) for one in experiments]
    ends = np.array([theory.ranges[name] for name in names], float).reshape(-1, 2)

    def errors(units: F64) -> F64:
        """Profile error of each set on each experiment, [sets, experiments]."""
        sets = [dict(zip(names, row, strict=True)) for row in (ends[:, 0] + units * (ends[:, 1] - ends[:, 0])).tolist()]
        asked = zip(experiments, known, strict=True)
        found: F64 = np.stack([_errors(theory.ask(box, one, sets), pairs) for one, pairs in asked], axis=1)
        return found

    first = rng.random((draws if names else 1, len(names)))
    at = errors(first)
    folds = [(first, at) for _ in experiments]
    for turn in range(1, ROUNDS if names else 1):
        near = [
            np.clip(units[_best(table, out)] + rng.normal(0, NEAR / 3 ** (turn - 1), (draws // 4, len(names))), 0, 1)
            for out, (units, table) in enumerate(folds)
        ]
        table = errors(np.concatenate(near))
        parts = np.split(table, len(near))
        folds = [
            (np.concatenate([units, new]), np.concatenate([old, part]))
            for (units, old), new, part in zip(folds, near, parts, strict=True)
        ]
    held, fits = [], []
    for out, (units, table) in enumerate(folds):
        best = _best(table, out)
        held.append(table[best, out])
        values = (ends[:, 0] + units[best] * (ends[:, 1] - ends[:, 0])).tolist()
        fits.append(Fit(dict(zip(names, values, strict=True)), float(np.delete(table[best], out).mean())))
    return HeldOut(np.array(held), tuple(fits))


def _best(table: F64, out: int) -> int:
    """The set with the least mean error over all experiments but one."""
    return int(np.delete(table, out, axis=1).mean(1).argmin())


def _errors(said: F64, pairs: Cells) -> F64:
    """Mean squared error of shares of B over pairs, of probabilities by choice ([sets, n])."""
    m = len(pairs.share)
    shares = np.stack([np.bincount(pairs.of, row, minlength=m) / pairs.counts for row in said])
    found: F64 = ((shares - pairs.share) ** 2).mean(1)
    return found
