"""Grades: the arithmetic against plain loops, planted truths, and controls that must find nothing."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from clew.core.errors import BadInput
from clew.credit import advantages, family, from_paths, presets
from clew.credit.steps import Move, Path, replace
from clew.methods.grade import grade as g
from clew.methods.grade import graded

FOLDS = {"sum": np.sum, "mean": np.mean, "last": lambda x: x[-1], "min": np.min, "max": np.max}
FOLDS["bottom10"] = lambda x: np.sort(x)[: -(-len(x) // 10)].mean()


def batch(seed: int, n: int = 7) -> tuple[np.ndarray, ...]:
    """Logprobs of n trajectories of up to 23 steps of up to 4 tokens, with gaps between spans and an empty span."""
    rng = np.random.default_rng(seed)
    spans, owner, at = [], [], 0
    for run in range(n):
        for _ in range(rng.integers(1, 24)):
            at += int(rng.integers(0, 3))
            spans.append((at, at + int(rng.integers(1, 5))))
            at = spans[-1][1]
            owner.append(run)
    spans[1] = (spans[1][0], spans[1][0])
    return (*rng.normal(-2, 1, (2, at)), np.array(spans), np.array(owner))


def plain(p: np.ndarray, r: np.ndarray, spans: np.ndarray, owner: np.ndarray, token: str, step: str, mode: str) -> Any:
    """The same by loops."""
    steps = []
    for a, b in spans:
        parts = (FOLDS[token](p[a:b]) - FOLDS[token](r[a:b])) if mode == "separate" and a < b else None
        steps.append(0.0 if a == b else parts if parts is not None else FOLDS[token](p[a:b] - r[a:b]))
    array = np.array(steps)
    return array, np.array([FOLDS[step](array[owner == run]) for run in range(owner.max() + 1)])


@pytest.mark.parametrize("mode", ["ratio", "separate"])
def test_every_aggregation_equals_its_loop(mode: Any) -> None:
    data = batch(1)
    for token in g.TOKEN_AGGS:
        for step in g.STEP_AGGS:
            found = g.grade(*data, token_agg=token, step_agg=step, mode=mode)
            steps, runs = plain(*data, token, step, mode)
            np.testing.assert_allclose(found.step, steps, atol=1e-12)
            np.testing.assert_allclose(found.run, runs, atol=1e-12)
            assert g.grade(*data, token_agg=token, step_agg=step, mode=mode, beta=0.5).run == pytest.approx(runs / 2)


def test_the_separate_form_differs_for_min_and_max_only() -> None:
    data = batch(2)
    for token in g.TOKEN_AGGS:
        ratio, apart = (g.grade(*data, token_agg=token, mode=mode).step for mode in ("ratio", "separate"))
        assert np.allclose(ratio, apart, atol=1e-12) == (token not in ("min", "max"))


def test_a_pair_of_one_model_and_a_swapped_pair() -> None:
    p, r, *where = batch(3)
    won = np.arange(7) % 2 == 0
    assert not np.any(g.grade(p, p, *where).run)
    assert g.auroc(g.grade(p, p, *where).run, won) == 0.5
    for step in ("sum", "mean", "last"):
        there, back = (g.grade(*pair, *where, step_agg=step).run for pair in ((p, r), (r, p)))  # type: ignore[arg-type]
        assert g.auroc(there, won) + g.auroc(back, won) == pytest.approx(1.0, abs=1e-12)


def test_what_does_not_fit_is_refused() -> None:
    p, r, spans, owner = batch(4)
    for bad in (
        (p[:-1], r, spans, owner),
        (p, r, spans[:, ::-1], owner),
        (p, r, spans + len(p), owner),
        (p, r, spans, owner[::-1]),
    ):
        with pytest.raises(BadInput, match="do not fit"):
            g.grade(*bad)
    p[3] = np.nan
    with pytest.raises(BadInput, match="policy logprob of token 3 is nan"):
        g.grade(p, r, spans, owner)
    for wrong in ({"token_agg": "median"}, {"step_agg": "median"}, {"mode": "both"}):
        with pytest.raises(BadInput, match=next(iter(wrong.values()))):
            g.grade(r, r, spans, owner, **wrong)  # type: ignore[arg-type]
    assert g.grade([], [], np.zeros((0, 2), int)).run.shape == (0,)


def test_beta_is_found_where_it_is_planted_and_refused_where_there_is_none() -> None:
    rng = np.random.default_rng(0)
    for beta in (0.02, 0.25, 30.0):
        q, ref = rng.normal(size=(50, 6)), rng.dirichlet(np.ones(6), 50)
        value = beta * np.log((ref * np.exp(q / beta)).sum(1))
        advantage = q - value[:, None]
        count = np.round(ref * 4000).astype(int)
        sample = np.repeat(advantage.ravel(), count.ravel())
        assert g.calibrate_beta(sample) == pytest.approx(beta, rel=0.02)
    for none in ([], [0.1, 0.2], [-0.1, -0.2], [np.nan, -1.0]):
        with pytest.raises(BadInput, match="no beta"):
            g.calibrate_beta(none)


def test_auroc_is_the_mann_whitney_share() -> None:
    rng = np.random.default_rng(1)
    score, won = rng.integers(0, 9, 200), rng.random(200) < 0.4
    u = mannwhitneyu(score[won], score[~won]).statistic
    assert g.auroc(score, won) == pytest.approx(u / (won.sum() * (~won).sum()))
    weight = rng.integers(0, 3, 200)
    assert g.auroc(score, won, weight) == pytest.approx(g.auroc(np.repeat(score, weight), np.repeat(won, weight)))
    assert np.isnan(g.auroc(score, np.ones(200, bool)))


def test_length_is_taken_out_and_nothing_else() -> None:
    rng = np.random.default_rng(2)
    length, skill = rng.integers(2, 30, 4000).astype(float), rng.normal(size=4000)
    won = rng.random(4000) < 1 / (1 + np.exp(0.2 * (length - 15)))
    by_length = -3 * length + 0.1 * length**2 + skill
    assert g.auroc(-length, won) > 0.8
    assert abs(g.auroc(g.residual(by_length, length), won) - 0.5) < 0.03
    assert np.corrcoef(g.residual(by_length, length), skill)[0, 1] > 0.99


def test_best_of_n_takes_the_highest_and_the_first_of_equals() -> None:
    assert g.pick([1, 3, 3, 5, 2, 2], [0, 0, 0, 2, 1, 1]).tolist() == [1, 4, 3]


def test_blame() -> None:
    steps = [0.5, -0.2, 0.1, -0.9, -0.1]
    assert [g.blame(steps, rule) for rule in g.RULES] == [3, 4, 3]
    assert [g.blame([0.1, -0.4, 0.9, 0.3, -0.3], rule) for rule in g.RULES] == [1, 1, 3]
    assert all(g.blame([0.3, 0.1], rule) == 0 for rule in g.RULES)
    with pytest.raises(BadInput, match="0 steps"):
        g.blame([])


def test_choosing_is_honest_about_noise_and_finds_what_is_there() -> None:
    """On noise the best of 30 looks like .65 on 50 trajectories; the other half says .50. A true option is found."""
    rng = np.random.default_rng(3)
    found, honest = [], []
    for seed in range(12):
        table = {str(k): rng.normal(size=50) for k in range(30)}
        chosen = g.select(table, rng.permutation(50) < 25, np.arange(50), splits=20, seed=seed)
        found.append(chosen.found)
        honest.append(chosen.honest)
    assert np.mean(found) > 0.62
    assert abs(np.mean(honest) - 0.5) < 0.04
    won = rng.permutation(200) < 80
    table = {str(k): rng.normal(size=200) for k in range(29)} | {"true": won + rng.normal(size=200) * 0.5}
    for by in ("auroc", "pick"):
        chosen = g.select(table, won, np.arange(200) // 8, by=by, splits=20)  # type: ignore[arg-type]
        assert chosen.name == "true"
        assert chosen.optimism < 0.06
    with pytest.raises(BadInput, match="nothing to choose by"):
        g.select(table, np.ones(200, bool), np.arange(200))


def test_halves_share_no_task() -> None:
    """Scores that know the task, not the run, cannot pass for honest ones."""
    task = np.repeat(np.arange(20), 10)
    won = (np.random.default_rng(4).random(20) < 0.5)[task]
    table = {str(k): np.random.default_rng(k).normal(size=20)[task] for k in range(30)}
    assert abs(g.select(table, won, task, splits=200).honest - 0.5) < 0.15


def test_intervals_resample_tasks() -> None:
    task = np.repeat(np.arange(30), 20)
    value = np.random.default_rng(5).normal(size=30)[task]
    middle, low, high = g.by_task(lambda w: (w * value).sum() / w.sum(), task)
    assert low < middle < high
    assert (high - low) / 4 == pytest.approx(value[::20].std() / np.sqrt(30), rel=0.2)


def test_a_policy_far_from_its_reference_is_told() -> None:
    with pytest.warns(UserWarning, match="past the budget"):
        assert g.drift([-1.0, -1.0], [-2.0, -1.0]) == 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert g.drift([-1.0], [-1.05]) == pytest.approx(0.05)


def test_grades_are_one_more_target_of_the_family() -> None:
    paths = [Path([Move("a", "x"), Move("b", "y", 1.0)], 1.0), Path([Move("a", "z"), Move("c", "y")], 0.0)]
    steps = from_paths([paths])
    with pytest.raises(BadInput, match="no target of their own"):
        advantages(steps, presets.graded())
    given = np.array([2.0, 1.0, np.nan, -3.0])
    term = family.Term("grade", "given", "group", "mean")
    found, seen = advantages(replace(steps, given=given), [term])
    np.testing.assert_allclose(found, [2, 1, 0, -3])
    assert seen.present.tolist() == [True, True, False, True]
    both, _ = advantages(replace(steps, given=given), presets.graded(w=2.0, mode="mean"))
    np.testing.assert_allclose(both, [0.5 + 4, 0.5 + 2, -0.5, -0.5 - 6])


def test_replies_are_joined_by_step() -> None:
    """Two asks before one act are one step; given tokens are context unless asked for; what was not scored counts 0."""

    def ask(seq: int, head: int, forced: int) -> Any:
        return SimpleNamespace(run="r", seq=seq, head=head, forced=forced)

    steps = [[ask(1, 1, 0), ask(2, 0, 0)], [ask(4, 1, 1)], [ask(6, 1, 0)]]
    run = SimpleNamespace(id="r", steps=[SimpleNamespace(asks=asks) for asks in steps])
    nan = np.nan
    policy = {("r", 1): [nan, -1, -2], ("r", 2): [-1], ("r", 4): [nan, -5, -1]}
    mine = {ask_: np.array(v, np.float32) for ask_, v in policy.items()}
    theirs = {ask_: v - 1 for ask_, v in mine.items()}
    found = graded.read([run], mine, theirs)
    assert found.policy.tolist() == [-1, -2, -1, -1]
    assert found.spans.tolist() == [[0, 3], [3, 4], [4, 4]]
    assert (found.lost, found.length.tolist()) == (1, [4])
    assert graded.read([run], mine, theirs, "all").policy.tolist() == [-1, -2, -1, -5, -1]
    grades = g.grade(found.policy, found.ref, found.spans, found.owner)
    rows = graded.filed(found, grades, {ask_: len(v) for ask_, v in mine.items()}, "grade", {"beta": 1})
    by_place = {(a.target, a.seq): a for a in rows}
    assert [by_place["call", seq].value for seq in (1, 2, 4)] == [3.0, 3.0, 1.0]
    assert ("call", 6) not in by_place
    np.testing.assert_array_equal(by_place["tokens", 4].values, [nan, nan, 1.0])
    assert by_place["run", -1].value == 4.0
