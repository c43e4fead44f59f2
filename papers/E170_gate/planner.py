"""Chooses the next check, or refine, verify or ship: the plan with the lowest expected cost.

The paper's planner, which ``clew gate`` used before it followed one-line rules; the controller and the tiers call it. A
state is the belief that the candidate is good, what its critics said, and how many candidates there were. The plan is
dynamic programming over states (arXiv 2606.24453, section 3, mended as specs/E170 section 6 says): critics run once on
a candidate, a failed verification is no end, shipping unverified is an action, values are linear between 201 beliefs.
It must never look at the candidate itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput
from papers.E170_gate.rates import Rates

F64 = npt.NDArray[np.float64]
GRID = np.linspace(0.0, 1.0, 201)
VERIFY, SHIP, STOP, REFINE = "verify", "ship", "stop", "refine"
MOST_CRITICS = 6


@dataclass(frozen=True, slots=True)
class Stakes:
    """What things cost and bring, all in one unit (seconds times a rate, money).

    refine: making another candidate. verify: one run of the oracle. critics: a run of each. reward: a good candidate
    shipped. loss: a broken one shipped; None: nothing is shipped unverified. horizon: candidates at most.
    """

    refine: float
    verify: float
    critics: Mapping[str, float]
    reward: float = 100.0
    loss: float | None = None
    horizon: int = 3

    def __post_init__(self) -> None:
        numbers = {"refine": self.refine, "verify": self.verify, "reward": self.reward, **self.critics}
        for name, value in (numbers | ({} if self.loss is None else {"loss": self.loss})).items():
            if not 0 <= value < float("inf"):
                raise BadInput(f"{name} is {value}", remedy="Costs, reward and loss are finite and not negative.")
        if self.reward <= 0 or not 1 <= self.horizon <= 50:
            raise BadInput(
                f"reward {self.reward}, horizon {self.horizon}", remedy="The reward is positive, the horizon 1 to 50."
            )
        if len(self.critics) > MOST_CRITICS:
            raise BadInput(f"{len(self.critics)} critics", remedy=f"Plan with {MOST_CRITICS} at most.")

    def thresholds(self) -> tuple[float, float]:
        """Below the first belief verifying loses, above the second shipping unverified is better than verifying.

        Wald's two thresholds where a verification ends the matter: C / R and 1 - C / L. Where the first is not below
        the second the oracle is never worth its cost and both are L / (R + L), from which shipping beats stopping.
        """
        low = self.verify / self.reward
        if self.loss is None:
            return min(low, 1.0), 1.0
        high = 1 - self.verify / self.loss if self.loss > 0 else 0.0
        cut = self.loss / (self.reward + self.loss)
        return (low, high) if low < high else (cut, cut)


class State(NamedTuple):
    """Where an episode stands: the belief, what critics said of this candidate, candidates before it."""

    belief: float
    seen: tuple[tuple[str, bool], ...] = ()
    t: int = 0

    def after(self, rates: Rates, critic: str, passed: bool) -> State:
        belief = rates.updated(self.belief, critic, passed, dict(self.seen))
        return State(belief, (*self.seen, (critic, passed)), self.t)

    def renewed(self, rates: Rates, failed: bool = False) -> State:
        """After a refinement, of a candidate that the oracle ``failed`` or of this one as it is believed."""
        return State(rates.after(0.0 if failed else self.belief), (), self.t + 1)


@dataclass
class Plan:
    """The value of every action in every state, by backward induction over candidates and critics run."""

    rates: Rates
    stakes: Stakes
    q: dict[tuple[int, tuple[int, ...]], dict[str, F64]] = field(init=False)

    def __post_init__(self) -> None:
        self.names = tuple(name for name in self.stakes.critics if name in self.rates.passes)
        self.q = {}
        kinds = [(0, 1, 2) if self.rates.partner(name) in self.names else (0, 1) for name in self.names]
        order = sorted(product(*kinds), key=lambda key: -sum(map(bool, key)))
        empty, later = tuple(0 for _ in self.names), None
        for t in range(self.stakes.horizon - 1, -1, -1):
            fixed = self._fixed(later)
            values: dict[tuple[int, ...], F64] = {}
            for key in order:
                self.q[t, key] = {**fixed, **{k: self._critic(k, key, values) for k in self._open(key)}}
                values[key] = np.asarray(np.max(list(self.q[t, key].values()), axis=0))
            later = values[empty]

    def _fixed(self, later: F64 | None) -> dict[str, F64]:
        """What the actions that end a candidate are worth at each belief, whatever critics said."""
        s, rates, b = self.stakes, self.rates, GRID
        out: dict[str, F64] = {STOP: np.zeros_like(b)}
        again = 0.0
        if later is not None:
            moved = b * (1 - rates.spoil) + (1 - b) * rates.fix
            out[REFINE] = np.asarray(np.interp(moved, b, later)) - s.refine
            again = max(0.0, -s.refine + float(np.interp(rates.after(0.0), b, later)))
        out[VERIFY] = -s.verify + s.reward * b + (1 - b) * again
        if s.loss is not None:
            out[SHIP] = s.reward * b - s.loss * (1 - b)
        return out

    def _open(self, key: tuple[int, ...]) -> list[str]:
        return [name for name, run in zip(self.names, key, strict=True) if not run]

    def _critic(self, name: str, key: tuple[int, ...], values: Mapping[tuple[int, ...], F64]) -> F64:
        seen = {n: k == 1 for n, k in zip(self.names, key, strict=True) if k}
        bad, good = self.rates.chance(name, seen)
        i = self.names.index(name)
        total = -self.stakes.critics[name] + np.zeros_like(GRID)
        for up, down, said in ((good, bad, 1), (1 - good, 1 - bad, 2)):
            weight = up * GRID + down * (1 - GRID)
            after = up * GRID / np.maximum(weight, 1e-12)
            to = (*key[:i], said if self._told(name) else 1, *key[i + 1 :])
            total = total + weight * np.interp(after, GRID, values[to])
        return total

    def _told(self, name: str) -> bool:
        """Whether what this critic said matters beyond the belief: to its partner's chances."""
        return self.rates.partner(name) in self.names

    def key(self, state: State) -> tuple[int, ...]:
        said = dict(state.seen)
        return tuple(0 if n not in said else 1 if said[n] or not self._told(n) else 2 for n in self.names)

    def values(self, state: State) -> dict[str, float]:
        """What each action is worth, best first."""
        table = self.q[state.t, self.key(state)]
        found = {name: float(np.interp(state.belief, GRID, row)) for name, row in table.items()}
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def best(self, state: State) -> str:
        return next(iter(self.values(state)))

    @property
    def value(self) -> float:
        """What an episode is worth at its start."""
        return max(self.values(State(self.rates.prior)).values())


def information(belief: float, rates: tuple[float, float], stakes: Stakes, critic: str) -> float:
    """What one critic is worth before a last choice between verifying and stopping, its cost taken off.

    Closed form (specs/E170 step 6, from the greedy step of arXiv 2606.24453): 0 - cost where no verdict changes the
    choice, so that a critic with equal rates is never worth its cost.

    Args:
        rates: P(pass | broken), P(pass | good).
    """
    bad, good = rates

    def worth(b: float) -> float:
        return max(stakes.reward * b - stakes.verify, 0.0)

    total = -stakes.critics[critic] - worth(belief)
    for up, down in ((good, bad), (1 - good, 1 - bad)):
        weight = up * belief + down * (1 - belief)
        total += weight * worth(up * belief / max(weight, 1e-12))
    return total


# ---- rules of one line -----------------------------------------------------------------------------------------------

Policy = Callable[[State], str]


def rules(stakes: Stakes) -> dict[str, Policy]:
    """The fixed rules that anyone could write down; each is told of a failed verification by ``failed``."""
    last = stakes.horizon - 1
    out: dict[str, Policy] = {
        "never verify": lambda state: STOP,
        "verify once": _once,
        "verify until it passes": _until,
    }
    if stakes.loss is not None:
        out["ship unverified"] = lambda state: SHIP
    for name in stakes.critics:
        out[f"verify if {name} passes"] = _gate(name, 0)
        out[f"refine until {name} passes, then verify"] = _gate(name, last)
    return out


def _once(state: State) -> str:
    return VERIFY if state.t == 0 else STOP


def _until(state: State) -> str:
    return VERIFY


def _gate(name: str, last: int) -> Policy:
    def policy(state: State) -> str:
        said = dict(state.seen)
        if name not in said:
            return name if state.t <= last else STOP
        return VERIFY if said[name] else REFINE if state.t < last else STOP

    return policy


def goes_on(rule: str) -> bool:
    """Whether a rule makes another candidate when a verification has failed."""
    return "until" in rule


def value_of(rule: str, policy: Policy, rates: Rates, stakes: Stakes) -> float:
    """What an episode under a rule is worth, exactly, if the rates hold."""

    def at(state: State) -> float:
        action, b = policy(state), state.belief
        more = state.t + 1 < stakes.horizon
        if action == STOP:
            return 0.0
        if action == SHIP:
            return stakes.reward * b - (stakes.loss or 0.0) * (1 - b)
        if action == VERIFY:
            again = -stakes.refine + at(state.renewed(rates, failed=True)) if more and goes_on(rule) else 0.0
            return -stakes.verify + b * stakes.reward + (1 - b) * again
        if action == REFINE:
            return -stakes.refine + at(state.renewed(rates)) if more else 0.0
        bad, good = rates.chance(action, dict(state.seen))
        chance = good * b + bad * (1 - b)
        passed, failed = state.after(rates, action, True), state.after(rates, action, False)
        return -stakes.critics[action] + chance * at(passed) + (1 - chance) * at(failed)

    return at(State(rates.prior))


def best_rule(rates: Rates, stakes: Stakes) -> tuple[str, float]:
    """The best of the one-line rules, and what it is worth."""
    worth = {name: value_of(name, policy, rates, stakes) for name, policy in rules(stakes).items()}
    name = max(worth, key=lambda rule: worth[rule])
    return name, worth[name]
