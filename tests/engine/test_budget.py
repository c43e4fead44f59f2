"""Policies of verified lengths: exact on every block there is, and loud where their input is not sound."""

from __future__ import annotations

import dataclasses
import logging

import numpy as np
import pytest

from clew.core.errors import BadInput, BadRecord, ModelError, UnknownName
from clew.models.engine.speculation.costs import Costs, hardware
from clew.models.engine.speculation.lengths import Algorithm1, Fixed, Paying, Scheduler, Threshold, policy, top
from clew.models.engine.speculation.profile import measure
from papers.E179_dspark import toy

JAGGED = toy.table(toy.JAGGED, 3)
SANCTIONED = {
    "whole block": lambda: Fixed(3),
    "one": lambda: Fixed(1),
    "none": lambda: Fixed(0),
    "threshold": lambda: Threshold(0.5),
    "algorithm 1": lambda: Algorithm1(JAGGED),
    "scheduler": lambda: Scheduler(JAGGED),
    "scheduler, one round back": lambda: toy.used(Scheduler(JAGGED, lag=1), 3, seed=1),
    "scheduler, after some rounds": lambda: toy.used(Scheduler(JAGGED), 3, seed=2),
    "scheduler, capped": lambda: toy.used(Scheduler(JAGGED, cap=2), 3, seed=3),
}


@pytest.mark.parametrize("name", SANCTIONED)
@pytest.mark.parametrize("game", [8, 13])
def test_what_is_emitted_has_the_targets_law(name, game):
    fresh = "after" not in name and "back" not in name
    assert toy.bias(toy.random_game(game), SANCTIONED[name](), fresh=fresh) <= 1e-12


@pytest.mark.parametrize("game", [8, 13])
def test_a_budget_from_the_block_it_sizes_is_seen(game):
    assert toy.bias(toy.random_game(game), toy.Anticipating(JAGGED)) >= 0.05
    assert toy.bias(toy.own_chance(toy.random_game(game)), Threshold(0.3)) >= 0.05


@pytest.mark.parametrize("lag", [1, 2])
def test_rounds_that_learn_from_each_other_stay_exact(lag):
    costs = toy.table(toy.JAGGED[:6], 2)
    assert toy.bias(toy.random_game(4, 2, 2), Scheduler(costs, lag=lag, probe=1), tokens=4, rounds=3) <= 1e-12


def test_the_papers_counter_example():
    costs = toy.table((1.0, 0.5, 0.45), 2)
    kept = toy.emitted_law(toy.paper_game(), Scheduler(costs), tokens=1, requests=1)
    moved = toy.emitted_law(toy.paper_game(), toy.Anticipating(costs), tokens=1, requests=1)
    np.testing.assert_allclose(kept, [0.70, 0.30], atol=1e-12)
    np.testing.assert_allclose(moved, [0.85, 0.15], atol=1e-12)


def test_places_go_to_the_best_and_ties_to_the_earlier_token_then_the_lower_row():
    survival = np.array([[0.9, 0.5, 0.1], [1.0, 1.0, 1.0], [0.9, 0.9, 0.2]])
    assert top(survival, 5).tolist() == [1, 3, 1]
    assert top(survival, 6).tolist() == [1, 3, 2]
    assert top(np.ones((3, 2)), 2).tolist() == [1, 1, 0]
    assert top(np.ones((3, 2)), 4).tolist() == [2, 1, 1]
    assert top(np.array([[0.5, 1e-9]]), 2, epsilon=1e-6).tolist() == [1]


def machine(**changed):
    """8 ms a forward, stepping up every 4 tokens; drafting costs a tenth."""
    sizes = tuple(range(4, 260, 4))
    verify = tuple(8e-3 + 1e-4 * s for s in sizes)
    draft = tuple(1e-3 + 1e-5 * s for s in sizes)
    made = Costs(sizes, verify, sizes, verify, draft, 3, steps=True, hardware=hardware(), model="m", drafter="d")
    return dataclasses.replace(made, **changed)


def test_the_scheduler_sizes_by_chances_of_two_rounds_ago():
    it, rows = Scheduler(machine()), np.arange(64)
    high, low, fresh = np.full((64, 3), 0.95), np.full((64, 3), 0.02), np.zeros(64, bool)
    sums = []
    for chance in (high, high, low, low, low, high, high, high):
        sums.append(int(it.choose(rows, fresh, chance).sum()))
    assert sums[:4] == [192, 192, 192, 192]  # low chances are not known yet, and none is below epsilon
    assert sums[4] < 8
    assert sums[6] < 8  # nor are high ones
    assert sums[7] == 192
    mixed = np.where(np.arange(64)[:, None] < 32, 0.95, 0.02)
    for _ in range(3):
        found = it.choose(rows, fresh, np.broadcast_to(mixed, (64, 3)))
    assert found.tolist() == [3] * 32 + [0] * 32


def test_a_new_request_counts_as_those_of_late_and_the_first_as_sure():
    it, rows = Scheduler(machine()), np.arange(8)
    high, low, none, fresh = np.full((8, 3), 0.95), np.full((8, 3), 0.02), np.zeros(8, bool), np.ones(8, bool)
    assert it.choose(rows, fresh, low).sum() == 24
    assert it.choose(rows, fresh, low).sum() == 0
    for _ in range(40):
        it.choose(rows, none, high)
    assert it.choose(rows, fresh, low).sum() == 24


def test_drafting_stops_where_it_does_not_pay_and_is_tried_again():
    it, rows, fresh = Scheduler(machine(), probe=5), np.arange(64), np.zeros(64, bool)
    drafted = []
    for _ in range(30):
        drafted.append(it.draft(rows))
        if drafted[-1]:
            it.choose(rows, fresh, np.full((64, 3), 0.02))
    assert [i for i, d in enumerate(drafted) if d] == [0, 6, 12, 18, 24]
    for _ in range(12):
        if it.draft(rows):
            it.choose(rows, fresh, np.full((64, 3), 0.95))
    assert all(it.draft(rows) and it.choose(rows, fresh, np.full((64, 3), 0.95)).any() for _ in range(3))


def test_one_bad_block_of_a_single_user_does_not_stop_drafting():
    it, rows, fresh = Scheduler(machine()), np.arange(1), np.zeros(1, bool)
    for i in range(60):
        assert it.draft(rows)
        it.choose(rows, fresh, np.full((1, 3), 0.02 if i == 40 else 0.95))
    drafted = 0
    for _ in range(200):
        if it.draft(rows):
            drafted += 1
            it.choose(rows, fresh, np.full((1, 3), 0.02))
    assert 4 < drafted < 50  # but a bad spell does


def test_algorithm_1_stops_before_a_step_that_the_scheduler_crosses():
    chance, fresh, rows = np.full((4, 3), 0.95), np.zeros(4, bool), np.arange(4)
    costs = machine(sizes=(4, 16), verify=(1.0, 2.0), rows=(4,), plain=(1.0,), draft=(0.0,))
    assert Algorithm1(costs).choose(rows, fresh, chance).sum() == 0
    assert Scheduler(costs).choose(rows, fresh, chance).sum() == 12


def test_a_chance_that_is_not_a_number_is_an_error():
    chance = np.full((4, 3), 0.5)
    chance[1, 2] = np.nan
    for it in (Threshold(0.5), Algorithm1(machine()), Scheduler(machine())):
        with pytest.raises(ModelError, match="not numbers from 0 to 1"):
            it.choose(np.arange(4), np.zeros(4, bool), chance)
    with pytest.raises(ModelError):
        Threshold(0.5).choose(np.arange(4), np.zeros(4, bool), np.full((4, 3), 1.01))


def test_a_changed_block_is_an_error():
    for it in (Algorithm1(machine()), Scheduler(machine())):
        with pytest.raises(BadInput, match="proposes 5 tokens, the costs were measured for 3"):
            it.choose(np.arange(4), np.zeros(4, bool), np.full((4, 5), 0.5))
    with pytest.raises(BadInput, match="blocks of 3 tokens, this drafter proposes 5"):
        policy("auto", machine(), 5)


def test_flat_and_missing_costs_verify_everything_and_say_so(caplog):
    flat = machine(verify=(8e-3,) * 64, plain=(8e-3,) * 64)
    with caplog.at_level(logging.WARNING):
        it = Scheduler(flat)
        assert "every drafted token will be verified" in caplog.text
        found = it.choose(np.arange(4), np.zeros(4, bool), np.full((4, 3), 0.3))
        assert found.tolist() == [3] * 4
        caplog.clear()
        assert isinstance(policy("auto", None, 3), Paying)
        assert "what pays is found while serving" in caplog.text
    with pytest.raises(BadInput, match="scheduler needs the costs"):
        policy("scheduler", None, 3)


def test_recycled_rows_and_more_of_them():
    it = Scheduler(machine())
    for rows in ([0, 1], [1, 5], [0, 1, 2, 9], [9]):
        it.draft(np.array(rows))
        assert len(it.choose(np.array(rows), np.array([r == 9 for r in rows]), np.full((len(rows), 3), 0.9))) == len(
            rows
        )


@pytest.mark.parametrize(
    ("text", "kind"),
    [("none", Fixed), ("fixed", Fixed), ("fixed(k=2)", Fixed), ("threshold(least=0.7)", Threshold),
     ("algorithm1", Algorithm1), ("scheduler", Scheduler), ("scheduler(cap=64)", Scheduler), ("auto", Scheduler)],
)  # fmt: skip
def test_policies_by_name(text, kind):
    assert type(policy(text, machine(), 3)) is kind


@pytest.mark.parametrize("text", ["best", "none(k=1)", "fixed(k=-1)", "threshold", "threshold(least=2)", "fixed(x=1)",
                                  "scheduler(lag=0)"])  # fmt: skip
def test_policies_that_are_not(text):
    with pytest.raises(BadInput):
        policy(text, machine(), 3)


def test_costs_between_and_beyond_what_was_measured():
    padded, smooth = machine(), machine(steps=False)
    assert padded.verify_seconds([4, 5, 8]).tolist() == pytest.approx([8.4e-3, 8.8e-3, 8.8e-3])
    assert smooth.verify_seconds(6) == pytest.approx(8.6e-3)
    assert padded.verify_seconds(356) == pytest.approx(33.6e-3 + 1e-4 * 100)
    assert smooth.draft_seconds(130) == pytest.approx(2.3e-3)


@pytest.mark.parametrize(
    "changed",
    [{"verify": (1.0,) * 3}, {"verify": (0.0,) * 64}, {"plain": (2.0,) * 63 + (1.0,)}, {"draft": (float("nan"),) * 64},
     {"rows": (4,) * 64}, {"block": 0}],
)  # fmt: skip
def test_costs_that_are_none(changed):
    with pytest.raises(BadInput, match="cost table needs"):
        machine(**changed)


def test_costs_are_kept_beside_the_model_and_refused_where_stale(tmp_path):
    with pytest.raises(UnknownName, match="no cost table"):
        Costs.load(tmp_path, "m", "d")
    machine().save(tmp_path)
    assert Costs.load(tmp_path, "m", "d") == machine()
    for model, drafter, what in (("n", "d", "target 'm', this is 'n'"), ("m", "", "drafter 'd', this is ''")):
        with pytest.raises(BadInput, match=what):
            Costs.load(tmp_path, model, drafter)
    machine(hardware="abacus").save(tmp_path)
    with pytest.raises(BadInput, match="abacus"):
        Costs.load(tmp_path, "m", "d")
    (tmp_path / "costs.json").write_text('{"sizes": [1]}')
    with pytest.raises(BadRecord, match="is no cost table"):
        Costs.load(tmp_path, "m", "d")


def test_the_costs_of_a_forward_are_measured(tmp_path):
    from clew.models.local import small

    model = small([f"w{i}" for i in range(20)], context=64)
    seen = []
    found = measure(model, None, max_rows=16, advance=lambda *x: seen.append(x))
    assert found.sizes[-1] == 128
    assert found.rows == (1, 2, 4, 8, 16)
    assert [done for _, done, _ in seen] == list(range(seen[0][2]))
    assert found.by_process_time().verify == found.verify_cpu
    found.save(tmp_path)
    assert Costs.load(tmp_path, model.digest(), "") == found
    model.close()
