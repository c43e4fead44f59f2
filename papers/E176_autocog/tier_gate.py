"""The cells of tier gate: V5. How often the gate calls two theories different over twelve attempts.

``rule``: "clew" (as many simulated people as are asked, .02 over twelve attempts), "published" (the same, .05 at each
attempt, as in the human case studies), "default" (the same, .01 at each, the released code's level). ``pair``: the
"same" theory twice under a metric drawn by lot, as a proposer might write one, or two theories under the gate itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from clew.core.keys import derive
from clew.methods.theories.choice_designs import ALPHA, ATTEMPTS, choose, metric, random_design, welch
from clew.methods.theories.choice_forms import KNOWN, Form
from clew.methods.theories.simulated_people import simulate
from papers.experiment import Line, grid

SEEDS, PEOPLE, SEARCHES = range(20), 25, 25
LEVELS = {"clew": ALPHA, "published": 0.05 * ATTEMPTS, "default": 0.01 * ATTEMPTS}
NAMES = ("ttb", "wadd", "tally", "perseveration")
cost = 4.0


def cells(quick: bool) -> Iterator[Line]:
    seeds = list(SEEDS)[: 1 if quick else None]
    yield from grid(rule=LEVELS, pair=["same"], seed=seeds)
    yield from grid(rule=["clew"], pair=["different"], seed=seeds)


def run(setting: Line, seeds: list[int]) -> list[Line]:
    return [_one(setting, seed) for seed in seeds]


def _one(setting: Line, seed: int) -> Line:
    """searches, accepted: of so many searches for a design how many found one that passes; attempts: in all."""
    accepted = attempts = 0
    level = LEVELS[setting["rule"]]
    for turn in range(SEARCHES):
        rng = np.random.default_rng(derive(seed, setting["pair"], turn))
        one, other = (KNOWN[NAMES[at]] for at in rng.choice(len(NAMES), 2, replace=False))
        if setting["pair"] == "same":
            tried = _attempts(one, level, rng)
            accepted, attempts = accepted + (tried <= ATTEMPTS), attempts + min(tried, ATTEMPTS)
            continue
        weights = np.array([0.5, 0.5])
        found = choose((one, other), [one, other], weights, "adversarial", PEOPLE, rng, random_design, alpha=level)
        accepted, attempts = accepted + found.accepted, attempts + found.attempt
    return {"searches": SEARCHES, "accepted": accepted, "attempts": attempts}


def _attempts(form: Form, level: float, rng: np.random.Generator) -> int:
    """The attempt at which a theory was called different from itself; one more than there are where it never was."""
    for attempt in range(1, ATTEMPTS + 1):
        design = random_design(rng)
        weights = rng.normal(size=len(design.a) + 1)
        x, y = (metric(simulate(form, design, PEOPLE, int(s)), design, weights) for s in rng.integers(2**31, size=2))
        if welch(x, y) < level / ATTEMPTS:
            return attempt
    return ATTEMPTS + 1
