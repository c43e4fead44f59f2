"""How well any theory could do: the error that is left because few people were asked.

``verdict_words`` calls it. A theory whose error comes near it cannot be told from the truth on these data, and one that
stays far above it is not adequate, however well it does against others. It must never be fitted to anything.
"""

from __future__ import annotations

import numpy as np

from clew.core.errors import BadInput
from clew.methods.theories.choice_fits import Choices, cells

SPLITS = 200


def noise_floor(choices: Choices, *, splits: int = SPLITS, seed: int = 0) -> float:
    """The mean squared error of the true shares of B against the shares that were seen, by halves of the people.

    Two halves of n people differ by four times the variance of a share over all n, so the floor is a quarter of their
    mean squared difference, over the pairs that both halves saw and over random halves. Zero would be no noise.

    Raises:
        BadInput: there are fewer than four people.
    """
    known, (people, who) = cells(choices), np.unique(choices.subject, return_inverse=True)
    if len(people) < 4:
        raise BadInput(f"{len(people)} people cannot be halved", remedy="Give the choices of at least four.")
    m, chose = len(known.share), np.asarray(choices.chose_b, float)
    place = who.ravel() * m + known.of
    count = np.bincount(place, minlength=len(people) * m).reshape(-1, m)
    total = np.bincount(place, chose, minlength=len(people) * m).reshape(-1, m)
    rng, found = np.random.default_rng(seed), []
    for _ in range(splits):
        half = rng.permutation(len(people)) < len(people) // 2
        n, o = count[half].sum(0), count[~half].sum(0)
        both = (n > 0) & (o > 0)
        if both.any():
            apart = total[half].sum(0)[both] / n[both] - total[~half].sum(0)[both] / o[both]
            found.append(float(np.mean(apart**2)) / 4)
    if not found:
        raise BadInput("no pair was seen by two halves of the people", remedy="Show the same pairs to more people.")
    return float(np.mean(found))
