"""A worker that joins by probe questions: what is planted is found, and somebody else's answers are worth nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="did not run: scikit-learn is not installed")

from clew.core.errors import BadInput, BadRecord
from clew.methods.routing import fit_router, probe_head
from clew.methods.routing.contest import Read
from clew.methods.routing.question_space import Space, vectors
from clew.methods.routing.reward_matrix import Matrix, from_rows, means_of
from clew.models.compose import router
from clew.models.compose.ngrams import Ngrams
from clew.models.compose.router import Worker

KINDS = ("door", "gate", "rose", "sky")


def pool(questions: int = 80, seed: int = 0) -> Matrix:
    """Four workers, each good at a kind of its own."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 4, questions)
    texts = tuple(f"user: {KINDS[k]} {KINDS[k]}s of the {KINDS[k]} {i}\n" for i, k in enumerate(kind))
    chance = np.where(np.arange(4) == kind[:, None], 0.95, 0.15)
    rewards = (rng.random((questions, 4, 3)) < chance[:, :, None]).astype(float)
    return Matrix(texts, texts, tuple(KINDS[k] for k in kind), KINDS, rewards, np.full(rewards.shape, np.nan))


@pytest.mark.whole
def test_a_worker_that_joins_is_asked_what_it_is_good_at_and_by_anothers_answers_it_is_not() -> None:
    found, calls = pool(), list[None]()
    read = Read.fixed(vectors(found.texts))
    made = probe_head.joining(found, read, 24, told=lambda: calls.append(None))
    assert len(calls) == 5 * 4
    assert made.ignored.estimate < 0.8
    assert made.gain.low > 0.08
    assert made.regret.estimate < 0.1
    assert made.known.estimate > made.joined.estimate - 0.05
    other = probe_head.joining(found, read, 24, shuffled=True)
    assert other.gain.estimate < 0.02


def test_with_no_more_than_the_probes_it_is_ridge_regression() -> None:
    rng = np.random.default_rng(1)
    x, given = rng.normal(size=(30, 3)), rng.random((30, 4))
    head = probe_head._fit(x, given, np.arange(30), given, 10.0, None, 0.3, np.ones(30, bool))
    one = np.concatenate([x, np.ones((30, 1))], axis=1)
    target = given - given.mean(1, keepdims=True)
    slope = one.T @ (one @ head.weights(given).T - target)
    assert slope[:-1] == pytest.approx(-10.0 * head.weights(given).T[:-1], abs=1e-6)
    assert slope[-1] == pytest.approx(0.0, abs=1e-4)


def test_the_loss_has_the_slope_that_it_says() -> None:
    """What is learnt beyond the probes lowers the loss, and the more it may, the more it does."""
    rng = np.random.default_rng(2)
    x, means = rng.normal(size=(60, 3)), rng.random((60, 5))
    every, at = np.ones(60, bool), np.arange(10)
    soft = probe_head.soft_targets.targets(means, 0.3)

    def kl(decay: float | None) -> float:
        scores = probe_head._fit(x, means, at, means[at], 3.0, decay, 0.3, every).scores(x, means[at])
        log = scores - np.log(np.exp(scores).sum(1, keepdims=True))
        return float((soft * (np.log(soft) - log)).sum(1).mean())

    losses = [kl(decay) for decay in (1.0, 0.1, 0.01)]
    assert losses == sorted(losses, reverse=True)


def test_too_few_workers_or_questions_are_refused() -> None:
    found = pool(40)
    with pytest.raises(BadInput, match="101 probe questions of 400"):
        probe_head.chosen(400, 101)
    with pytest.raises(BadInput, match="3 probe questions of 400"):
        probe_head.chosen(400, 3)
    with pytest.raises(BadInput, match="a pool of 2 workers"):
        probe_head.fit(np.ones((9, 2)), found.means[:9, :2], np.arange(5))


@pytest.fixture
def folder(tmp_path):
    found = pool()
    head, probes = fit_router.probed(found, Ngrams(), 20)
    router.save(tmp_path / "r", [Worker(name, "echo") for name in KINDS], Ngrams(), head)
    fit_router.keep(tmp_path / "r", probes)
    return tmp_path / "r"


def test_the_row_of_a_known_worker_comes_out_of_its_probe_answers(folder) -> None:
    found, made = pool(), router.load(folder)
    probes = fit_router.probes_of(folder, made)
    for w in range(4):
        given = dict(zip(found.questions, found.means[:, w].tolist(), strict=True))
        assert probes.row(given) == pytest.approx(made.head.weights[w], abs=1e-5)
    space_scores = vectors(found.texts) @ made.head.weights.T.astype(np.float64)
    assert (space_scores.argmax(1) == found.means.argmax(1)).mean() > 0.8
    assert Space.of(vectors(found.texts)).middle is None


def test_a_worker_without_half_of_the_answers_or_with_a_name_that_is_taken_is_refused(folder, tmp_path) -> None:
    probes = fit_router.probes_of(folder, router.load(folder))
    given = dict.fromkeys(probes.questions[:9], 1.0)
    with pytest.raises(BadInput, match="rewards at 9 of 20 probe questions"):
        fit_router.with_worker(folder, Worker("new", "echo"), given, tmp_path / "out")
    given = dict.fromkeys(probes.questions, 1.0)
    with pytest.raises(BadInput, match="has a worker door already"):
        fit_router.with_worker(folder, Worker("door", "echo"), given, tmp_path / "out")
    larger = fit_router.with_worker(folder, Worker("new", "echo"), given, tmp_path / "out")
    assert larger.decide([])[0] == 4, "it is right at every probe question"
    again = fit_router.probes_of(tmp_path / "out", router.load(tmp_path / "out"))
    assert again.questions == probes.questions


@pytest.mark.parametrize("change", [{"questions": []}, {"middle": [1.0]}, {"adds": "0"}, {"middle": None}])
def test_damaged_probe_questions_are_refused(folder, change) -> None:
    said = json.loads((folder / "probes.json").read_text())
    (folder / "probes.json").write_text(json.dumps(said | change))
    with pytest.raises(BadRecord, match="hold no probe questions"):
        fit_router.probes_of(folder, router.load(folder))


def test_means_of_given_rewards_are_of_one_worker() -> None:
    rows = [{"question": "q", "worker": w, "reward": r} for w, r in (("a", 1), ("a", 0), ("b", 1))]
    assert list(means_of(enumerate(rows, 1), "a").values()) == [0.5]
    assert set(means_of(enumerate(rows, 1), "a")) <= set(from_rows(enumerate(rows, 1)).questions)
