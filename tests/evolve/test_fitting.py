"""Rules fitted to choices, their errors where they were not fitted, the noise, twins and the verdict in words."""

import numpy as np
import pytest

from clew.core.errors import BadInput
from clew.methods.theories.choice_fits import HeldOut, Rule, cells, error, fit, guessed, leave_one_out, prior_predictive
from clew.methods.theories.mechanism_twins import claims
from clew.methods.theories.noise_ceiling import noise_floor
from clew.methods.theories.verdict_words import verdict
from tests.evolve.choosers import choices

pytest.importorskip("scipy", reason="did not run: fits need scipy")


def weighed(power):
    def predict(parameters, seen):
        weights = seen.validities ** parameters.get("gamma", power)
        return 1 / (1 + np.exp(-parameters["beta"] * ((seen.b - seen.a) @ weights)))

    return predict


def repeats(parameters, seen):
    """The choice before, with probability 1 - slip: at a person's first trial, B."""
    before = np.r_[1, seen.chose_b[:-1]]
    same = np.r_[False, seen.subject[1:] == seen.subject[:-1]]
    return np.where(np.where(same, before, 1) == 1, 1 - parameters["slip"], parameters["slip"])


GAIN = {"beta": (0.1, 20.0)}
LINEAR = Rule("linear", GAIN, weighed(1.0))
POWER = Rule("power", GAIN | {"gamma": (0.0, 10.0)}, weighed(1.0), without={"the power of validities": LINEAR})
REPEAT = Rule("repeat", {"slip": (0.01, 0.6)}, repeats, memory=True)
VALIDITIES = [(0.95, 0.8, 0.7, 0.6), (0.99, 0.9, 0.6, 0.55), (0.9, 0.85, 0.7, 0.5), (0.98, 0.7, 0.65, 0.6)]
SHARP = [choices(POWER, i, validities=v, beta=4.0, gamma=5.0) for i, v in enumerate(VALIDITIES)]
FLAT = [choices(POWER, i, validities=v, beta=1.0, gamma=1.0) for i, v in enumerate(VALIDITIES)]


def test_a_planted_power_is_found_and_its_twin_fails():
    found = fit(POWER, SHARP)
    assert 3 < found.parameters["gamma"] < 8
    own = leave_one_out(POWER, SHARP, restarts=2)
    assert own.mean < 0.005
    (one,) = claims(POWER, SHARP, own=own, restarts=2)
    assert one.stands
    assert one.twin.mean > 2 * own.mean


def test_a_mechanism_that_is_not_there_may_not_be_claimed_in_words():
    own = leave_one_out(POWER, FLAT, restarts=2)
    (one,) = claims(POWER, FLAT, own=own, restarts=2)
    assert not one.stands
    floor = float(np.mean([noise_floor(x, splits=20) for x in FLAT]))
    assert verdict({"power": own, "linear": one.twin}, floor).adequate is None, "both pass: nothing could have failed"
    told = verdict({"power": own, "linear": one.twin}, floor, [one], guess=guessed(FLAT))
    assert told.adequate is True
    assert told.best == "linear"
    assert "the power of validities may not be claimed" in told.words[-1]
    assert "do not tell it from" in told.words[1]


def test_no_theory_is_adequate_where_people_do_something_else():
    wrong = [x._replace(chose_b=1 - x.chose_b) for x in SHARP]
    known = {"linear": leave_one_out(LINEAR, wrong, restarts=1)}
    told = verdict(known, float(np.mean([noise_floor(x, splits=20) for x in wrong])))
    assert told.adequate is False
    assert "No adequate theory" in told.words[-1]
    near = verdict({"one": HeldOut(np.array([0.01, 0.05]), ())}, 0.0101)
    assert near.adequate is None
    assert "is open" in near.words[-1]
    with pytest.raises(BadInput, match="different experiments"):
        verdict({}, 0.1)


def test_the_noise_floor_is_that_of_as_many_people():
    floors = [noise_floor(choices(POWER, 7, people=n, each=1, beta=0.1, gamma=1.0), splits=50) for n in (20, 320)]
    assert 0.25 / 20 / 2.5 < floors[0] < 0.25 / 20 * 2.5
    assert floors[1] < floors[0] / 4
    with pytest.raises(BadInput, match="3 people"):
        noise_floor(choices(POWER, 7, people=3, beta=1.0))


def test_a_rule_with_memory_is_asked_choice_by_choice():
    first = choices(LINEAR, 3, beta=1.0)
    same = first._replace(chose_b=np.ones_like(first.chose_b))
    assert error(REPEAT, {"slip": 0.01}, same, "likelihood") == pytest.approx(-np.log(0.99))
    assert fit(REPEAT, [same], loss="likelihood", restarts=1).parameters["slip"] < 0.05


def test_cells_count_each_pair_and_what_cannot_be_fitted_is_refused():
    known = cells(SHARP[0])
    assert known.counts.sum() == len(SHARP[0].chose_b)
    assert float((known.share * known.counts).sum()) == pytest.approx(SHARP[0].chose_b.sum())
    assert prior_predictive(POWER, SHARP, draws=20).shape == (4,)
    with pytest.raises(BadInput, match="cannot be left out"):
        leave_one_out(LINEAR, SHARP[:1])
    with pytest.raises(BadInput, match="no experiment"):
        fit(LINEAR, [])
    with pytest.raises(BadInput, match="range of 'x' is empty"):
        fit(Rule("none", {"x": (1.0, 1.0)}, weighed(1.0)), SHARP)
    assert fit(Rule("half", {}, lambda _, seen: np.full(len(seen.a), 0.5)), SHARP).loss > 0
    assert HeldOut(np.array([1.0, 3.0]), ()).spread == 1.0
