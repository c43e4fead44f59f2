"""One label from several judges: vote rules, Dawid and Skene's model, and how many labels hang on the rule.

The source counts three of four votes in one place and two of four in another (specs/E171 section 4.1). ``clew audit
early`` asks for one rule and reports how many outcomes another would turn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput

F64 = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
RULES = ("3/4", "2/4", "dawid-skene")
ROUNDS = 200


class Labels(NamedTuple):
    """Labels by one rule, bool [runs]; ``ties``: runs on which the judges split evenly; ``turned``: for each other
    rule, the share of runs whose label it turns."""

    labels: Bools
    rule: str
    ties: int
    turned: dict[str, float]


def votes(given: npt.ArrayLike, rule: str = "3/4") -> Labels:
    """Labels of runs by the votes of judges.

    Args:
        given: float [runs, judges], 1 for the outcome, 0 against, NaN where a judge said nothing.
        rule: "3/4" and "2/4" need that share of the votes given, so an even split counts under "2/4" alone;
            "dawid-skene" weighs each judge by how well it does.

    Raises:
        BadInput: no such rule; a run without a vote.
    """
    v = np.asarray(given, float)
    if rule not in RULES:
        raise BadInput(f"{rule!r} is no vote rule", remedy=f"Use one of {', '.join(RULES)}.")
    if v.ndim != 2 or not v.size or np.isnan(v).all(1).any():
        raise BadInput("a run has no vote at all", remedy="Leave the run out, or ask a judge that decides it.")
    by = {"3/4": _share(v, 0.75), "2/4": _share(v, 0.5), "dawid-skene": dawid_skene(v) > 0.5}
    ties = int((np.nanmean(v, axis=1) == 0.5).sum())
    turned = {name: float((by[name] != by[rule]).mean()) for name in RULES if name != rule}
    return Labels(by[rule], rule, ties, turned)


def _share(v: F64, least: float) -> Bools:
    return np.asarray(np.nanmean(v, axis=1) >= least - 1e-9)


def dawid_skene(given: npt.ArrayLike) -> F64:
    """Chance of the outcome for each run, by the two-class model of Dawid and Skene (1979), fitted by EM.

    Each judge has a hit rate and a false-alarm rate; a beta(2, 2) prior keeps both from 0 and 1.
    """
    v = np.asarray(given, float)
    there = np.isfinite(v)
    yes, no = there & (v > 0.5), there & (v <= 0.5)
    chance = np.clip(np.nanmean(v, axis=1), 0.05, 0.95)
    for _ in range(ROUNDS):
        hit = (chance @ yes + 1) / (chance @ there + 2)
        alarm = ((1 - chance) @ yes + 1) / ((1 - chance) @ there + 2)
        prior = np.clip((chance.sum() + 1) / (len(chance) + 2), 1e-6, 1 - 1e-6)
        odds = np.log(prior / (1 - prior)) + yes @ np.log(hit / alarm) + no @ np.log((1 - hit) / (1 - alarm))
        fresh = 1 / (1 + np.exp(-np.clip(odds, -500, 500)))
        if np.abs(fresh - chance).max() < 1e-9:
            break
        chance = fresh
    return np.asarray(chance)
