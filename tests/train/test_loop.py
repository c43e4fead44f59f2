"""The loop: what it records, that it stops, and that it goes on exactly where it was."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import clew.credit
from clew.core.errors import BadInput
from clew.fit.trainer import Trainer
from clew.harness import Runner
from clew.harness.agents import player
from clew.models.local import small
from clew.train.loop import Plan, Training


def training(house, model, store, ref=None, **plan):
    """Rewards by a judge that two of three runs please: a signal, whatever an untrained model does."""

    class Lenient(type(house)):
        async def judge(self, task, run, world):
            return {"reward": float(run.row.seed % 3 > 0)}

    taskset = Lenient(rooms=2, receptacles=2, objects=2, closed=1, steps=4)
    runner = Runner(player, taskset, model, store, sampling={"max_tokens": 3})
    settings = {"name": "t", "iterations": 3, "tasks": 2, "rollouts": 3, "checkpoint_every": 2, **plan}
    return Training(runner, Trainer(model), clew.credit.g2po, Plan(**settings), ref=ref)


def weights(model):
    return {name: p.detach().clone() for name, p in model.module.named_parameters()}


def test_an_iteration_says_what_happened(house, model):
    seen = []
    work = training(house, model, ":memory:", eval_every=2, eval_tasks=4)
    done = list(work.run(on_run=seen.append))
    assert [d.number for d in done] == [0, 1, 2]
    assert [d.evaluation is not None for d in done] == [True, True, True]
    assert done[0].evaluation.n == 4
    assert len(seen) == 3 * 2 * 3
    for d in done:
        assert d.success.n == 6
        assert 0 <= d.dead <= 1
        assert set(d.seconds) == {"collect", "credit", "rows", "fit"}
    stepped = [d.step for d in done if d.step is not None]
    assert all(s.mismatch < 1e-5 for s in stepped)
    assert model.version == len(stepped) > 0
    kept = work.store.metrics("t")
    assert set(kept) == {0, 1, 2}
    assert kept[1]["success"] == pytest.approx(done[1].success.estimate)
    assert work.store.find()  # every run of the training is in the store
    assert len({run.row.order for d in done for run in d.groups.runs}) == 18


def test_tasks_are_fresh_and_derived(house, model):
    a = [g.task_id for d in training(house, model, ":memory:").run() for g in d.groups]
    b = [g.task_id for d in training(house, model, ":memory:").run() for g in d.groups]
    c = [g.task_id for d in training(house, model, ":memory:", seed=5).run() for g in d.groups]
    assert a == b != c
    assert len(set(a)) > 3


def test_no_signal_takes_no_step(house, model):
    runner = Runner(player, house, model, sampling={"max_tokens": 1})  # one word is no action: nobody succeeds
    before = weights(model)
    work = Training(runner, Trainer(model), clew.credit.g2po, Plan(name="t", iterations=1, tasks=1, rollouts=2))
    done = next(work.run())
    assert (done.step, done.dead, model.version) == (None, 1.0, 0)
    assert all((w == before[name]).all() for name, w in weights(model).items())


FALLING = {"schedule": "cosine", "warmup": 1, "epochs": 2, "minibatches": 2, "dynamic": 1, "tasks": 3}


@pytest.mark.parametrize("plan", [{}, FALLING], ids=["plain", "schedule, minibatches, dynamic sampling"])
def test_stop_keeps_what_is_done_and_the_rest_follows(house, tmp_path, plan):
    def fresh():
        return small(house.vocabulary(), 16, 1, 2, 1, context=256, ref="tiny", steady=True)

    whole = fresh()
    list(training(house, whole, tmp_path / "a" / "runs.db", **plan).run())
    first = fresh()
    work = training(house, first, tmp_path / "b" / "runs.db", **plan)
    steps = work.run()
    next(steps)
    (work.folder / "stop").write_text("")
    assert list(steps) == []
    assert not (work.folder / "stop").exists()
    second = fresh()
    again = training(house, second, tmp_path / "b" / "runs.db", **plan)
    assert [d.number for d in again.run()] == [1, 2]
    assert any((w != weights(fresh())[name]).any() for name, w in weights(second).items())
    assert all((w == weights(whole)[name]).all() for name, w in weights(second).items())
    assert [d.number for d in again.run()] == []  # finished: nothing is done twice
    assert json.loads((work.folder / "settings.json").read_text())["plan"]["tasks"] == plan.get("tasks", 2)
    for made in (whole, first, second):
        made.close()


def test_settings_are_held_to(house, model, tmp_path):
    training(house, model, tmp_path / "runs.db")
    training(house, model, tmp_path / "runs.db", iterations=9)  # longer is the same training
    with pytest.raises(BadInput, match="other settings: seed was 0 and is 4, warmup was 0 and is 1"):
        training(house, model, tmp_path / "runs.db", seed=4, warmup=1)


def test_a_falling_rate_ends_where_it_was_said_to(house, model, tmp_path):
    training(house, model, tmp_path / "runs.db", schedule="linear")
    training(house, model, tmp_path / "runs.db", schedule="linear")
    with pytest.raises(BadInput, match="lets its learning rate fall over 3 iterations, not 9") as refused:
        training(house, model, tmp_path / "runs.db", schedule="linear", iterations=9)
    assert "constant" in str(refused.value)


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        ({"warmup": 3}, "a warm-up of 3 iterations does not fit into a training of 3"),
        ({"warmup": -1}, "a warm-up of -1"),
        ({"schedule": "step"}, "schedule='step' is not known"),
        ({"epochs": 0, "minibatches": 0}, "epochs=0, minibatches=0"),
        ({"kl": -0.1}, "kl=-0.1"),
        ({"dynamic": -1}, "dynamic=-1"),
    ],
)
def test_plans_that_cannot_be_followed_are_refused(plan, told):
    with pytest.raises(BadInput, match=told) as refused:
        Plan(name="t", **{"iterations": 3, **plan})
    assert refused.value.remedy


def test_the_rate_follows_the_schedule_over_steps_and_iterations(house, model):
    rates = []
    work = training(house, model, ":memory:", schedule="linear", warmup=1, minibatches=2)
    trainer = work.trainers[""]
    step = trainer.optimizer.step
    trainer.optimizer.step = lambda scale=1.0: (rates.append(scale), step(scale))[1]
    done = list(work.run())
    assert rates[:2] == [0.5, 1.0]  # two steps in the iteration of warm-up
    assert rates[2:] == [1.0, 0.75, 0.5, 0.25]
    assert trainer.steps == 6
    assert [d.step.step for d in done] == [2, 4, 6], "the report is that of the iteration's last step"


def test_dynamic_sampling_draws_tasks_until_enough_groups_have_a_signal(house, model):
    """The judge is pleased by a third of the tasks half of the time, by the others never."""

    class Picky(type(house)):
        async def judge(self, task, run, world):
            return {"reward": float(run.row.seed % 2 and int(task.id.rpartition("-")[2], 36) % 3 == 0)}

    taskset = Picky(rooms=2, receptacles=2, objects=2, closed=1, steps=4)

    def groups(dynamic):
        runner = Runner(player, taskset, model, sampling={"max_tokens": 3})
        plan = Plan(name="t", iterations=1, tasks=4, rollouts=4, dynamic=dynamic)
        [done] = Training(runner, Trainer(model), clew.credit.grpo, plan).run()
        return done.groups

    plain, more = groups(0), groups(6)
    assert len(plain) == 4 > sum(g.signal for g in plain)
    assert [g.task_id for g in more][:4] == [g.task_id for g in plain]
    assert sum(g.signal for g in more) == 4
    assert more[-1].signal, "nothing is drawn beyond what was missing"
    assert len({run.row.seed for run in more.runs}) == len(more.runs)


def test_a_tracker_gets_the_numbers_of_every_iteration(house, model, tmp_path):
    from clew.fit.trackers import tracker

    work = training(house, model, ":memory:", eval_every=2, eval_tasks=2)
    work.tracker = tracker(f"jsonl:{tmp_path}/log.jsonl")
    done = list(work.run())
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert [line["success"] for line in lines] == [d.success.estimate for d in done]
    assert lines[0]["before"] == done[0].before.estimate
    assert "before" not in lines[1]
    assert lines[2]["eval"] == done[2].evaluation.estimate


def test_kl_towards_a_reference(house, model):
    with pytest.raises(BadInput, match="reference model"):
        training(house, model, ":memory:", kl=0.1)
    ref = small(house.vocabulary(), 16, 1, 2, 1, context=256, ref="frozen")
    done = list(training(house, model, ":memory:", ref=ref, kl=0.1).run())
    assert done[0].step.loss["kl"] == pytest.approx(0, abs=1e-7)
    assert done[-1].step.loss["kl"] > 0
    ref.close()


def two_policies(house, models, store, **changed):
    """An agent that asks one model for a plan and another for the action, both with random weights."""
    planner, actor = models

    async def pair(run):
        plan, act = run.chat(), run.chat(model=actor)
        seen = run.view.text
        while not run.done:
            plan.say("user", seen)
            act.say("user", seen + " " + (await plan.ask()).text)
            seen = (await run.act(await act.ask())).text

    work = training(house, planner, ":memory:")
    runner = Runner(pair, work.taskset, planner, store, sampling={"max_tokens": 3})
    trainers = {"planner": Trainer(planner), "actor": Trainer(actor, lr=3e-4)}
    settings = {"trainer": trainers, "credit": clew.credit.g2po, "plan": work.plan, **changed}
    return Training(runner, **settings)


def test_two_policies_learn_from_their_own_replies_and_resume_together(house, tmp_path):
    def fresh():
        return [small(house.vocabulary(), 16, 1, 2, 1, context=256, seed=i, ref=f"m{i}", steady=True) for i in (1, 2)]

    whole, first, second = fresh(), fresh(), fresh()
    done = list(two_policies(house, whole, tmp_path / "a" / "runs.db").run())
    (tmp_path / "b").mkdir()
    work = two_policies(house, first, tmp_path / "b" / "runs.db")
    steps = work.run()
    next(steps)
    (work.folder / "stop").write_text("")
    assert list(steps) == []
    again = two_policies(house, second, tmp_path / "b" / "runs.db")
    rest = list(again.run())
    assert [d.number for d in rest] == [1, 2]
    for i in (0, 1):
        before, end = weights(fresh()[i]), weights(whole[i])
        assert any((before[name] != w).any() for name, w in end.items()), "it has learnt"
        assert all((w == weights(second[i])[name]).all() for name, w in end.items()), "a resumed training ends alike"
    for d in done:
        assert set(d.steps) == {"planner", "actor"}
        assert d.step == d.steps["planner"]
        asked = [call.setup.model for run in d.groups.runs for call in run.calls if call.kind == "ask"]
        assert {"m1", "m2"} == set(asked)
        for name in ("planner", "actor"):
            assert d.steps[name].mismatch < 1e-5, "rows of the other model's replies would differ by nats"
            assert f"step/{name}/loss/pg" in d.metrics()
    assert {path.name for path in again.checkpoint.iterdir()} == {"planner", "actor"}
    with pytest.raises(BadInput, match="cannot be told apart"):
        two_policies(house, second, ":memory:", trainer={"a": Trainer(second[0]), "b": Trainer(second[0])})
    with pytest.raises(BadInput, match="one policy"):
        two_policies(house, second, ":memory:", draft=object())
    for made in (*whole, *first, *second):
        made.close()


DRIVER = Path(__file__).with_name("killed.py")
KILLS = int(os.environ.get("CLEW_KILLS", "1"))


def killed_and_begun_again(tmp_path, kills, drafter=""):
    """What a training ends with that runs in one go; and ``kills`` that are killed twice and then run to their end."""
    driver = subprocess.Popen(
        [sys.executable, str(DRIVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )

    def start(folder: str) -> int:
        print(f"{folder}\t{drafter}", file=driver.stdin)
        return int(driver.stdout.readline())

    def ended() -> dict[str, str]:
        return json.loads(driver.stdout.readline())

    try:
        assert driver.stdout.readline() == "ready\n"
        began = time.perf_counter()
        start(str(tmp_path / "whole"))
        whole = ended()
        span = time.perf_counter() - began
        assert "weights" in whole
        rng, found = random.Random(0), []
        for attempt in range(kills + 8):
            folder, killed = str(tmp_path / f"killed{attempt}"), 0
            for _ in range(2):
                child = start(folder)
                time.sleep(rng.uniform(0.05, 0.8) * span)
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                killed += ended() == {}
            span /= 1 if killed else 2  # it ended first: the machine was busier while the whole one ran
            if killed:
                start(folder)
                found.append(ended())
            if len(found) == kills:
                break
        assert len(found) == kills, "training ended before it was killed"
        return whole, found
    finally:
        driver.stdin.close()
        driver.stdout.close()
        driver.wait(30)


@pytest.mark.whole
def test_killed_at_any_moment_the_weights_come_out_the_same(tmp_path):
    """kill -9 during collection, training and saving; then the same command again, until it ends."""
    whole, found = killed_and_begun_again(tmp_path, KILLS)
    assert found == [whole] * KILLS


@pytest.mark.whole
def test_killed_under_drafts_nothing_is_lost_or_done_twice(tmp_path):
    """Which noise drew a token is not promised under drafts; every run, once, is, and a drafter that was refreshed."""
    from clew.models.drafters import folder as folders
    from clew.models.engine.forwards.weights import weights_digest
    from clew.models.engine.speculation.costs import Costs, hardware
    from tests.train.killed import Lenient, policy

    model = policy(Lenient(rooms=2, receptacles=2, objects=2, closed=1, steps=4))
    module = folders.fresh(folders.design_for(model.module, mask=0, block=2, layers=1), model.module)
    where = tmp_path / "drafter"
    where.mkdir()
    folders.write(module, where, folders.target_of(model.module, model.tokenizer, model.ref))
    Costs(
        (1, 4096), (1.0, 1.001), (1, 512), (1.0, 1.001), (0.0, 0.0), block=2, hardware=hardware(),
        model=model.digest(), drafter=weights_digest(module),
    ).save(where)  # fmt: skip
    model.close()
    whole, found = killed_and_begun_again(tmp_path, min(KILLS, 4), str(where))
    for ended in found:
        assert ended["faults"] == "[]"
        assert ended["orders"] == whole["orders"]
        assert ended["drafter"] != ended["made"]


def test_trees_train_as_flat_rollouts_do(house, model, tmp_path):
    """Same loop, rows and trainer; tokens that forks share are decoded, counted and trained once; it goes on."""
    from clew.credit.tree import tree
    from clew.harness.trees.grow import Growth
    from clew.store.run import sampled

    class Lenient(type(house)):
        async def judge(self, task, run, world):
            return {"reward": float(run.row.seed % 3 > 0)}

    def work(iterations):
        taskset = Lenient(rooms=2, receptacles=2, objects=2, closed=1, steps=4)
        runner = Runner(player, taskset, model, tmp_path / "s.db", sampling={"max_tokens": 3})
        growth = Growth(leaves=6, selector="entropy")
        plan = Plan(name="t", iterations=iterations, tasks=2, growth=growth, checkpoint_every=1)
        return Training(runner, Trainer(model), tree, plan)

    [done] = work(1).run()
    runs = done.groups.runs
    assert {g.kind for g in done.groups} == {"tree"}
    assert len(runs) == 12
    assert any(run.parent is not None for run in runs)
    own = sum(sampled(call) for run in runs for call in run.calls[run.shared :])
    assert done.tokens == own < sum(run.tokens for run in runs)
    assert done.step is not None
    assert done.step.mismatch < 1e-5, "forced prefixes are scored as the sampler scored what came after them"
    assert [d.number for d in work(2).run()] == [1]
