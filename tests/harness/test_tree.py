"""Tree rollouts: forks that a selector chooses, within a budget, stored and decoded once, resumed, replayed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clew.core.errors import BadInput, CannotRestore, ModelError
from clew.core.values import Task
from clew.harness import Runner
from clew.harness.agents import chatter, player
from clew.harness.trees import grow as tree
from clew.harness.trees import selectors
from clew.methods.compare.zero_variance import zero_variance
from clew.models.markov import Markov
from clew.store import Groups, Run
from clew.store.run import sampled
from clew.worlds.household import Household
from clew.worlds.toys import Counter, Notepad

from .conftest import Wanderer

CORPUS = "up\nup\ndown\nstop\nup up\nstop stop"


class Parity:
    """One question; the answer counts where it has an even number of words. A task ``broken`` breaks the judge."""

    ref = "parity"

    def sample(self, n: int, seed: int = 0, split: str = "train") -> list[Task]:
        return [self.find(f"parity-{seed + i}") for i in range(n)]

    def find(self, task_id: str) -> Task:
        return Task(task_id, f"write something {task_id}")

    def open(self, task: Task) -> Any:
        return Counter().open(Counter().sample(1)[0])

    async def judge(self, task: Task, run: Run, world: Any) -> Mapping[str, float]:
        if task.id.endswith("13"):
            raise ZeroDivisionError("no verdict")
        reply = next(c for c in run.calls if c.kind == "ask")
        return {"reward": float(sampled(reply) % 2 == 0)}


@pytest.fixture
def talk() -> Runner:
    return Runner(chatter, Parity(), Markov(tokens=True), sampling={"max_tokens": 12})


def own(run: Run) -> int:
    return sum(sampled(call) for call in run.calls[run.shared :])


def test_a_tree_is_forks_within_its_budget(talk: Runner) -> None:
    growth = tree.Growth(tokens=80)
    groups = tree.collect(talk, Parity().sample(3), growth, name="t")
    for group in groups:
        spent = [own(run) for run in group]
        assert group.kind == "tree"
        assert sum(run.parent is None for run in group) >= 2, "the first two leaves are runs of their own"
        assert any(run.parent is not None for run in group)
        assert sum(spent[:-1]) <= 80, "only the last leaf may pass the bound"
        for run in group:
            talk.replay(run)
    inside = [run for run in groups.runs if run.parent is not None and run.parent.token > 0]
    assert inside, "some forks lie inside a reply"
    for run in inside:
        at = run.parent
        assert at is not None
        mine, theirs = run.reply(at.seq), Run(talk.store, at.run).reply(at.seq)
        call = run.call(at.seq)
        assert mine.ids is not None
        assert theirs.ids is not None
        assert mine.ids[: call.head + at.token] == theirs.ids[: call.head + at.token]
        assert call.forced == at.token
        assert call.logprobs is not None
        assert len(call.logprobs) == len(mine.ids) - call.head - at.token, "the shared prefix was not decoded again"
    assert talk.store.verify() == []


def test_the_ledger_counts_each_token_once(talk: Runner) -> None:
    group = tree.collect(talk, Parity().sample(1), tree.Growth(leaves=12))[0]
    grown = tree.RolloutTree()
    for run in group:
        grown.add(run)
    assert grown.used == sum(own(run) for run in group)
    assert grown.visits[0] == 12
    assert grown.wins[0] == sum(group.rewards)
    assert sum(grown.tries) == 12
    for index, place in enumerate(grown.places[1:], 1):
        through = [run for run in group if index in grown.paths[run.id]]
        assert len(through) == grown.visits[index]
        assert grown.wins[index] == sum(run.reward for run in through)  # type: ignore[misc]
        assert place.position <= 12


def test_the_same_seed_grows_the_same_tree_and_another_does_not() -> None:
    def grow(seed: int, **more: Any) -> list[Any]:
        runner = Runner(chatter, Parity(), Markov(tokens=True), sampling={"max_tokens": 12})
        groups = tree.collect(runner, Parity().sample(2), tree.Growth(tokens=90, **more), seed)
        names = {run.id: i for i, run in enumerate(groups.runs)}
        return [
            (run.parent and (names[run.parent.run], run.parent.seq, run.parent.token), run.reply(1).ids)
            for run in groups.runs
        ]

    assert grow(1) == grow(1)
    assert grow(1) != grow(2)
    assert grow(1) != grow(1, selector="random")


def test_a_killed_collection_goes_on(tmp_path: Path) -> None:
    def runner(store: Path) -> Runner:
        return Runner(chatter, Parity(), Markov(tokens=True), store, sampling={"max_tokens": 12})

    growth = tree.Growth(tokens=90)
    whole = tree.collect(runner(tmp_path / "a.clew"), Parity().sample(2), growth, name="t")
    seen = 0

    def stop(run: Run) -> None:
        nonlocal seen
        seen += 1
        if seen == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tree.collect(runner(tmp_path / "b.clew"), Parity().sample(2), growth, name="t", on_run=stop)
    again = runner(tmp_path / "b.clew")
    found = tree.collect(again, Parity().sample(2), growth, name="t")
    assert [len(g) for g in found] == [len(g) for g in whole]
    for mine, theirs in zip(found.runs, whole.runs, strict=True):
        assert mine.reply(1).ids == theirs.reply(1).ids
        again.replay(mine)
    assert again.store.verify() == []
    assert tree.collect(again, Parity().sample(2), growth, name="t").runs == found.runs, "nothing is left to grow"


@pytest.mark.parametrize("restores", ["exact", "reenact"])
def test_forks_at_steps_bring_the_world_back(restores: Any) -> None:
    world = Counter(restores=restores, steps=6)
    runner = Runner(player, world, Markov(CORPUS, tokens=True), sampling={"max_tokens": 4})
    groups = tree.collect(runner, world.sample(2), tree.Growth(leaves=10, selector="entropy"), name="c")
    assert any(run.parent is not None and run.parent.seq > 1 for run in groups.runs)
    for run in groups.runs:
        runner.replay(run)
    assert runner.store.verify() == []


def test_a_model_without_tokens_is_forked_at_its_asks(house: Household, wanderer: Wanderer) -> None:
    runner = Runner(player, house, wanderer)
    group = tree.collect(runner, house.sample(1), tree.Growth(leaves=6))[0]
    assert len(group) == 6
    assert all(run.parent is None or run.parent.token == 0 for run in group)
    with pytest.raises(BadInput, match="counts no tokens"):
        tree.collect(runner, house.sample(1), tree.Growth(tokens=50))


def test_a_world_that_cannot_be_restored_is_refused(tmp_path: Path, wanderer: Wanderer) -> None:
    notes = Notepad(str(tmp_path / "notes.txt"))
    runner = Runner(player, notes, Markov(CORPUS, tokens=True))
    with pytest.raises(CannotRestore, match="no tree can grow"):
        tree.collect(runner, notes.sample(1), tree.Growth(leaves=4))
    assert runner.store.run_ids() == []


class Moody(Parity):
    """Parity whose judge cannot decide some replies: it fails in as many ways as judges fail."""

    async def judge(self, task: Task, run: Run, world: Any) -> Mapping[str, float]:
        told = sum(run.reply(1).ids or ())
        if told % 7 == 1:
            raise ModelError("the judging model did not answer")
        if told % 7 == 2:
            await asyncio.sleep(3600)
        return {"reward": float("nan") if told % 7 == 3 else float(told % 2 == 0)}


def test_a_leaf_without_a_verdict_is_undecided_and_the_tree_goes_on() -> None:
    runner = Runner(chatter, Moody(), Markov(tokens=True), sampling={"max_tokens": 12}, judge_seconds=0.02)
    group = tree.collect(runner, Moody().sample(1), tree.Growth(leaves=40))[0]
    undecided = {a.run: json.loads(a.data)["error"] for a in runner.store.annotations(None, "undecided")}
    told = sorted({error.partition(":")[0] for error in undecided.values()})
    assert told == ["ModelError", "TimeoutError", "ValueError"]
    assert "no verdict within 0.02 s" in str(undecided)
    assert {run.id for run in group if run.reward is None} == undecided.keys()
    assert {run.parent.run for run in group if run.parent is not None} & undecided.keys(), "one was branched"
    grown = tree.RolloutTree()
    for run in group:
        grown.add(run)
    decided = group.rewards[~np.isnan(group.rewards)]
    assert (grown.visits[0], grown.wins[0]) == (40 - len(undecided), decided.sum())
    assert sum(grown.tries) == grown.ahead[0][0] == 40
    report = Groups([group]).success()
    assert (report.n, report.estimate) == (len(decided), decided.mean()), "neither won nor lost"
    [line] = zero_variance(runner.store, [group.row])
    assert (line.zero_variance, line.undecided, line.alike["reward"]) == (0, 0, 0)


def test_a_judge_that_never_decides_leaves_no_signal(talk: Runner) -> None:
    task = Parity().find("parity-13")
    group = tree.collect(talk, [task], tree.Growth(leaves=5))[0]
    assert np.isnan(group.rewards).all()
    assert not group.signal
    grown = tree.RolloutTree()
    for run in group:
        grown.add(run)
    assert grown.visits[0] == 0
    assert not grown.mixed
    [note] = talk.store.annotations([group[0].id], "undecided")
    assert "ZeroDivisionError" in note.data
    [line] = zero_variance(talk.store, [group.row])
    assert (line.zero_variance, line.undecided, line.alike) == (1, 1, {})


def test_spare_tokens_go_to_trees_whose_outcomes_are_alike(talk: Runner) -> None:
    tasks = [*Parity().sample(2), Parity().find("parity-13")]
    groups = tree.collect(talk, tasks, tree.Growth(tokens=60, spare=0.5, seeds=1))
    used = [sum(own(run) for run in group) for group in groups]
    assert sum(used) <= 3 * 60 + 12
    assert used[2] > 60, "the undecided tree, which never becomes mixed, gets what the others leave"


def test_forks_begun_together_do_not_all_go_to_one_place(talk: Runner) -> None:
    task = Parity().sample(1)
    group = tree.collect(talk, task, tree.Growth(leaves=14, together=4, selector="entropy"))[0]
    last = [str(run.parent) for run in group][-4:]
    assert len(set(last)) > 1


@pytest.mark.parametrize(
    "wrong",
    [{}, {"tokens": 0}, {"leaves": 4, "seeds": 0}, {"leaves": 3, "spare": 0.2}, {"leaves": 3, "selector": "best"}],
)
def test_a_growth_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        tree.Growth(**wrong)


def test_selectors_as_written() -> None:
    known = selectors.Candidates(
        visits=np.array([4.0, 2, 1]), wins=np.array([1.0, 1, 0]), tries=np.array([2.0, 1, 0]),
        entropy=np.array([0.5, 1.0, 0.05]), width=np.full(3, 4.0), cost=np.array([10.0, 4, 1]),
    )  # fmt: skip
    noise = np.array([0.1, 0.2, 0.3])
    v = np.array([1.5 / 5, 1.5 / 3, 0.5 / 2])
    assert selectors.value(known) == pytest.approx(4 * v * (1 - v))
    expected = 4 * v * (1 - v) + 0.5 * np.sqrt(np.log(5) / np.array([3, 2, 1])) + 0.5 * known.entropy / np.log(4)
    found = selectors.uucb(known, noise)
    assert found[:2] == pytest.approx(expected[:2])
    assert found[2] == -np.inf, "the next token is all but certain there"
    assert selectors.uucb(known, noise, floor=0.0) == pytest.approx(expected)
    passed = 4 * v * (1 - v) + 0.5 * np.sqrt(np.log(5) / np.array([5, 3, 2])) + 0.5 * known.entropy / np.log(4)
    specified = selectors.selector("uucb", explored="visits", floor=0.0)
    assert specified(known, noise) == pytest.approx(passed), "as specs/E162 section 3 writes it"
    assert tree.Growth(leaves=3, settings=(("explored", "visits"), ("floor", 0.0))).selector == "uucb"
    assert selectors.entropy(known, noise)[:2] == pytest.approx([0.5 / 3, 0.5])
    assert np.isneginf(selectors.flat(known, noise)[1:]).all()
    failed = known._replace(wins=np.zeros(3))
    assert selectors.value(failed) == pytest.approx(selectors.rate(failed))
    won = known._replace(wins=known.visits)
    assert selectors.value(won) == pytest.approx(1 - selectors.rate(won))
    allowed = np.array([True, False, True])
    assert selectors.choose(np.ones(3), allowed, noise) == 2
    assert selectors.choose(np.ones(3), np.zeros(3, bool), noise) == -1
    assert selectors.choose(np.full(3, -np.inf), allowed, noise) == -1
    with pytest.raises(BadInput, match="no selector"):
        selectors.selector("best")
    with pytest.raises(BadInput, match="beta"):
        selectors.selector("uct", beta=1.0)
    with pytest.raises(BadInput, match="tries"):
        selectors.selector("uucb", explored="wins")
