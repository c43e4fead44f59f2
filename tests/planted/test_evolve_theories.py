"""Planted failures of `evolve theories`: data on which no mechanism may be claimed and no theory called adequate."""

from __future__ import annotations

import json

import numpy as np
import pytest

from clew.methods.theories.choice_designs import random_design
from clew.methods.theories.choice_fits import HeldOut, guessed, leave_one_out
from clew.methods.theories.choice_forms import BOUNDS, KNOWN, Form, rule
from clew.methods.theories.choice_trials import Design
from clew.methods.theories.mechanism_twins import claim, claims
from clew.methods.theories.noise_ceiling import noise_floor
from clew.methods.theories.simulated_people import simulate
from clew.methods.theories.verdict_words import named, verdict

pytest.importorskip("scipy", reason="did not run: fits need scipy")


STEADY = np.array([1e-5, 1.1e-5, 0.9e-5, 1e-5])


def people(name, experiments=5, asked=16, highest=1, seed=0):
    rng = np.random.default_rng(seed)
    return [simulate(KNOWN[name], random_design(rng, highest), asked, number) for number in range(experiments)]


def free(*names, aggregator="sum", curved=False):
    """A rule of the grammar with these parameters beside the two of the noise, free within their bounds."""
    return rule(Form(aggregator, {name: BOUNDS[name] for name in ("beta", "eps", *names)}, curved=curved), "the rule")


def floor_of(data):
    return float(np.mean([noise_floor(one, splits=50) for one in data]))


@pytest.mark.parametrize(
    ("truth", "aggregator", "names"),
    [
        ("take_the_worst", "worst", ("history",)),
        ("ttb", "best", ("history",)),
        ("single_cue", "first", ("history",)),
        ("wadd", "sum", ("gamma",)),
        ("tally", "sum", ("gamma",)),
    ],
)
def test_a_mechanism_that_people_lack_is_not_borne_out(truth, aggregator, names):
    data = people(truth)
    (one,) = claims(free(*names, aggregator=aggregator), data, floor=floor_of(data), restarts=1)
    assert not one.stands


def test_a_gain_far_below_the_noise_does_not_count_however_steady_it_is():
    own = np.array([0.0020, 0.0021, 0.0019, 0.0020])
    one = claim("a", "m", HeldOut(own, ()), HeldOut(own + STEADY, ()), 0.0017)
    assert one.gain > 10 * one.spread
    assert not one.stands
    flat = claim("a", "m", HeldOut(own, ()), HeldOut(own + STEADY, ()), 0.0)
    assert not flat.stands, "nor where people do not vary at all"


def test_a_gain_that_one_experiment_makes_is_not_beyond_chance_and_many_claims_cost():
    own, more = np.full(4, 0.002), np.array([0.002, 0.003, 0.004, 0.003])
    lone = claim("a", "m", HeldOut(own, ()), HeldOut(own + np.array([0.02, 0.0, 0.0, 0.0]), ()), 0.001)
    assert not lone.stands
    alone, among = (claim("a", "m", HeldOut(own, ()), HeldOut(own + more, ()), 0.001, among=n) for n in (1, 20))
    assert alone.stands
    assert not among.stands


@pytest.mark.parametrize("case", ["binary ratings", "equal validities", "one choice each"])
def test_where_a_rule_says_what_its_twin_says_the_mechanism_is_not_tested(case):
    data = people("tally", 3, asked=6)
    if case == "equal validities":
        data = [one._replace(validities=np.full(4, 0.8)) for one in data]
    if case == "one choice each":
        data = [one._replace(subject=np.arange(len(one.subject))) for one in data]
    parts = {"binary ratings": ("alpha", "shift"), "equal validities": ("gamma",), "one choice each": ("history",)}
    (one,) = claims(free(*parts[case], curved=case == "binary ratings"), data, floor=0.002, restarts=1)
    assert not one.compared.tested
    assert not one.stands
    told = verdict({"the rule": one.own}, 0.002, [one], guess=guessed(data)).words[-1]
    assert "not tested: the theory says the same as its twin" in told


def test_two_experiments_name_no_mechanism():
    data = people("power", 2)
    (one,) = claims(free("gamma"), data, floor=floor_of(data), restarts=1)
    assert not one.stands
    assert "from 3 experiments on, and there are 2" in one.compared.verdict("borne out")


@pytest.mark.parametrize("case", ["coins", "four people"])
def test_of_people_who_toss_coins_no_theory_is_named(case):
    data = people("ttb", 3, asked=4 if case == "four people" else 16)
    if case == "four people":  # who see each pair once
        data = [one._replace(**{k: getattr(one, k)[::4] for k in ("a", "b", "subject", "chose_b")}) for one in data]
    luck = np.random.default_rng(5)
    data = [one._replace(chose_b=luck.integers(0, 2, len(one.chose_b))) for one in data]
    known = {name: leave_one_out(rule(KNOWN[name], name), data, restarts=1) for name in ("ttb", "tally")}
    told = verdict(known, floor_of(data), guess=guessed(data))
    assert told.best == "guessing .5"
    if case == "four people":
        assert told.adequate is None
        assert any("was not tested: every one of them" in words for words in told.words)


def bank(path, batches):
    lines = []
    for number, trials in enumerate(batches):
        for a, b, who, chose in zip(trials.a, trials.b, trials.subject, trials.chose_b, strict=True):
            line = {"experiment": f"e{number}", "subject": int(who), "a": a.tolist(), "b": b.tolist()}
            lines.append(json.dumps(line | {"validities": trials.validities.tolist(), "chose_b": int(chose)}))
    path.write_text("\n".join(lines))
    return path


def test_batches_on_one_design_lose_nobody_and_are_one_design(clew, tmp_path):
    design = random_design(np.random.default_rng(3))
    batches = [simulate(KNOWN["ttb"], design, 9 + number % 2, number) for number in range(8)]
    path = bank(tmp_path / "c.jsonl", batches)
    said = clew("evolve", "theories", "--bank", path, "--designs", "blind").output
    assert "bank: 8 experiments, 76 people, 1 different designs" in said
    assert "76 people on 1 designs" in said
    assert "no mechanism is named (1 here)" in said
    assert "Adequate" not in said


def test_a_bank_of_two_designs_gets_no_verdict_and_advice_that_helps(clew, tmp_path):
    path = bank(tmp_path / "c.jsonl", people("ttb", 2))
    said = clew("evolve", "theories", "--bank", path, "--designs", "blind").output
    assert "from fewer than 3 designs no mechanism is named (2 here)" in said
    assert "add choices on 1 more" in said
    assert "--cycles 2" not in said
    assert "Adequate" not in said
    told = json.loads(clew("evolve", "theories", "--bank", path, "--designs", "blind", "--json").stdout)
    assert told["adequate"] is not True
    assert told["compared"]["tested"] is False


def test_validities_that_change_within_an_experiment_are_refused(clew, tmp_path):
    row = {"experiment": "e", "subject": 0, "a": [1, 0], "b": [0, 1], "chose_b": 0}
    rows = [row | {"validities": told} for told in ([0.9, 0.6], [0.6, 0.9])]
    (tmp_path / "c.jsonl").write_text("\n".join(json.dumps(one) for one in rows))
    assert "line 2 of c.jsonl has other validities" in clew("evolve", "theories", "--bank", "c.jsonl", code=2).output


# ---- planted truths: still found -----------------------------------------------------------------------------------


def test_planted_tallying_is_named_though_the_power_includes_it():
    data = people("tally", 5)
    forms = {"tally": KNOWN["tally"], "power": KNOWN["power"], "wadd": KNOWN["wadd"]}
    known = {name: leave_one_out(rule(form, name), data, restarts=1) for name, form in forms.items()}
    best, tied = named(known, floor_of(data))
    assert best == "tally"
    assert tied == ("power",)
    told = verdict(known, floor_of(data), guess=guessed(data))
    assert told.adequate is True
    assert told.compared.could_differ >= 1


@pytest.mark.parametrize(
    ("truth", "aggregator", "name"), [("sharp", "sum", "gamma"), ("alternating", "none", "history")]
)
def test_a_planted_mechanism_is_borne_out(truth, aggregator, name):
    data = people("alternating", 6, asked=25)
    if truth == "sharp":
        rng = np.random.default_rng(1)
        form = Form("sum", {"beta": (8.0, 8.0), "eps": (0.0, 0.1), "gamma": (6.0, 6.0)})
        spread = [np.array(v) for v in ((0.95, 0.85, 0.65, 0.55), (0.99, 0.9, 0.6, 0.52), (0.9, 0.8, 0.7, 0.6))]
        designs = [random_design(rng)._replace(validities=spread[i % 3]) for i in range(5)]
        data = [simulate(form, Design(*one), 12, i) for i, one in enumerate(designs)]
    (one,) = claims(free(name, aggregator=aggregator), data, floor=floor_of(data), restarts=1)
    assert one.stands
    assert one.compared.tested
