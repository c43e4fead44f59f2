"""The controller of the gate, around any generator, its critics and its oracle (arXiv 2606.24453, mended by
specs/E170).

The tiers call it; ``clew gate`` follows one-line rules instead. ``decide`` chooses the next action, ``observe`` and
``feedback`` take the results, and ``explain`` gives the reasons. The controller plans with the rates it has seen and
learns them. It verifies a share of what it would not have verified, and falls back to the best one-line rule where its
beliefs forecast worse than the prior alone. It must never run a command itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from papers.E170_gate.planner import (
    REFINE,
    SHIP,
    STOP,
    VERIFY,
    Plan,
    Policy,
    Stakes,
    State,
    best_rule,
    goes_on,
    information,
    rules,
)
from papers.E170_gate.rates import Evidence, Rates

ENOUGH = 20  # broken candidates the oracle must have seen before a plan may do without it
WINDOW, LEAST = 60, 20  # labels that the misfit guard looks back on, and needs
SURE = 2.5
AS_GOOD = 0.01  # share of the reward below which a plan's advantage over a one-line rule is none


class Decision(NamedTuple):
    """One decision and what it rests on: everything needed to check it later.

    action: a critic's name, or verify, ship, stop, refine. audit: verified by lot, not by choice; ``instead`` is what
    the plan wanted then, or where the data were too thin for it.
    """

    action: str
    belief: float
    t: int
    values: Mapping[str, float]
    information: Mapping[str, float]
    reason: str
    audit: bool = False
    instead: str = ""


@dataclass
class Controller:
    """Decides over one episode after another.

    Args:
        stakes: costs, reward, loss and horizon.
        evidence: what is known so far; learnt from in place.
        cell: which of its cells this is (repository, kind of task, generator).
        resample: candidates are drawn afresh; else each is made from the one before.
        audit: share of candidates that are verified though the plan would not.
        guard: fall back where the beliefs misfit.
    """

    stakes: Stakes
    evidence: Evidence = field(default_factory=Evidence)
    cell: str = ""
    resample: bool = True
    audit: float = 0.05
    guard: bool = True
    rates: Rates = field(init=False)
    plan: Plan = field(init=False)
    state: State = field(init=False)
    log: list[Decision] = field(init=False, default_factory=list)
    fallback: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self._window: deque[tuple[float, float, dict[str, bool], bool, float]] = deque(maxlen=WINDOW)
        self._labels = self._planned = 0
        self._spent: set[str] = set()
        self._lot: Decision | None = None
        self._before: bool | None = None
        self._failed = False
        self.replan()
        self.begin()

    # ---- planning ----------------------------------------------------------------------------------------------------

    def replan(self) -> None:
        """Plan anew with the rates as they are now."""
        self.rates = self.evidence.rates(list(self.stakes.critics), self.cell, self.resample)
        self.plan, self._planned = Plan(self.rates, self.stakes), self._labels

    @property
    def thin(self) -> bool:
        """Too few broken candidates were seen to do without the oracle."""
        return self.evidence.seen("label/0", self.cell) < ENOUGH

    def misfits(self) -> bool:
        """Whether the last beliefs forecast worse than the prior alone: a higher Brier score, and not by chance.

        It is asked again and again, so that ``SURE`` standard errors of the paired difference are asked for.
        """
        if len(self._window) < LEAST:
            return False
        worse = np.array([w * ((b - y) ** 2 - (p - y) ** 2) for b, p, _, y, w in self._window])
        return bool(worse.mean() > SURE * worse.std(ddof=1) / len(worse) ** 0.5)

    def _fall_back(self) -> None:
        """The best one-line rule for what the window holds; its rates replace the history's."""
        recent = Evidence()
        for _, _, verdicts, good, weight in self._window:
            recent.add(self.cell, verdicts, good, weight=weight)
        self.evidence.cells[self.cell] = recent.cells[self.cell]
        self.replan()
        self.fallback, _ = best_rule(self.rates, self.stakes)

    # ---- one episode -------------------------------------------------------------------------------------------------

    def begin(self) -> State:
        """A new episode with a fresh candidate."""
        if self._labels >= 1.1 * self._planned + 1:
            misfit = self.guard and self.misfits()
            if misfit:
                self._fall_back()
            else:
                self.replan()
                self.fallback = ""
        self.state, self._spent, self._before, self._lot, self._failed = (
            State(self.rates.prior),
            set(),
            None,
            None,
            False,
        )
        self.log = []
        return self.state

    def decide(self, draw: float = 1.0) -> Decision:
        """What to do now.

        Args:
            draw: a uniform number in [0, 1), by which candidates are audited; 1 audits none.
        """
        known = {name: value for name, value in self.plan.values(self.state).items() if name not in self._spent}
        action, reason = self._chosen(known)
        instead, by_lot = "", False
        if VERIFY not in self._spent and action in (SHIP, STOP, REFINE):
            if self.thin and not self._verifies():
                action, instead = VERIFY, action
                seen = self.evidence.seen("label/0", self.cell)
                reason = f"{seen} broken candidates were seen, {ENOUGH} are needed before the oracle may be left out"
            elif draw < self.audit:
                action, instead, by_lot = VERIFY, action, True
                reason = f"audit: a share of {self.audit:g} is verified whatever the plan says"
        worth = {
            name: information(self.state.belief, self.rates.chance(name, dict(self.state.seen)), self.stakes, name)
            for name in self.stakes.critics
            if name in known
        }
        found = Decision(action, self.state.belief, self.state.t, known, worth, reason, by_lot, instead)
        self._lot = found
        self.log.append(found)
        return found

    def _chosen(self, known: Mapping[str, float]) -> tuple[str, str]:
        if self.fallback:
            action = _with_horizon(
                rules(self.stakes)[self.fallback], self.fallback, self.state, self._failed, self.stakes
            )
            if action in known:
                return action, f"beliefs misfit: the rule '{self.fallback}'"
        action = next(iter(known))
        ranked = list(known.items())
        lead = ranked[0][1] - ranked[1][1] if len(ranked) > 1 else 0.0
        return action, f"worth {ranked[0][1]:.2f}" + (f", {lead:.2f} more than {ranked[1][0]}" if lead else "")

    def _verifies(self) -> bool:
        """Whether the plan, from the start, ever comes to the oracle."""
        if self.fallback:
            return self.fallback not in ("never verify", "ship unverified")
        todo, seen = [State(self.rates.prior)], 0
        while todo and seen < 200:
            state, seen = todo.pop(), seen + 1
            action = self.plan.best(state)
            if action == VERIFY:
                return True
            if action == REFINE:
                todo.append(state.renewed(self.rates))
            elif action not in (STOP, SHIP):
                todo += [state.after(self.rates, action, passed) for passed in (True, False)]
        return False

    def observe(self, critic: str, passed: bool | None) -> State:
        """A critic's verdict on this candidate; None where it gave none (hung, crashed, flipped): nothing is learnt."""
        self._spent.add(critic)
        if passed is not None:
            self.state = self.state.after(self.rates, critic, passed)
        return self.state

    def feedback(self, good: bool | None) -> State:
        """The oracle's verdict on this candidate; None where it gave none: undecided is not failed."""
        self._spent.add(VERIFY)
        if good is None:
            return self.state
        self._labels += 1
        lot = self._lot is not None and self._lot.audit
        weight, said = 1 / self.audit if lot else 1.0, dict(self.state.seen)
        if self.state.t == 0:
            self.evidence.add(self.cell, said, good, weight=weight)
            self._window.append((self.state.belief, self.rates.prior, said, good, weight))
        elif self._before is not None and not self.resample:
            self.evidence.add(self.cell, {}, good, before=self._before)
        self._before, self._failed = good, not good
        self.state = self.state._replace(belief=float(good))
        return self.state

    def renew(self) -> State:
        """There is another candidate: nothing has been run on it."""
        self.state = self.state.renewed(self.rates, failed=self._failed)
        self._spent, self._lot, self._failed = set(), None, False
        return self.state

    # ---- saying why --------------------------------------------------------------------------------------------------

    def regime(self) -> str:
        """What kind of place this is, and whether one line would do as well."""
        rule, worth = best_rule(self.rates, self.stakes)
        more = self.plan.value - worth
        low, high = self.stakes.thresholds()
        lines = [f"verify between beliefs {low:.2f} and {high:.2f}; below: stop or refine; above: ship unverified"]
        if self.stakes.loss is None:
            lines = [f"verify above a belief of {low:.2f}; nothing is shipped unverified"]
        elif low == high:
            lines = [f"the oracle costs more than it saves: ship above a belief of {low:.2f}, stop below"]
        if more <= AS_GOOD * self.stakes.reward:
            lines.append(f"one line does as well: {rule} ({worth:.1f} a task; the plan {self.plan.value:.1f})")
        else:
            lines.append(f"the plan is worth {self.plan.value:.1f} a task, {more:.1f} more than '{rule}'")
        return "\n".join(lines)

    def explain(self) -> str:
        """The rates with their 90 % intervals, the thresholds and the regime, and every decision of this episode."""
        e, lines = self.evidence, [f"prior {self.evidence.prior(self.cell)}"]
        for name in self.stakes.critics:
            bad, good = e.critic(name, self.cell)
            linked = f", linked with {other}" if (other := self.rates.partner(name)) else ""
            lines.append(f"{name}: passes good {good}; broken {bad}; costs {self.stakes.critics[name]:.3g}{linked}")
        if not self.resample:
            fix, spoil = e.kernel(self.cell)
            lines.append(f"refining fixes {fix}; spoils {spoil}")
        lines.append(self.regime())
        if self.fallback:
            lines.append(f"the beliefs forecast worse than the prior: fallen back to '{self.fallback}'")
        for d in self.log:
            known = ", ".join(f"{name} {value:.1f}" for name, value in d.values.items())
            lines.append(f"{d.t}: belief {d.belief:.2f}: {d.action} ({d.reason}) [{known}]")
        return "\n".join(lines)


def _with_horizon(policy: Policy, name: str, state: State, failed: bool, stakes: Stakes) -> str:
    """A rule's action; after a failed verification it goes on where it says so and there are candidates left."""
    if failed:
        return REFINE if goes_on(name) and state.t + 1 < stakes.horizon else STOP
    return policy(state)
