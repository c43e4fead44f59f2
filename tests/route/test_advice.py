"""Routers on held-out questions: what is planted is found, what is not is refused, and a written router decides so."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="did not run: scikit-learn is not installed")

from clew.core.errors import BadInput
from clew.core.values import Message
from clew.methods.routing import advice, contest, fit_router, policies, soft_targets
from clew.methods.routing.contest import LEARNT, SINGLE
from clew.methods.routing.question_space import Space, vectors
from clew.methods.routing.reward_matrix import Matrix, from_rows
from clew.models.compose import router
from clew.models.compose.ngrams import Ngrams
from clew.store import open_store

WORDS = {
    "code": ["python", "list", "function", "loop", "class", "return"],
    "law": ["court", "judge", "contract", "appeal", "statute", "clause"],
    "math": ["add", "sum", "number", "integer", "divide", "times"],
}
CROSSED = [[0.9, 0.4, 0.6], [0.4, 0.9, 0.6], [0.4, 0.4, 0.6]]
NONE = ([[0.6] * 3] * 3, [[0.5, 0.7, 0.6]] * 3, [[0.9] * 3, [0.3] * 3, [0.6] * 3])


def pool(chances, questions, samples, seed, cost=(1.0, 2.0, 3.0)):
    """A pool whose workers succeed by the kind of words in a question."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, questions)
    names = sorted(WORDS)
    texts = tuple(f"user: {' '.join(rng.choice(WORDS[names[k]], 8))} {i}\n" for i, k in enumerate(kind))
    rewards = (rng.random((questions, 3, samples)) < np.array(chances)[kind][:, :, None]).astype(float)
    costs = np.broadcast_to(np.array(cost)[None, :, None], rewards.shape)
    return Matrix(texts, texts, tuple(names[k] for k in kind), ("one", "two", "three"), rewards, costs)


@pytest.fixture(scope="module")
def planted():
    return advice.advise(pool(CROSSED, 240, 3, 1))


def test_where_workers_differ_by_kind_the_verdict_is_to_route(planted):
    assert planted.verdict == "route by question"
    assert planted.ours.wins
    assert planted.ours.gain.low > 0.05
    assert planted.why.startswith(f"{planted.winners[0].name} beats the best single worker by +0.")
    assert planted.frontier.saving.low > 0
    assert "earns more than a fixed mixture at equal calls and cost" in planted.frontier.words[1]


def test_every_arm_says_what_it_costs(planted):
    cost = {arm.name: arm.cost for arm in planted.arms}
    assert (cost["one"], cost["two"], cost["three"], cost["random"]) == pytest.approx((1, 2, 3, 2))
    assert cost["fixed mixture"] == pytest.approx(cost["soft targets"])  # equal calls of each worker, at random
    assert {arm.name for arm in planted.arms if arm.p is not None} == set(LEARNT)
    assert planted.arm("best of best single, perfect judge").calls == 3
    assert planted.arm(SINGLE).gain is None


def test_the_report_is_filed_once(planted):
    store = open_store(":memory:")
    ids = advice.filed(planted, store)
    assert advice.filed(planted, store) == ids
    kept = store.reports()
    assert set(kept) == set(ids)
    assert kept[ids[-1]].claim.startswith("route by question: ")
    assert any("solve, verify, repair was not computed" in text for text in kept[ids[-1]].caveats)


@pytest.mark.whole
def test_forty_pools_in_which_nothing_can_be_gained_are_not_routed(monkeypatch):
    """The headroom has no say, so that the routers alone must refuse; one partition into folds is the harder case."""
    monkeypatch.setattr(contest, "REPEATS", 1)
    refused = 0
    for seed in range(40):
        refused += advice.advise(pool(NONE[seed % 3], 60, (1, 3)[seed % 2], seed), seed=seed).verdict == "do not route"
    assert refused >= 38


def test_a_router_that_wins_where_the_oracle_knew_too_little_is_not_refused_for_it(planted):
    unsure = replace(planted.headroom.report, estimate=0.0, low=-0.1, high=0.1)
    told = replace(planted, headroom=planted.headroom._replace(report=unsure))
    assert told.verdict == "route by question"
    assert "a lower bound, does not show it" in told.why


def test_with_single_samples_routers_alone_decide_and_the_report_says_so():
    found = pool(NONE[0], 60, 1, 3)
    nameless = Matrix(found.questions, found.texts, ("",) * 60, found.workers, found.rewards, found.costs)
    told = advice.advise(nameless)
    assert told.headroom is None
    assert told.verdict == "do not route"
    assert told.why.startswith("no router beats the best single worker on held-out questions")
    assert "the headroom cannot be estimated" in told.notes[0]


@pytest.mark.parametrize("held", ["questions", "families"])
def test_nothing_is_learnt_from_what_is_held_out(held):
    found = pool(CROSSED, 60, 1, 2)
    twice = found.take([*range(60), *range(30)])
    seen = np.zeros(90)
    for learn, rest in contest.folds(twice, held, 0):
        names = twice.families if held == "families" else twice.texts
        assert not {names[i] for i in learn} & {names[i] for i in rest}
        seen[rest] += 1
    assert (seen == 1).all()


def test_too_little_to_hold_anything_out_is_refused():
    small = pool(CROSSED, 10, 1, 0)
    with pytest.raises(BadInput, match="10 questions are too few"):
        advice.advise(small)
    one = pool(CROSSED, 40, 1, 0)
    with pytest.raises(BadInput, match="no family can be held out"):
        advice.advise(one.take(np.flatnonzero(np.array(one.families) == "law").repeat(3)), held="families")


def test_a_majority_is_of_the_best_workers_answers():
    found = pool(NONE[1], 40, 3, 0)
    rewards = np.tile([[[1.0, 0.0, 1.0]]], (40, 3, 1))
    answers = ((("7", "8", "7"),) * 3,) * 40
    made = Matrix(found.questions, found.texts, found.families, found.workers, rewards, found.costs, answers)
    arm = advice.advise(made).arm("majority of best single")
    assert (arm.reward.estimate, arm.calls) == (1.0, 3.0)
    assert arm.gain.estimate == pytest.approx(1 / 3)


def test_soft_targets_say_how_sure_few_samples_are():
    p = soft_targets.targets(np.array([[1.0, 1.0], [1.0, 0.0]]), 0.5)
    assert p[0].tolist() == [0.5, 0.5]
    assert p[1, 0] == pytest.approx(1 / (1 + np.exp(-2)))
    with pytest.raises(BadInput, match="tau is 0"):
        soft_targets.targets(p, 0)
    with pytest.raises(BadInput, match="tau is nan"):
        soft_targets.targets(p, float("nan"))


def test_the_fit_stops_where_held_out_choices_earn_most_and_before_it_starts_asks_one_worker():
    found = pool(CROSSED, 200, 2, 5)
    h = vectors(found.texts)
    x = Space.of(h)(h)
    head = soft_targets.fit(x, found.means)
    assert head.curve[head.at] == max(head.curve)
    assert head.at > 0
    level = pool(NONE[0], 40, 1, 0)
    dull = soft_targets.fit(np.zeros((40, 3)), level.means)
    assert len(set(dull.scores(np.zeros((5, 3))).argmax(1))) == 1


def test_a_written_router_chooses_as_the_fitted_head_did(planted, tmp_path):
    folder = fit_router.write(planted, tmp_path / "router", refs={"one": "openai:gpt-4o@http://127.0.0.1:9/v1"})
    made = router.load(folder)
    assert made.names == ("one", "two", "three")
    assert made.about["verdict"] == "route by question"
    h = vectors(planted.found.texts, Ngrams())
    space = Space.of(h)
    head = soft_targets.fit(space(h), planted.found.means)
    scores = head.scores(space(h))
    best = np.sort(scores, 1)
    sure = best[:, -1] - best[:, -2] > 1e-3
    said = [Message("user", text.removeprefix("user: ").rstrip()) for text in planted.found.texts]
    chosen = np.array([made.decide([message])[0] for message in said])
    assert sure.sum() > 200
    assert (chosen == scores.argmax(1))[sure].all()
    with pytest.raises(BadInput, match="'four' is no worker of this pool"):
        fit_router.write(planted, tmp_path / "other", refs={"four": "echo"})


def test_names_of_workers_become_short_names_each_its_own():
    names = ["scripted(replies=['a'])", "scripted(replies=['b'])", "(a)", "a", "()"]
    made = fit_router.workers_of(names, {})
    assert [one.ref for one in made] == names
    assert len({one.name for one in made}) == 5


def test_the_strong_and_the_weak_worker():
    means = np.array([[0.9, 0.8, 0.1]] * 4)
    cheap = np.array([[3.0, 2.0, 1.0]] * 4)
    x = np.zeros((4, 2))
    assert policies.pair(policies.Known(x, means, cheap)) == (0, 2)
    assert policies.pair(policies.Known(x, means)) == (0, 1)
    assert policies.pair(policies.Known(x, means, np.ones((4, 3)))) == (0, 1)  # equal costs say nothing


# ---- real rewards: RouteLLM's release of Mixtral 8x7B and GPT-4 ------------------------------------------------------


def released(shared, name, some):
    with gzip.open(shared / "data" / "routing" / name, "rt") as file:
        rows = [(i, json.loads(line)) for i, line in enumerate(file, 1)]
    found = from_rows(rows, ("mixtral-8x7b", "gpt-4"))
    return found.take(np.sort(np.random.default_rng(0).permutation(len(found))[:some]))


@pytest.mark.whole
def test_one_dominant_model_on_mmlu_is_asked_always(shared):
    """On held-out questions and on held-out subjects alike: GPT-4 is ahead in every subject."""
    found = released(shared, "mmlu.even-subjects.jsonl.gz", 500)
    for held in ("questions", "families"):
        told = advice.advise(found, held=held)
        assert told.headroom.way == "families"
        assert abs(told.headroom.report.estimate) < 0.05
        assert told.verdict == "do not route"
        assert told.arm("gpt-4").reward.low > told.arm("mixtral-8x7b").reward.high
        assert abs(told.ours.gain.estimate) < 0.03


@pytest.mark.whole
def test_on_gsm8k_no_router_beats_the_strong_model(shared):
    told = advice.advise(released(shared, "gsm8k.first-half.jsonl.gz", 400))
    assert told.headroom is None
    assert told.verdict == "do not route"
    assert told.arm(SINGLE).reward.estimate == told.arm("gpt-4").reward.estimate
    assert told.arm("random").gain.high < 0
