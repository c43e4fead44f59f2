"""The planner of arXiv 2606.24453 as E170 mends it: planted truths (exact values, rates), controls, twins."""

from __future__ import annotations

import random
import sys
from itertools import product
from pathlib import Path

import pytest

from clew.core.errors import BadInput

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.E170_gate.controller import ENOUGH, Controller
from papers.E170_gate.planner import (
    REFINE,
    SHIP,
    STOP,
    VERIFY,
    Plan,
    Stakes,
    State,
    best_rule,
    information,
    rules,
    value_of,
)
from papers.E170_gate.rates import Beta, Evidence, Rates

pytestmark = pytest.mark.whole

RATES = Rates(0.4, 0.4, 0.6, {"syntax": (1.0, 1.0), "test": (0.45, 1.0), "review": (0.2, 0.6)})
COSTS = {"syntax": 1.0, "test": 2.0, "review": 5.0}


def stakes(verify=30.0, loss=None, horizon=3, critics=COSTS):
    return Stakes(10.0, verify, critics, 100.0, loss, horizon)


# ---- the plan --------------------------------------------------------------------------------------------------------


def exact(state, rates, s):
    """The plan's slow twin: the value of a state by plain recursion, without a grid."""
    b, said = state.belief, dict(state.seen)
    more = state.t + 1 < s.horizon
    found = [0.0]
    again = max(0.0, -s.refine + exact(state.renewed(rates, failed=True), rates, s)) if more else 0.0
    found.append(-s.verify + b * s.reward + (1 - b) * again)
    if s.loss is not None:
        found.append(s.reward * b - s.loss * (1 - b))
    if more:
        found.append(-s.refine + exact(state.renewed(rates), rates, s))
    for name, cost in s.critics.items():
        if name not in said:
            bad, good = rates.chance(name, said)
            p = good * b + bad * (1 - b)
            ways = [(w, state.after(rates, name, z)) for w, z in ((p, True), (1 - p, False)) if w > 0]
            found.append(-cost + sum(w * exact(after, rates, s) for w, after in ways))
    return max(found)


LINKED = {("review", "test"): [[[0.6, 0.1], [0.1, 0.2]], [[0.1, 0.1], [0.1, 0.7]]]}


@pytest.mark.parametrize("loss", [None, 150.0])
@pytest.mark.parametrize("verify", [5.0, 30.0, 60.0])
@pytest.mark.parametrize("joint", [{}, LINKED])
def test_plan_and_plain_recursion_agree(verify, loss, joint):
    passes = dict(RATES.passes)
    if joint:
        passes |= {"review": (0.3, 0.8), "test": (0.3, 0.8)}
    s = stakes(verify, loss, 2, {"test": 2.0, "review": 5.0})
    for prior, fix in product((0.1, 0.4, 0.8), (0.1, 0.4)):
        rates = Rates(prior, fix, 0.1, passes, joint)
        assert Plan(rates, s).value == pytest.approx(exact(State(prior), rates, s), abs=0.25)  # 201 beliefs


def test_a_critic_without_signal_is_never_run_and_costs_what_it_costs():
    for verify, prior in product((5.0, 15.0, 30.0, 60.0, 90.0), (0.1, 0.2, 0.4, 0.7, 0.9)):
        rates, s = Rates(prior, prior, 1 - prior, RATES.passes), stakes(verify)
        plan, todo = Plan(rates, s), [State(prior)]
        while todo:
            state = todo.pop()
            action = plan.best(state)
            assert action != "syntax"
            if action in COSTS:
                todo += [state.after(rates, action, passed) for passed in (True, False)]
            elif action == REFINE:
                todo.append(state.renewed(rates))
        assert information(prior, (1.0, 1.0), s, "syntax") == pytest.approx(-1.0)


def test_value_of_information_is_its_closed_form():
    s = stakes(30.0)
    for b in (0.05, 0.2, 0.29, 0.31, 0.5, 0.9):
        low, high = 0.2, 0.6
        if b < 0.3:  # specs/E170 step 6: a pass crosses the threshold
            crossed = 100 * high * b - 30 * (high * b + low * (1 - b)) > 0
            wanted = max(100 * high * b - 30 * (high * b + low * (1 - b)), 0.0) - 5 if crossed else -5.0
        else:
            fails = (1 - high) * b + (1 - low) * (1 - b)
            wanted = max(30 * fails - 100 * (1 - high) * b, 0.0) - 5
        assert information(b, (low, high), s, "review") == pytest.approx(wanted)


def test_never_worse_than_any_rule_and_never_better_than_knowing():
    rng = random.Random(3)
    for _ in range(40):
        prior = rng.random()
        fix, spoil = (prior, 1 - prior) if rng.random() < 0.5 else (rng.random() / 2, rng.random() / 4)
        passes = {n: (rng.random(), rng.random()) for n in ("a", "b")}
        rates = Rates(prior, fix, spoil, passes)
        loss = rng.choice([None, 50.0, 500.0])
        s = Stakes(rng.random() * 20, rng.random() * 90, {"a": 1.0, "b": 4.0}, 100.0, loss, rng.choice([1, 2, 3]))
        plan = Plan(rates, s)
        assert plan.value >= max(value_of(n, p, rates, s) for n, p in rules(s).items()) - 0.25
        assert plan.value <= s.reward


def test_thresholds_are_walds():
    assert stakes(30.0).thresholds() == (0.3, 1.0)
    low, high = stakes(10.0, loss=200.0).thresholds()
    assert (low, high) == pytest.approx((0.1, 0.95))
    assert stakes(90.0, loss=100.0).thresholds() == pytest.approx((0.5, 0.5))  # the oracle is never worth it
    s = stakes(10.0, loss=200.0, horizon=1, critics={})
    plan = Plan(Rates(0.5, 0.5, 0.5, {}), s)
    for b, action in ((0.09, STOP), (0.11, VERIFY), (0.94, VERIFY), (0.96, SHIP)):
        assert plan.best(State(b)) == action


def test_published_values_of_the_three_bug_example():
    from papers.E170_gate.tier_sim import _fixture

    found = _fixture({})
    assert found["V1"] == pytest.approx(89.33, abs=0.01)
    assert found["V2"] == pytest.approx(130.33, abs=0.01)


def test_bad_stakes_are_refused():
    for wrong in ({"verify": -1.0}, {"reward": 0.0}, {"horizon": 0}, {"loss": float("nan")}):
        with pytest.raises(BadInput):
            Stakes(**{"refine": 1.0, "verify": 1.0, "critics": {}, **wrong})
    with pytest.raises(BadInput, match="6 at most"):
        Stakes(1.0, 1.0, {str(i): 1.0 for i in range(7)})


# ---- what is learnt --------------------------------------------------------------------------------------------------


def world(rng, prior=0.3, linked=0.0):
    good = rng.random() < prior
    test = rng.random() < (0.95 if good else 0.4)
    review = test if rng.random() < linked else rng.random() < (0.6 if good else 0.3)
    return good, {"test": test, "review": review}


def test_rates_and_links_are_found_and_none_where_there_is_none():
    for linked in (0.0, 0.7):
        rng, evidence = random.Random(1), Evidence()
        for _ in range(1500):
            good, verdicts = world(rng, linked=linked)
            evidence.add("here", verdicts, good)
        bad, high = evidence.critic("test", "here")
        assert bad.mean == pytest.approx(0.4, abs=0.05)
        assert high.mean == pytest.approx(0.95, abs=0.03)
        assert evidence.linked(["test", "review"], "here") == ([("test", "review")] if linked else [])
        rates = evidence.rates(["test", "review"], "here")
        b = rates.updated(0.3, "test", True, {})
        again = rates.updated(b, "review", True, {"test": True})
        alone = Rates(0.3, 0.3, 0.7, rates.passes)
        naive = alone.updated(alone.updated(0.3, "test", True, {}), "review", True, {"test": True})
        if linked:
            shares = [world(random.Random(i), linked=linked) for i in range(20_000)]
            both = [g for g, v in shares if v["test"] and v["review"]]
            truth = sum(both) / len(both)
            assert abs(again - truth) < abs(naive - truth)
            assert again == pytest.approx(truth, abs=0.04)
        else:
            assert again == pytest.approx(naive)


def test_cells_shrink_to_one_another_and_intervals_hold():
    evidence = Evidence()
    for i in range(200):
        evidence.add("much", {}, i % 4 == 0)
    new = evidence.prior("new")
    assert new.mean == pytest.approx(0.28, abs=0.03)
    assert new.n == 0
    for _ in range(40):
        evidence.add("new", {}, True)
    assert evidence.prior("new").mean > 0.8
    assert Evidence().prior("x").mean == 0.5
    assert Beta(1, 1).interval() == pytest.approx((0.05, 0.95))
    assert Evidence.loads(evidence.dumps()).prior("new") == evidence.prior("new")


def test_audited_candidates_weigh_what_they_stand_for():
    rng, chosen, fair = random.Random(5), Evidence(), Evidence()
    for _ in range(6000):
        good, verdicts = world(rng)
        fair.add("c", verdicts, good)
        if verdicts["test"]:  # only what passes is verified, and one in ten of the rest
            chosen.add("c", verdicts, good)
        elif rng.random() < 0.1:
            chosen.add("c", verdicts, good, weight=10.0)
    assert chosen.prior("c").mean == pytest.approx(fair.prior("c").mean, abs=0.03)
    assert chosen.critic("test", "c")[0].mean == pytest.approx(0.4, abs=0.06)
    low, high = chosen.prior("c").interval()
    a, b = fair.prior("c").interval()
    assert high - low > b - a


# ---- the controller --------------------------------------------------------------------------------------------------


def known(n=100, prior=0.3):
    rng, evidence = random.Random(2), Evidence()
    for _ in range(n):
        good, verdicts = world(rng, prior)
        evidence.add("here", verdicts, good)
    return evidence


TWO = {"test": 2.0, "review": 5.0}


def test_thin_data_never_leave_the_oracle_out():
    dear = Stakes(10.0, 95.0, TWO, 100.0, None, 1)
    gate = Controller(dear, Evidence(), "here", audit=0.0)
    decision = gate.decide()
    assert (decision.action, decision.instead) == (VERIFY, STOP)
    assert f"{ENOUGH} are needed" in decision.reason
    assert Controller(dear, known(), "here", audit=0.0).decide().action == STOP


def test_audits_happen_by_lot_and_undecided_is_not_failed():
    gate = Controller(Stakes(10.0, 95.0, TWO, 100.0, None, 1), known(), "here", audit=0.05)
    decision = gate.decide(draw=0.01)
    assert (decision.action, decision.audit, decision.instead) == (VERIFY, True, STOP)
    before, labels = gate.state.belief, gate.evidence.seen("label/0", "here")
    gate.feedback(None)
    assert gate.state.belief == before
    assert gate.evidence.seen("label/0", "here") == labels
    assert gate.decide(draw=0.01).action == STOP  # not verified again for ever


def test_a_silent_critic_is_not_asked_again():
    gate = Controller(Stakes(10.0, 30.0, TWO, 100.0, None, 1), known(), "here", audit=0.0)
    assert gate.decide().action == "test"
    belief = gate.state.belief
    gate.observe("test", None)
    assert gate.state.belief == belief
    assert gate.decide().action != "test"


def test_it_says_when_one_line_does_as_well_and_explains_itself():
    cheap = Controller(Stakes(1.0, 1.0, TWO, 100.0, None, 1), known(prior=0.9), "here")
    assert "one line does as well" in cheap.regime()
    gate = Controller(Stakes(10.0, 30.0, TWO, 100.0, 300.0, 3), known(), "here", audit=0.0)
    gate.decide()
    text = gate.explain()
    assert "verify between beliefs 0.30 and 0.90" in text
    assert "test: passes good" in text
    assert "belief" in text.splitlines()[-1]


def test_guard_falls_back_where_beliefs_misfit_and_not_where_they_fit():
    for inverted in (False, True):
        evidence = Evidence()
        rng = random.Random(8)
        for _ in range(300):
            good, verdicts = world(rng)
            evidence.add("here", {n: z ^ inverted for n, z in verdicts.items()}, good)
        gate = Controller(Stakes(10.0, 30.0, TWO, 100.0, None, 1), evidence, "here", audit=0.3)
        fell = False
        for _ in range(400):
            gate.begin()
            good, verdicts = world(rng)
            fell = fell or bool(gate.fallback)
            while (action := gate.decide(rng.random()).action) in TWO:
                gate.observe(action, verdicts[action])
            if action == VERIFY:
                gate.feedback(good)
        assert fell is inverted


def test_best_rule_is_the_best_of_them():
    s = stakes(30.0)
    name, worth = best_rule(RATES, s)
    assert worth == max(value_of(n, p, RATES, s) for n, p in rules(s).items())
    assert name == "refine until test passes, then verify"
