"""E166's tier plans: the orchestrator gives what the simulation gives, gradients are right, marks can fail."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

pytest.importorskip("sklearn", reason="did not run: scikit-learn is not installed")
pytest.importorskip("cma", reason="did not run: cma is not installed")

from clew.harness.workflow import Part, written
from papers.E166_route import conductor, controls, crews, plan_pool, pool, report_plans, sessions, tier_plans
from papers.E166_route.conductor import How, Policy, School, as_written, lenient, strict
from papers.E166_route.plan_pool import BEST, CHECK, JOIN, LEFT, WHOLE, Answer, Simulated, part
from papers.experiment import Experiment, load

pytestmark = pytest.mark.whole

E166 = Experiment.find("E166")


@pytest.fixture(scope="module")
def found():
    return pool.programs(120, seed=1)


def signs(found):
    """Programs as the types of their operations in order, in place of n-grams."""
    out = np.zeros((len(found.texts), 10))
    out[:, -1] = 1
    for row, order in zip(out, found.orders, strict=True):
        for at, op in enumerate(order):
            row[3 * at + pool.OPS.index(op)] = 1
    return out


def test_the_committed_lines_are_the_cells_of_the_tier():
    lines = load(E166.here / "results" / "plans.jsonl")
    assert {E166.key(line) for line in lines} == {E166.key(cell) for cell in tier_plans.cells(False)}
    assert {E166.key(cell) for cell in tier_plans.cells(True)}
    assert all(E166.tiers["plans"].cost(cell) > 0 for cell in tier_plans.cells(True))


def test_the_orchestrator_gives_the_answers_of_the_simulation(found):
    """Any plan that parses, parts that work side by side and the same question asked twice among them."""
    rng = np.random.default_rng(0)
    plans = [conductor.valid(rng) if i % 2 else conductor.structures(o, rng) for i, o in enumerate(found.orders)]
    plans[0] = (part(3, WHOLE), part(3, WHOLE), part(3, LEFT), part(3, LEFT), part(4, JOIN, (0, 1, 2, 3)))
    texts = [written(plan) for plan in plans]
    texts[1] = "I would ask the first one."
    said = crews.Crew(found, texts, crews.by_luck(found, 3)).play(range(len(plans)))
    same = Simulated(found).play(plans, np.arange(len(plans)), np.full(len(plans), 3))
    assert said[1] is None
    assert [said[0], *said[2:]] == [row[-1] for row in (same[0], *same[2:])]
    assert 10 < sum(a == Answer(len(o)) for a, o in zip(said, found.orders, strict=True)) < len(plans) - 10


def test_plans_are_worth_what_their_workers_chances_say():
    many = pool.programs(400, seed=2)
    it = Simulated(many)
    whole = it.success([(part(BEST, WHOLE),)] * 400, 20).mean()
    assert whole == pytest.approx(many.chances[:, BEST].mean(), abs=0.02)
    known = np.prod([0.97]) ** np.array([len(order) for order in many.orders])
    assert it.success([plan_pool.masters(order) for order in many.orders], 10).mean() == pytest.approx(
        known.mean(), abs=0.02
    )
    left = [(part(BEST, 1), part(BEST, LEFT, (0,))) for _ in many.orders]
    assert it.success(left, 10).mean() == pytest.approx(whole, abs=0.03), "who goes on from the end says it again"
    assert not it.success([(part(BEST, 1), part(BEST, 2))] * 400, 1).any(), "the second operation on nothing"
    assert it.success([controls.vote([BEST] * 3)] * 400, 10).mean() > whole + 0.05
    assert [len(plan_pool.clauses(text)) for text in many.texts] == [len(order) for order in many.orders]


def test_what_is_known_of_a_checker_of_a_joiner_and_of_who_has_nothing():
    wrong, right = Answer(1, 2), Answer(1)
    trusts, doubts = [0.1, 0.1, 0.1, 0.5, 0.4], [0.1, 0.1, 0.1, 0.5, 0.6]
    assert [plan_pool.answer(0, CHECK, "L", [wrong], luck) for luck in (trusts, doubts)] == [right, wrong]
    debug = pool.WORKERS.index("debug")
    assert plan_pool.answer(debug, CHECK, "LMC", [Answer(3, 1)], [0.84, 0.9, 0.9, 0, 0]) == Answer(3)
    assert plan_pool.answer(0, JOIN, "L", [wrong, right, right, Answer(0)], trusts) == right
    assert plan_pool.answer(0, JOIN, "LM", [Answer(2, 3), right, right], trusts) == Answer(2, 3)
    assert plan_pool.answer(0, 5, "LM", [right], trusts) == Answer(0)
    assert plan_pool.answer(0, plan_pool.AGAIN, "LM", [], trusts) == Answer(0)
    for one in (Answer(0), wrong, right, Answer(3, 5)):
        assert crews.understood(crews.shown(one, 77), 77) == one


def test_what_the_policy_writes_is_read_by_the_parser_and_can_fail():
    plans = [conductor.valid(np.random.default_rng(seed)) for seed in range(20)]
    made = as_written(plans)
    assert [strict(text) for text in made.texts()] == plans
    rng = np.random.default_rng(0)
    drawn = Policy(10, 0).write(np.ones((300, 10)), rng).texts()
    assert sum(strict(text) is not None for text in drawn) < 30, "untrained it seldom writes a plan"
    assert sum(lenient(text) is not None for text in drawn) > 150
    broken = as_written([(part(0, 0), part(1, LEFT, (0,)))] * 4)
    broken.lengths[0] = [2, 1, 2]
    broken.workers[1, 0] = pool.W
    broken.subtasks[2, 1] = len(plan_pool.SUBTASKS)
    broken.reads[3, 0, 1] = 1
    assert [strict(text) for text in broken.texts()] == [None] * 4
    assert [lenient(text) for text in broken.texts()][3] == (part(0, 0), part(1, LEFT, (0,)))
    assert lenient(broken.texts()[1])[0] == Part(0, plan_pool.SUBTASKS[0])


def test_gradients_are_those_of_the_log_chance():
    rng = np.random.default_rng(0)
    policy, x = Policy(10, 3), rng.normal(size=(30, 10))
    for name in policy.weights:
        policy.weights[name] += 0.3 * rng.normal(size=policy.weights[name].shape)
    made, gain = policy.write(x, rng), rng.normal(size=30)
    _, slope = policy.score(x, made)
    found = slope(gain)
    for name, at in (
        ("a0", (2, 5)),
        ("b0", (7, 1)),
        ("a1", (11, 9)),
        ("b1", (3, 20)),
        ("b1", (128, 0)),
        ("b1", (9, -3)),
    ):
        both = []
        for sign in (1, -1):
            policy.weights[name][at] += sign * 1e-5
            both.append(float((gain * policy.score(x, made)[0]).sum()))
            policy.weights[name][at] -= sign * 1e-5
        assert found[name][at] == pytest.approx((both[0] - both[1]) / 2e-5, abs=1e-4), name


def test_groups_are_normalised_and_those_of_one_reward_teach_nothing():
    gain = conductor.advantages(np.array([[0.5, 1.0, 1.0, 0.5], [1.0] * 4]))
    assert gain == pytest.approx(np.array([[-1, 1, 1, -1], [0] * 4]), abs=1e-6)


def test_training_raises_what_it_is_for():
    """Wide: what is trained hangs on the rounding of the machine."""
    drawn = {name: pool.programs(n, seed) for name, n, seed in (("learn", 200, 3), ("held", 50, 4), ("cold", 256, 5))}
    x = {name: signs(one) for name, one in drawn.items()}
    it = School(
        Simulated(drawn["learn"]), Simulated(drawn["held"]), drawn["cold"], x["learn"], x["held"], x["cold"]
    )  # fmt: skip
    _, log = conductor.trained(it, How(iterations=40), 0)
    assert log[0]["parsed"] > 0.9, "the cold start gives the form"
    assert log[-1]["right"] > log[0]["right"] + 0.1
    _, none = conductor.trained(it, How(start="none", iterations=3), 0)
    assert none[0]["parsed"] < 0.1


def test_who_sees_no_attempt_copies_none(found):
    small = pool.programs(25, seed=6)
    same, other = (crews.isolation(small, shared, 0.0, 1) for shared in (False, True))
    assert (same.success == other.success).all()
    assert (same.alike == other.alike).all()
    alone, shared = (crews.isolation(small, one, 0.6, 1) for one in (False, True))
    assert (alone.saw, alone.attempts, shared.saw, shared.attempts) == (0, 100, 75, 100)
    assert shared.alike.mean() > alone.alike.mean() + 0.1


def test_memory_saves_calls_and_canaries_stay_where_a_policy_says():
    arms = {memory: sessions.arm("files", 1, 3, memory) for memory in sessions.MEMORY}
    repeats = {memory: sum(arm["repeats"]) for memory, arm in arms.items()}
    assert repeats["shared"] < 0.5 * repeats["none"]
    assert repeats["shared"] <= repeats["under a policy"] < 0.5 * repeats["none"]
    assert arms["none"]["calls"] == [4 * sessions.TURNS] * 3
    for arm in arms.values():
        assert min(arm["success"]) > 0.5
        assert arm["leaks"]["uncleared, first turn"] > 0
        assert arm["leaks"]["uncleared saw secret, first turn"] == arm["leaks"]["other sessions"] == 0
    assert arms["none"]["leaks"]["uncleared saw secret"] == arms["under a policy"]["leaks"]["uncleared saw secret"] == 0


def lines(better):
    """Two seeds in which everything is as promised, or nothing is."""
    out = []
    for seed in (0, 1):
        high, n = 0.01 * seed, 10
        for way, how in tier_plans.WAYS.items():
            said = {"flat groups": 0.1, "worker entropy": 1.0, "parsed": 1.0, "right": 0.8, "calls": 2.0}
            made = {
                "success": (0.9 if better else 0.6) + high, "forced": 0.7, "masters": 0.95, "single": 0.69,
                "calls": 1.5, "by size": [0.9, 0.8, 0.7], "calls by size": [1.0 if better else 2.0, 2.0, 3.0],
                "unparsed": 0, "programs": n, "drawn unparsed": 0 if better else 5, "drawn": 50, "log": [said] * 10,
                "agreed": n - (not better), "workflows": 10, "iterations": how.iterations,
            }  # fmt: skip
            out.append({"kind": "plans", "way": way, "seed": seed} | made)
        votes = {name: [0.7] * 4 for name in ("vote", "crew vote", "verified", "crew verified", "routed verified")}
        out.append({"kind": "controls", "seed": seed, "repair": 0.7, "routed": 0.8, "single": 0.69} | votes)
        for copying in (0.0, 0.6):
            arm = {"success": 0.6, "alike": 0.3, "wrong alike": 0.1, "saw": int(not better), "attempts": n}
            worse = (
                {"success": 0.4 if copying else 0.6, "alike": 0.6 if copying else 0.3} if better else {"alike": 0.31}
            )
            out.append({"kind": "isolation", "copying": copying, "seed": seed, "isolated": arm, "shared": arm | worse})
        for files in sessions.KINDS:
            for memory in sessions.MEMORY:
                seen = ("uncleared saw secret", "uncleared saw secret, first turn", "other sessions")
                leaks = {"requests": n, "uncleared": n, "uncleared, first turn": n} | dict.fromkeys(
                    seen, int(not better)
                )
                made = {"repeats": 1.0 if memory != "none" and better else 10.0, "calls": 20.0, "leaks": leaks}
                made["success"] = 0.9 if better or memory == "none" else 0.7
                out.append({"kind": "memory", "files": files, "memory": memory, "seed": seed} | made)
    return out


def test_marks_can_fail():
    good, bad = (report_plans.marks(report_plans.Results(lines(better))) for better in (True, False))
    assert [mark.name for mark in good if mark.met is False] == []
    assert [mark.name for mark in bad if mark.met] == []
    assert sum(mark.met is None for mark in good) == 6
    assert "# E166, tier plans" in report_plans.report(lines(True))
