"""The rules that tier human fits: those of the paper, as specs/E176 states them, and their twins.

Each gives P(B) = (1 - eps) sigmoid(beta E) + eps / 2 of the evidence E for B; d is the rating of B less that of A.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from clew.methods.theories.choice_fits import Choices, Rule

F64 = npt.NDArray[np.float64]
Evidence = Callable[[Mapping[str, float], Choices], F64]
NOISE = {"beta": (0.1, 20.0), "eps": (0.0, 0.5)}
GAMMA, CURVE = {"gamma": (0.0, 10.0)}, {"alpha": (0.1, 1.0), "s": (0.1, 5.0)}


def noisy(evidence: Evidence) -> Callable[[Mapping[str, float], Choices], F64]:
    def predict(p: Mapping[str, float], seen: Choices) -> F64:
        steep = np.clip(p["beta"] * evidence(p, seen), -500, 500)
        said: F64 = (1 - p["eps"]) / (1 + np.exp(-steep)) + p["eps"] / 2
        return said

    return predict


def best_cue(_: Mapping[str, float], seen: Choices) -> F64:
    """The sign of d on the most valid cue that differs: take the best."""
    order = np.argsort(-seen.validities, kind="stable")
    signs = np.sign(seen.b - seen.a)[:, order]
    first = (signs != 0).argmax(1)
    found: F64 = signs[np.arange(len(signs)), first]
    return found


def tally(_: Mapping[str, float], seen: Choices) -> F64:
    found: F64 = np.sign(seen.b - seen.a).sum(1)
    return found


def powered(p: Mapping[str, float], seen: Choices) -> F64:
    """The sum of v^gamma d: tallying at 0, weighing at 1, take the best as gamma grows."""
    found: F64 = (seen.b - seen.a) @ seen.validities ** p.get("gamma", 1.0)
    return found


def unpowered(p: Mapping[str, float], seen: Choices) -> F64:
    """The twin of ``powered``: weights like v, whose sum is that of v^gamma, so that gamma is only a gain."""
    v = seen.validities
    found: F64 = (seen.b - seen.a) @ v * ((v ** p["gamma"]).sum() / v.sum())
    return found


def curved(p: Mapping[str, float], seen: Choices) -> F64:
    """Diminishing returns: u(x) = (x + s)^alpha - s^alpha, weights that sum to 1."""
    v = seen.validities / seen.validities.sum()
    found: F64 = (_worth(seen.b, p) - _worth(seen.a, p)) @ v
    return found


def uncurved(p: Mapping[str, float], seen: Choices) -> F64:
    """The twin of ``curved``: a straight line from u(0) to u(most), so that alpha and s are only a gain."""
    v, most = seen.validities / seen.validities.sum(), max(seen.a.max(), seen.b.max())
    found: F64 = (seen.b - seen.a) @ v * float(_worth(np.array(most), p) / most)
    return found


def enough(p: Mapping[str, float], seen: Choices) -> F64:
    """Satisficing: a rating counts, by its validity, where it reaches a threshold (.25 wide, to be fitted)."""
    reached = [1 / (1 + np.exp(np.clip((p["enough"] - x) / 0.25, -500, 500))) for x in (seen.b, seen.a)]
    found: F64 = (reached[0] - reached[1]) @ seen.validities
    return found


def _worth(x: F64, p: Mapping[str, float]) -> F64:
    found: F64 = (x + p["s"]) ** p["alpha"] - p["s"] ** p["alpha"]
    return found


HALF = Rule("predict .5", {}, lambda _, seen: np.full(len(seen.a), 0.5))
TTB, TALLY = Rule("take the best", NOISE, noisy(best_cue)), Rule("tallying", NOISE, noisy(tally))
WADD = Rule("weighing (WADD)", NOISE, noisy(powered))
EQUAL_POWER = Rule("v^gamma's linear twin", NOISE | GAMMA, noisy(unpowered))
POWER = Rule("v^gamma", NOISE | GAMMA, noisy(powered), without={"the power of validities": EQUAL_POWER})
LINE = Rule("diminishing returns' linear twin", NOISE | CURVE, noisy(uncurved))
CURVED = Rule("diminishing returns", NOISE | CURVE, noisy(curved), without={"diminishing returns": LINE})
ENOUGH = Rule("satisficing", NOISE | {"enough": (0.5, 10.0)}, noisy(enough))
BINARY = {rule.name: rule for rule in (HALF, TTB, TALLY, WADD, POWER, EQUAL_POWER)}
RULES = {"binary": BINARY, "cardinal": BINARY | {rule.name: rule for rule in (CURVED, LINE, ENOUGH)}}
