"""The closed loop: what it finds, what it may not say, its gate, its designs, and what models write to it."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from clew.core.errors import BadInput, Unreachable
from clew.methods.coevolve.archive import ChainedLog
from clew.methods.theories.choice_designs import choose, information, metric, random_design, welch
from clew.methods.theories.choice_fits import cells
from clew.methods.theories.choice_forms import BOUNDS, KNOWN, Form, predicted, rule
from clew.methods.theories.choice_trials import switches
from clew.methods.theories.simulated_people import SimulatedPeople, simulate
from clew.methods.theories.theory_loop import Rules, search, sentence
from clew.methods.theories.theory_proposers import GrammarProposer, ModelProposer
from clew.models.fakes import Scripted

pytest.importorskip("scipy", reason="did not run: the gate needs scipy")


def looped(truth, proposer=None, **rules):
    lab = SimulatedPeople(truth, 12)
    how = {"cycles": 2, "people": 12, "policy": "blind", "first": ("ttb", "tally"), **rules}
    return asyncio.run(search(ChainedLog(), lab, proposer or GrammarProposer(), Rules(**how)))


@pytest.mark.parametrize("name", list(KNOWN))
def test_what_is_predicted_in_closed_form_is_what_simulated_people_do(name):
    design = random_design(np.random.default_rng(3))
    trials = simulate(KNOWN[name], design, 300, 4)
    share, switch = predicted(KNOWN[name], design, 5, 512)
    index = {(*a, *b): i for i, (a, b) in enumerate(zip(design.a.tolist(), design.b.tolist(), strict=True))}
    seen = cells(trials)
    order = [index[(*a, *b)] for a, b in zip(seen.a.tolist(), seen.b.tolist(), strict=True)]
    assert np.mean((share[order] - seen.share) ** 2) < 0.003
    assert abs(switches(trials) - switch) < 0.03


def test_a_rule_outside_the_grammar_is_not_called_adequate():
    state = looped("cue_parity", GrammarProposer(["sum", "best", "worst", "first", "none"]))
    assert state.ended["adequate"] is False
    assert sentence(state.ended).startswith("No adequate theory")
    found = looped("cue_parity")
    assert found.ended["adequate"] is True
    assert found.ranked()[0][0].aggregator == "parity"


def test_the_gate_tells_rivals_apart_and_never_a_theory_from_itself():
    rng, even = np.random.default_rng(0), np.array([0.5, 0.5])
    ttb, tally = KNOWN["ttb"], KNOWN["tally"]
    found = choose((ttb, tally), [ttb, tally], even, "adversarial", 25, rng, random_design)
    assert found.accepted
    assert found.p < 0.02 / 12
    same = choose((ttb, ttb), [ttb, ttb], even, "adversarial", 8, rng, random_design, attempts=2)
    assert not same.accepted
    design = random_design(rng)
    x, y = (metric(simulate(ttb, design, 20, seed), design, rng.normal(size=len(design.a) + 1)) for seed in (1, 2))
    assert len(x) == 20
    assert welch(x, x) == pytest.approx(1.0)
    assert welch(x, y + 100) < 1e-6


def test_a_design_says_more_where_theories_differ():
    rng = np.random.default_rng(0)
    designs, even = [random_design(rng) for _ in range(20)], np.array([0.5, 0.5])
    same = [information([KNOWN["ttb"], KNOWN["ttb"]], even, one, 1) for one in designs]
    apart = [information([KNOWN["ttb"], KNOWN["take_the_worst"]], even, one, 1) for one in designs]
    assert max(same) < 1e-9
    assert min(apart) > 0
    assert max(apart) <= np.log(2)


def test_the_symbolic_proposer_writes_forms_of_the_grammar_alone():
    proposer = GrammarProposer(flips=False)
    for kind in ("theory", "model"):
        best = [(form, 0.1) for form in KNOWN.values() if form.sign > 0]
        written = asyncio.run(proposer.propose(kind, best, 200, 7)).forms
        assert written == asyncio.run(proposer.propose(kind, best, 200, 7)).forms
        assert {form.sign for form in written} == {1}
        assert all(Form.of(form.told) == form for form in written)
        shapes = {(form.aggregator, form.curved, frozenset(form.ranges)) for form in written}
        assert (len(shapes) > 10) is (kind == "theory") or kind == "model"
    with pytest.raises(BadInput, match="no aggregator 'majority'"):
        GrammarProposer(["majority"])


def test_a_models_theories_are_data_and_what_is_none_is_counted():
    told = KNOWN["take_the_worst"].told
    answer = f'Thinking [1].\n[{__import__("json").dumps(told)}, {{"aggregator": "__import__"}}, 7]'
    model = Scripted({"": answer.replace("[1]", "one")})
    written = asyncio.run(ModelProposer(model).propose("theory", [(KNOWN["ttb"], 0.1)], 8, 1))
    assert written.forms == [KNOWN["take_the_worst"]]
    assert sum(written.refused.values()) == 2
    assert written.tokens > 0
    asked = model.last.path[-1].message.text
    assert '"aggregator": "best"' in asked
    state = looped("take_the_worst", ModelProposer(model))
    assert state.ranked()[0][0].aggregator == "worst"
    assert state.refused

    def fail(request):
        raise Unreachable("the endpoint is down")

    silent = looped("take_the_worst", ModelProposer(Scripted({"": fail})), cycles=1)
    assert any("the endpoint is down" in why for why in silent.refused)
    assert silent.ended["adequate"] is False
    none = asyncio.run(ModelProposer(Scripted({"": "[" * 5000})).propose("theory", [(KNOWN["ttb"], 0.1)], 8, 1))
    assert none.forms == []


def test_forms_out_of_bounds_are_refused():
    for told in ({}, {"aggregator": "sum", "ranges": {"beta": [1, 2]}}, {"aggregator": "sum", "ranges": {"beta": "x"}}):
        with pytest.raises(BadInput):
            Form.of(told)
    with pytest.raises(BadInput, match="range of beta"):
        Form("best", {"beta": (0.1, 1e9), "eps": (0.0, 0.1)})
    with pytest.raises(BadInput, match="gamma is missing or has no meaning"):
        Form("best", {"beta": BOUNDS["beta"], "eps": BOUNDS["eps"], "gamma": (0.0, 1.0)})


def test_each_mechanism_has_a_twin_of_the_same_ranges():
    power, curved = rule(KNOWN["power"]), rule(KNOWN["diminishing"])
    assert set(power.without) == {"the power of validities"}
    assert set(curved.without) == {"diminishing returns"}
    assert power.without["the power of validities"].ranges == power.ranges
    trials = simulate(KNOWN["power"], random_design(np.random.default_rng(0)), 4, 0)
    at = {"beta": 2.0, "eps": 0.0, "gamma": 1.0}
    twin = power.without["the power of validities"]
    np.testing.assert_allclose(power.predict(at, trials), twin.predict(at, trials))  # at a power of 1 they are the same
    steep = at | {"gamma": 8.0}
    assert np.abs(power.predict(steep, trials) - twin.predict(steep, trials)).max() > 0.05
    assert rule(KNOWN["perseveration"]).memory
    assert "the memory of the last choice" in rule(KNOWN["perseveration"]).without
