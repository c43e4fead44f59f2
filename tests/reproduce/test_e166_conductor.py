"""E166's tier conductor: workers do what they say, plans come to what runs of them come to, marks can fail."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

pytest.importorskip("torch", reason="did not run: torch is not installed (pip install 'clew[local]')")

from clew.harness import Runner
from clew.harness.workflow.plan_demonstrations import JUDGE
from clew.harness.workflow.workplan import Part, written
from clew.models.fakes import Scripted
from papers.E166_route import report_conductor, tier_conductor
from papers.E166_route.conductor_pool import Programs, Read, Skill, worker
from papers.E166_route.lead import CONFIG, cold_start, outcomes, train, untrained

pytestmark = pytest.mark.whole

SIZE = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def test_a_plan_comes_to_what_a_run_of_it_comes_to():
    """Chains, leaves and a judge, steps out of order, and words that no worker knows."""
    plans = [
        [Part(0, "Do the whole task.")],
        [Part(0, "Do step 1."), Part(1, "Do step 2.", (0,)), Part(2, "Do step 3.", (1,))],
        [Part(2, "Do the whole task."), Part(1, "Do step 2."), Part(2, JUDGE, (0, 1))],
        [Part(0, "Sing."), Part(1, "Check the result and correct it.", (0,))],
        [Part(0, "Do step 1."), Part(2, "Hum.", (0,))],
    ]  # fmt: skip
    tasks = Programs().sample(12, 3)
    for plan in plans:
        runner = Runner("orchestrator", Programs(), Scripted({"": written(plan)}), config=CONFIG, resolve_model=worker)
        for run, task in zip(runner.collect(tasks, 1).runs, tasks, strict=True):
            assert run.reward == tier_conductor.performed(plan, task.prompt)


def test_programs_have_answers_and_workers_their_skills():
    read = Read("table: ann=12, bob=34, cy=5. begin with 80, look up bob, then multiply by 3, then rotate it 2 times.")
    assert [op for op, _ in read.ops] == ["L", "M", "C"]
    assert read.answer == (((80 + 34) % 100) * 3 % 100 + 74) % 100
    texts = [task.prompt for task in Programs().sample(400, 1)]
    ones = [(text, Read(text)) for text in texts if len(Read(text).ops) == 1]
    assert 0.5 < len(ones) / len(texts) < 0.7
    right = [Skill("math").reply(text) == str(one.answer) for text, one in ones if one.ops[0][0] == "M"]
    wrong = [Skill("math").reply(text) != str(one.answer) for text, one in ones if one.ops[0][0] != "M"]
    assert sum(right) > 0.85 * len(right) > 10
    assert sum(wrong) > 0.55 * len(wrong) > 10
    assert Skill("math").reply("Who was here?") == "I see no program."
    oracle = [tier_conductor.performed(tier_conductor.best_plan(text), text) for text in texts]
    assert sum(oracle) > 0.85 * len(texts)
    assert sum(map(tier_conductor.voted, texts)) < sum(oracle)


def test_a_cell_in_small_goes_its_whole_way():
    model = untrained(0, SIZE)
    cold_start(model, 16, 1, 1e-3, 0)
    (point,) = train(model, 1, 2, 2, 1e-3, 0)
    assert point["iteration"] == 1
    tasks = Programs().sample(2, 0, "eval")
    texts = [task.prompt for task in tasks]
    found = tier_conductor.held_out(outcomes(model, tasks, 0, grammar=True), texts, 2)
    assert (found["n"], found["success"] <= 1) == (2, True)
    model.close()


def test_marks_can_fail():
    look = {
        "success": 0.5,
        "failures": 0,
        "n": 500,
        "calls": 2.0,
        "calls of one": 1.0,
        "forced": 0.4,
        "specialists": 0.9,
    }
    line = dict.fromkeys(report_conductor.LOOKS, look) | {
        "single": [0.3, 0.3, 0.45], "best": 2, "oracle": 0.9, "voted": 0.4, "rollouts": 9, "curve": [],
    }  # fmt: skip
    good = {**look, "success": 0.9}
    lines = [{**line, "trained greedy": {**good, "success": 0.9 + s / 100}, "seed": s} for s in range(3)]
    assert all(mark.met for mark in report_conductor.marks(report_conductor.Results(lines)) if mark.met is not None)
    poor = [{**line, "seed": s} for s in range(3)]
    assert {mark.met for mark in report_conductor.marks(report_conductor.Results(poor))} == {True, False, None}
