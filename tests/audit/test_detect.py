"""The search for cliffs on a model whose chances are known: it finds what was planted and nothing else."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from clew.core.errors import BadInput, CannotRestore
from clew.harness import Runner
from clew.harness.fork import continuations
from clew.harness.fork.continuations import Continuations, Start
from clew.methods.cliffs import Candidates, Search, detect, effect, pairs, survey
from clew.methods.cliffs.detect import CLIFF, POTENTIAL
from clew.models.fakes import Scripted
from clew.models.markov import Markov
from clew.store import open_store
from clew.store.bundles.chosen import copy_run
from clew.worlds.sums import Sums

from . import planted

N = Search(n=32, fresh=32)


@pytest.fixture(scope="module")
def found():
    runner, runs = planted.solutions(n=10)
    hands = Continuations(runner)
    result = detect(survey(runs, lambda run: hands, N))
    result.file()
    return runner, runs, hands, result


def test_it_finds_the_planted_cliffs_and_nothing_else(found):
    _, runs, _, result = found
    wanted = {(run.id, 4) for run in runs if "19 ," in planted.said(run)}
    wanted |= {(run.id, 11) for run in runs if planted.said(run).endswith("17")}
    assert wanted, "the planted solutions hold both mistakes"
    assert {(c.position.run, c.position.token) for c in result.confirmed} == wanted
    assert {(c.kind, c.rank) for c in result.confirmed} == {("sampled-off", 2)}
    for cliff in result.confirmed:
        true = 0.6 if cliff.position.token == 4 else 0.75
        assert abs(cliff.drop - true) < 0.4  # 32 + 32 continuations: four standard errors
        assert cliff.position.chance == pytest.approx(0.2 if cliff.position.token == 4 else 0.25)


def test_only_tokens_that_can_fall_are_sampled_and_potentials_are_right(found):
    _, _runs, _, result = found
    plan = result.survey
    assert {p.token for p in plan.tested} == {4, 11}
    assert {p.token for p in plan.positions} >= set(range(12))
    assert plan.cost()["continuations"] == 0, "what was sampled is kept"
    truth = {4: 0.6, 5: 0.75, 11: 0.75, 12: 1.0}
    for start, counts in result.potentials.items():
        assert counts.undecided == 0
        assert min(abs(float(counts.potential) - v) for v in (truth[start.token], 0.0)) < 0.4


def test_values_are_filed_for_the_viewer_and_for_low_points(found):
    runner, runs, _, result = found
    run = next(r for r in runs if planted.said(r).endswith("17"))
    row = next(a for a in run.annotations(POTENTIAL, "tokens"))
    node = run.reply(1)
    assert len(row.values) == len(node.ids)
    head = run.calls[1].head
    assert np.flatnonzero(~np.isnan(row.values)).tolist() == [head + t - 1 for t in (4, 5, 11, 12)]
    cliff = next(a for a in run.annotations(CLIFF, "call"))
    told = json.loads(cliff.data)[0]
    assert told["at"] == f"{run.id}@1+11"
    assert cliff.value == pytest.approx(-told["drop"], abs=1e-5)
    assert run.low_point(CLIFF).seq == 1
    assert len(runner.store.run_ids()) == 10, "no run was stored for a continuation"
    assert result.replicated().estimate >= 0.9


def test_a_sample_is_promoted_to_the_run_it_was(found):
    _, runs, hands, _ = found
    start = Start(runs[0].id, 1, 4)
    kept = hands.kept("screen", start)
    for seed, outcome, tokens in list(zip(kept.seeds.tolist(), kept.outcomes, kept.tokens, strict=True))[:4]:
        run = hands.promote(start, seed)
        assert run.reward == outcome
        assert sum(len(c.logprobs) for c in run.calls if c.kind == "ask") == tokens
        assert str(run.parent) == f"{runs[0].id}@1+4"


def test_delete_against_keep_with_its_controls(found):
    *_, result = found
    measured = effect(result, 32)
    drop, control, better, restart = measured.reports()
    assert drop.low > 0.4
    assert abs(control.estimate) < 0.35
    assert better.claim.startswith("delete - random delete")
    assert restart.n == len(measured.cliffs)
    assert measured.tokens[0].mean() < measured.tokens[-1].mean(), "a late start decodes less than a restart"


def test_pairs_prefer_the_right_token_and_name_the_cliff(found):
    runner, runs, hands, result = found
    made = pairs(result, Candidates(n=32))
    assert len(made) == len(result.confirmed)
    words = runner.model.renderer
    for record in made.records():
        assert record["potential"] > 0.5
        wrong, right = (words.decode([record[k]]).strip() for k in ("rejected", "chosen"))
        assert (wrong, right) in {("19", str(planted.A + planted.B)), ("17", str(planted.A + planted.B + planted.C))}
    assert len(pairs(result, Candidates(n=32, floor=0.9))) == 0
    assert len(pairs(result, Candidates(n=32, kinds=("deterministic",)))) == 0
    again = hands.promote(Start(*made.items[0][0].position.before[:3], (made.records()[0]["chosen"],)), 7)
    assert again.calls[1].forced == made.items[0][0].position.token + 1
    assert runs


def test_control_nothing_is_found_where_no_token_matters():
    class Lot(Sums):
        async def judge(self, task, run, world):
            return {"reward": float(run.row.seed % 2)}

    runner, runs = planted.solutions(n=4, taskset=Lot(low=3, high=3))
    hands = Continuations(runner)
    result = detect(survey(runs, lambda run: hands, N))
    assert result.confirmed == []
    assert effect(result) is None


def test_the_published_form_tests_every_token_but_the_first():
    runner, runs = planted.solutions(n=2)
    hands = Continuations(runner)
    plan = survey(runs, lambda run: hands, Search(n=8, detector="published"))
    assert len(plan.tested) == len(plan.positions) - 2
    result = detect(plan)
    assert all(c.confirmed and c.before == c.first[0] for c in result.cliffs)
    assert result.replicated() is None


@pytest.mark.parametrize("seconds", [None, 0.2])
def test_a_judge_that_fails_or_takes_too_long_is_undecided(seconds):
    class Moody(Sums):
        async def judge(self, task, run, world):
            if run.row.seed % 3 == 0:
                raise ZeroDivisionError("no verdict")
            if run.row.seed % 3 == 1 and seconds and run.row.origin == "fork":
                time.sleep(1.0)
            return await super().judge(task, run, world)

    runner, runs = planted.solutions(n=1, taskset=Moody(low=3, high=3))
    hands = Continuations(runner, judge_seconds=seconds)
    start = Start(runs[0].id, 1, 5)
    found = hands.sample("screen", [start], 32)[start]
    silent = [s % 3 == 0 or (seconds is not None and s % 3 == 1) for s in found.seeds.tolist()]
    assert np.isnan(found.outcomes).tolist() == silent
    assert 0 < sum(silent) < 32


@pytest.mark.parametrize("seconds", [None, 5.0])
def test_a_judge_may_take_as_long_as_it_is_told_whatever_the_runners_limit(seconds):
    class Slow(Sums):
        async def judge(self, task, run, world):
            if run.row.origin == "fork":
                await asyncio.sleep(0.2)
            return await super().judge(task, run, world)

    runner, runs = planted.solutions(n=1, taskset=Slow(low=3, high=3))
    runner.judge_seconds = 0.1
    found = Continuations(runner, judge_seconds=seconds).sample("screen", [Start(runs[0].id, 1, 5)], 4)
    assert not np.isnan(next(iter(found.values())).outcomes).any()


def test_a_judge_that_computes_without_end_is_undecided_and_stops_nothing():
    over, hung = threading.Event(), list[int]()

    class Endless(Sums):
        async def judge(self, task, run, world):
            if run.row.origin == "fork" and not hung:
                hung.append(run.row.seed)
                while not over.is_set():
                    sum(range(1000))
            return await super().judge(task, run, world)

    runner, runs = planted.solutions(n=1, taskset=Endless(low=3, high=3))
    start = Start(runs[0].id, 1, 5)
    try:
        found = Continuations(runner, judge_seconds=2.0).sample("screen", [start], 6)[start]
    finally:
        over.set()
    assert np.isnan(found.outcomes).tolist() == [seed in hung for seed in found.seeds.tolist()]
    assert len(hung) == 1


def test_steps_of_a_world_of_many(tmp_path):
    from clew.worlds.household import Household

    taskset = Household(rooms=2, goals=("open",), steps=6)
    actions = ("go kitchen", "go bathroom", "take plate")
    model = Scripted({"": lambda request: actions[request.seed % 3]})
    runner = Runner("clew.harness.agents:player", taskset, model, tmp_path / "s.db")
    runs = list(runner.collect(taskset.sample(1), n=2)[0])
    hands = Continuations(runner)
    with pytest.raises(BadInput, match=r"(?s)no token ids at Call 1.*--at steps"):
        survey(runs, lambda run: hands, N)
    cold = Runner("clew.harness.agents:player", taskset, model, tmp_path / "s.db", sampling={"temperature": 0})
    with pytest.raises(BadInput, match="temperature 0"):
        survey(cold.collect(taskset.sample(1), n=1)[0], lambda run: hands, Search(at="steps", n=4, fresh=4))
    plan = survey(runs, lambda run: hands, Search(at="steps", n=4, fresh=4))
    assert len(plan.positions) == sum(len(run.steps) for run in runs)
    assert plan.tested == plan.positions, "without logprobs nothing is ruled out"
    result = detect(plan)
    assert len(result.potentials) == len(plan.starts)
    result.file()
    curve = {a.seq: a.value for a in runs[0].annotations(POTENTIAL, "call")}
    assert set(curve) >= {step.asks[0].seq for step in runs[0].steps}


def test_refusals_come_before_any_cost():
    class Stuck(Sums):
        def open(self, task):
            world = super().open(task)
            world.restores = "none"
            return world

    runner, runs = planted.solutions(n=1, taskset=Stuck(low=3, high=3))
    hands, before = Continuations(runner), runner.model.calls
    with pytest.raises(CannotRestore, match="kind none"):
        hands.sample("screen", [Start(runs[0].id, runs[0].calls[-1].seq)], 4)
    assert runner.model.calls == before
    runner, runs = planted.solutions(n=1)
    with pytest.raises(BadInput, match="nothing judges"):
        Continuations(Runner("clew.harness.agents:chatter", None, Markov(tokens=True)))
    runner.sampling = {"max_tokens": 40, "temperature": 0.0}
    cold = list(runner.collect([planted.TASK], n=1)[0])
    with pytest.raises(BadInput, match="temperature 0"):
        survey(cold, lambda run: Continuations(runner), N)
    with pytest.raises(BadInput, match="level"):
        Search(level=2)


KILLED = """
import sys
from clew.harness.fork import continuations
from clew.harness.fork import continuations
from clew.harness.fork.continuations import Continuations, Start
from tests.audit import planted
continuations.TOGETHER = 16
runner = planted.runner(sys.argv[1])
starts = [Start(run, 1, token) for run in sorted(runner.store.run_ids()) for token in range(4, 12)]
Continuations(runner).sample("screen", starts, 16, lambda n: print(n, flush=True))
"""


def test_killed_it_goes_on_and_repeats_nothing(tmp_path):
    path = tmp_path / "s.db"
    runner, runs = planted.solutions(path, n=4)
    starts = [Start(run, 1, token) for run in sorted(r.id for r in runs) for token in range(4, 12)]
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", KILLED, str(path)]
    child = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)
    for _ in range(3):
        child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    hands = Continuations(runner)
    left = hands.missing("screen", starts, 16)
    assert 0 < left <= 16 * (len(starts) - 3)
    made: list[int] = []
    after = hands.sample("screen", starts, 16, made.append)
    assert sum(made) == left
    aside = planted.runner()
    for run in runs:
        copy_run(aside.store, runner.store, run.id)
    whole = Continuations(aside).sample("screen", starts, 16)
    assert all(np.array_equal(after[s].outcomes, whole[s].outcomes) for s in starts)
    assert all(np.array_equal(after[s].seeds, whole[s].seeds) for s in starts)
    more = hands.sample("screen", starts[:1], 20, made.append)[starts[0]]
    assert made[-1] == 4, "a larger n makes what is missing only"
    assert np.array_equal(more.outcomes[:16], whole[starts[0]].outcomes)
    runner.store.close()
    assert open_store(path).verify() == []


def test_another_tokenizer_or_another_policy(found):
    runner, runs, *_ = found
    foreign = Runner("clew.harness.agents:player", runner.taskset, Markov("a b", tokens=True), runner.store)
    with pytest.raises(BadInput, match=rf"(?s){runs[0].id} holds tokens of .*--model"):
        survey(runs, lambda run: Continuations(foreign), N)
    other = Markov(planted.CORPUS, order=7, tokens=True)  # same words, another policy, which cannot score
    plan = survey(
        runs, lambda run: Continuations(Runner("clew.harness.agents:player", runner.taskset, other, runner.store)), N
    )
    assert plan.tested == plan.positions, "what another policy thought likely rules nothing out"
    assert Continuations(runner).params != Continuations(runner, judge_seconds=1.0).params


def test_what_came_before_an_interruption_is_kept_and_not_made_again(monkeypatch):
    """Half of the judges never end: the outcomes of the others are there, and the same question goes on with them."""
    monkeypatch.setattr(continuations, "EVERY", 0.0)
    stuck = [True]

    class Half(Sums):
        async def judge(self, task, run, world):
            if run.row.origin == "fork" and stuck[0] and run.row.seed % 2:
                await asyncio.sleep(0.5)
                raise KeyboardInterrupt
            return await super().judge(task, run, world)

    runner, runs = planted.solutions(n=1, taskset=Half(low=3, high=3))
    hands, start, came = Continuations(runner), Start(runs[0].id, 1, 5), list[int]()
    with pytest.raises(KeyboardInterrupt):
        hands.sample("screen", [start], 16, came.append)
    kept = hands.kept("screen", start)
    assert kept is not None
    assert 0 < len(kept.seeds) == sum(came) < 16
    assert hands.missing("screen", [start], 16) == 16 - len(kept.seeds)
    stuck[0] = False
    went_on = hands.sample("screen", [start], 16, came.append)[start]
    assert sum(came) == 16, "what was there was not made again"
    four = hands.sample("screen", [start], 4)[start]
    assert four.seeds.tolist() == went_on.seeds[:4].tolist(), "in the order of the plan, whatever came first"
