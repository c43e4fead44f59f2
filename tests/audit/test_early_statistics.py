"""The estimators of the early audit against planted truth, and against what must not be found."""

from __future__ import annotations

import numpy as np
import pytest

from clew.core.errors import BadInput
from clew.methods.compare.design import Count
from clew.methods.early import cuts, defence, saving, valley, votes
from clew.methods.early import linear_probes as probes
from clew.methods.early.curves import Curve, Draws, curve, dependence, share_of
from clew.methods.early.verdict import verdict

pytest.importorskip("sklearn", reason="did not run: scikit-learn is not installed")

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def draws(chances: np.ndarray, n: int = 8, seed: int = 0, prompts: np.ndarray | None = None) -> Draws:
    """Continuations from places [places, runs] at which the outcome has those chances."""
    hits = np.random.default_rng(seed).binomial(n, chances)
    return Draws(hits, np.full_like(hits, n), np.arange(chances.shape[1]) if prompts is None else prompts)


def planted(early: float, at: float, prompts: int = 400, seed: int = 1) -> np.ndarray:
    """A share ``early`` of the prompts is settled before thinking, the others by a coin after ``at`` of it."""
    rng = np.random.default_rng(seed)
    final, fixed = rng.integers(0, 2, prompts).astype(float), rng.random(prompts) < early
    return np.array([np.where(fixed | (share >= at), final, 0.5) for share in SHARES])


@pytest.mark.parametrize("early", [0.0, 0.5, 0.9])
def test_the_prompt_fixed_share_is_the_planted_one_and_its_interval_holds_it(early):
    found = curve(draws(planted(early, 0.75)), SHARES)
    assert found.fixed.estimate == pytest.approx(early, abs=0.07)
    assert found.fixed.low <= early <= found.fixed.high


@pytest.mark.parametrize("at", [0.25, 0.5, 1.0])
def test_half_is_settled_where_the_coin_falls(at):
    found = curve(draws(planted(0.5, at)), SHARES)
    assert found.time.estimate == at
    assert found.time.low <= at <= found.time.high
    assert found.committed[0].estimate == 0


def test_nothing_open_has_no_commitment_curve_and_a_flip_that_may_still_be():
    found = curve(draws(planted(1.0, 0.5)), SHARES)
    assert found.committed is None
    assert found.time is None
    assert found.flips[0].estimate == 0
    assert 0.005 < found.flips[0].high < 0.02, "that 400 prompts never flipped leaves about a hundredth"
    assert found.fixed.low < 1


def test_runs_of_one_prompt_count_once():
    wide = np.repeat(planted(0.5, 0.5, 40), 10, axis=1)
    together = curve(draws(wide, prompts=np.repeat(np.arange(40), 10)), SHARES).fixed
    apart = curve(draws(wide), SHARES).fixed
    assert together.n == 40
    assert together.high - together.low > 2 * (apart.high - apart.low)


def test_a_constant_outcome_and_a_single_prompt_are_refused():
    with pytest.raises(BadInput, match="same in every one"):
        curve(draws(np.zeros((5, 30))), SHARES)
    with pytest.raises(BadInput, match="1 prompts"):
        curve(draws(np.full((5, 30), 0.5), prompts=np.zeros(30, int)), SHARES)
    with pytest.raises(BadInput, match="pairs of prompts"):
        dependence([1.0])


def test_a_share_that_was_never_seen_is_not_called_nothing():
    assert share_of("x", np.zeros(50)).high == pytest.approx(0.071, abs=0.002)
    assert share_of("x", np.tile([0.0, 1.0], 50)).high < 0.62


# ---- the verdict -----------------------------------------------------------------------------------------------------


def seen(chances: np.ndarray, follow: float, told: float | None) -> str:
    rng = np.random.default_rng(3)
    found: Curve = curve(draws(chances), SHARES)
    t = dependence((rng.random(200) < follow).astype(float))
    y = rng.random(400) < 0.5
    scores = np.where(y == (rng.random(400) < (told or 0.5)), 1.0, 0.0) + rng.random(400) * 0.01
    auroc = probes.told("x", np.where(y, scores, 1 - scores), y, [str(i) for i in range(400)]).auroc if told else None
    return verdict(found, t, auroc).kind


def test_each_organism_has_its_verdict():
    assert seen(planted(1.0, 0.5), 0.0, None) == "decided at the prompt"
    assert seen(planted(1.0, 0.5), 1.0, None) == "predictable but computed in the trace"
    assert seen(planted(0.5, 0.5), 1.0, 0.8) == "predictable but computed in the trace"
    assert seen(planted(0.0, 0.5), 1.0, None) == "open until then"
    assert seen(planted(0.5, 0.5), 0.4, 0.8) == "open until then"
    assert seen(planted(1.0, 0.5), 0.35, None) == "cannot tell"


def test_what_cannot_be_told_says_what_would_do():
    few = curve(draws(planted(0.85, 0.5, 40)), SHARES)
    found = verdict(few, dependence([0.0] * 30 + [1.0] * 5), None)
    assert found.kind == "cannot tell"
    assert "prompts" in found.remedy
    assert "swapped" in verdict(curve(draws(planted(1.0, 0.5)), SHARES), None, None).remedy


# ---- where thinking may stop -----------------------------------------------------------------------------------------


def stopped(at: float, prompts: int = 400, bound: float = 0.05) -> saving.Saving:
    rng = np.random.default_rng(5)
    own = rng.integers(0, 2, prompts).astype(float)
    chances = np.array([np.where(share >= at, own, 0.5) for share in SHARES])
    kept = np.round(np.array(SHARES)[:, None] * 100 * np.ones(prompts)).astype(int)
    names = [f"prompt {i}" for i in range(prompts)]
    return saving.saving(draws(chances), own.tolist(), SHARES, kept, names, bound)


def test_thinking_may_stop_where_the_outcome_is_settled_and_not_before():
    found = stopped(0.5)
    assert found.at == 0.5
    assert found.held
    assert found.share.estimate == pytest.approx(0.5)
    assert found.tokens.estimate == pytest.approx(50)
    assert found.risks[1].low > 0.4
    never = stopped(1.0)
    assert never.at is None
    assert never.tokens is None


def test_a_saving_on_few_prompts_is_not_called_held():
    found = stopped(0.5, prompts=60)
    assert found.at == 0.5
    assert not found.held
    assert 60 < found.wanted < 400
    with pytest.raises(BadInput, match="too few"):
        stopped(0.5, prompts=10)


def test_answers_that_vary_anyway_are_not_put_down_to_stopping():
    rng = np.random.default_rng(7)
    own = rng.integers(0, 2, 300).astype(float)
    chances = np.tile(np.where(own > 0, 0.7, 0.3), (5, 1))
    kept = np.outer(np.array(SHARES), np.full(300, 20)).astype(int)
    found = saving.saving(draws(chances, 64), own.tolist(), SHARES, kept, [str(i) for i in range(300)])
    assert found.at == 0.0


# ---- cuts, valley, votes, defences -----------------------------------------------------------------------------------


def test_a_cut_is_meaningful_equivalent_or_inconclusive():
    rows = [(2, 2, 100), (20, 80, 100), (50, 52, 100), (3, 3, 10)]
    found = cuts.classify([Count(a, n) for a, _, n in rows], [Count(b, n) for _, b, n in rows])
    assert [cut.kind for cut in found] == ["equivalent", "meaningful", "inconclusive", "inconclusive"]
    assert [cut.published for cut in found] == ["performative", "meaningful", "performative", "performative"]
    assert [cut.locked for cut in found] == [True, False, False, False]
    assert found[1].low < 0.6 < found[1].high
    with pytest.raises(BadInput, match="no share"):
        cuts.classify([Count(0, 0)], [Count(0, 10)])


def test_holm_runs_over_all_cuts():
    before, after = Count(50, 100), Count(68, 100)
    assert cuts.classify([before], [after])[0].kind == "meaningful"
    assert {cut.kind for cut in cuts.classify([before] * 50, [after] * 50)} == {"inconclusive"}


def states(ends: float, middle: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y, t = np.arange(300) % 2 == 0, np.linspace(0, 1, 21)
    gap = np.where((t < 0.1) | (t > 0.9), ends, middle)
    x = rng.normal(size=(300, 21, 6))
    x[:, :, 0] += np.where(y[:, None], gap, -gap)
    return x, y


def test_a_planted_valley_is_found_and_flat_ground_is_not_one():
    deep = valley.valley(*states(2.0, 0.2))
    assert deep.found
    assert deep.depth > 0.5
    flat = valley.valley(*states(2.0, 2.0))
    assert flat.depth < 0.15
    x, y = states(0.0, 0.0)
    x[:, :, 0] += np.where(y[:, None], 1, -1) * np.where(np.linspace(0, 1, 21) > 0.9, 2.0, 0.4)
    rising = valley.valley(x, y)
    assert rising.ends
    assert rising.depth > 0.5, "the published depth takes a rise for a valley"
    assert not rising.found
    none = valley.valley(*states(0.0, 0.0))
    assert not none.ends
    assert not none.found
    with pytest.raises(BadInput, match="four of each"):
        valley.valley(states(1, 1)[0][:4], [True, False, True, False])


def test_judges_with_errors_are_read_rightly_and_rules_differ_on_ties():
    rng = np.random.default_rng(2)
    truth = rng.random(1000) < 0.4
    given = np.array([np.where(rng.random(1000) < good, truth, ~truth) for good in (0.95, 0.9, 0.85, 0.75)]).T.astype(
        float
    )
    found = votes.votes(given, "dawid-skene")
    assert (found.labels == truth).mean() > 0.95
    assert ((votes.votes(given, "3/4").labels == truth).mean()) < (found.labels == truth).mean() + 0.01
    assert found.ties == int((given.sum(1) == 2).sum()) > 0
    assert votes.votes(given, "3/4").turned["2/4"] == pytest.approx(found.ties / 1000)
    with pytest.raises(BadInput, match="no vote rule"):
        votes.votes(given, "5/4")
    with pytest.raises(BadInput, match="no vote at all"):
        votes.votes([[np.nan, np.nan]])


def test_more_refusal_moves_along_the_line_and_better_refusal_leaves_it():
    rng = np.random.default_rng(4)
    harmful = np.arange(1200) % 2 == 0
    logit = np.where(harmful, 0.8, -0.8) + rng.normal(size=1200) * 1.5
    base, shift = 1 / (1 + np.exp(-logit)), 1 / (1 + np.exp(-logit - 1))
    better = 1 / (1 + np.exp(-logit - np.where(harmful, 1.0, -1.0)))
    along = defence.plane("shift", base, shift, harmful)
    assert along.change.estimate == pytest.approx(0, abs=1e-9)
    assert along.verdict == "moves along the line"
    assert along.orr.estimate > defence.plane("base", base, base, harmful).orr.estimate + 0.1
    left = defence.plane("better", base, better, harmful)
    assert left.change.estimate > 0.05
    assert left.verdict == "leaves the line"
    with pytest.raises(BadInput, match="harmless"):
        defence.plane("x", base, base, np.ones(1200, bool))


# ---- probes ----------------------------------------------------------------------------------------------------------


def test_probes_find_what_is_there_out_of_fold_and_nothing_else():
    rng = np.random.default_rng(0)
    y = rng.random(400) < 0.5
    x = rng.normal(size=(400, 64))
    names = [str(i) for i in range(400)]
    assert abs(probes.probe("noise", x, y, names, lambda: probes.first_token(400, 64)).auroc.estimate - 0.5) < 0.1
    x[:, 3] += np.where(y, 1.5, -1.5)
    found = probes.probe("signal", x, y, names, lambda: probes.first_token(400, 64))
    assert found.auroc.estimate > 0.9
    assert found.balanced > 0.8
    assert probes.probe("signal", x, y, names, probes.state_a).auroc.estimate > 0.9


def test_runs_of_one_prompt_lie_in_one_fold():
    # Each prompt has a direction of its own and an outcome by lot: only a probe that saw the prompt can tell.
    rng = np.random.default_rng(0)
    y, x = np.repeat(rng.random(60) < 0.5, 8), np.repeat(rng.normal(size=(60, 80)), 8, axis=0)
    grouped = probes.probe("x", x, y, np.repeat(np.arange(60), 8).tolist(), probes.state_a).auroc.estimate
    leaking = probes.probe("x", x, y, list(range(480)), probes.state_a).auroc.estimate
    assert leaking > 0.95
    assert grouped < 0.7


def test_within_sources_a_shortcut_is_gone():
    rng = np.random.default_rng(0)
    source = np.arange(400) % 2
    y = rng.random(400) < np.where(source, 0.85, 0.15)
    x = rng.normal(size=(400, 5)) + source[:, None] * 3
    found = probes.probe("x", x, y, [str(i) for i in range(400)], probes.state_a, source.tolist())
    assert found.auroc.estimate > 0.75
    assert abs(found.within - 0.5) < 0.12


def test_words_and_their_places_tell_what_they_hold():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, (300, 7))
    prompts = [" ".join("xy"[bit] for bit in row) for row in rows]
    third = rows[:, 2] == 1
    assert probes.probe("x", prompts, third, prompts, lambda: probes.words(places=True)).auroc.estimate > 0.95
    assert probes.probe("x", ["a b"] * 300, third, range(300), probes.words).auroc.estimate == 0.5


def test_one_and_the_same_state_tells_nothing_and_warns_of_nothing():
    y = np.arange(200) % 2 == 0
    found = probes.probe("x", np.ones((200, 8)), y, range(200), lambda: probes.first_token(200, 8))
    assert found.auroc.estimate == pytest.approx(0.5, abs=0.05)


def test_one_sided_outcomes_say_how_many_prompts_would_do():
    y = np.arange(200) < 4
    with pytest.raises(BadInput, match="4 prompts show the outcome") as refused:
        probes.probe("x", np.zeros((200, 3)), y, range(200), probes.state_a)
    assert "500 prompts" in refused.value.remedy


def test_between_runs_of_one_prompt_a_constant_state_tells_nothing():
    rng = np.random.default_rng(0)
    prompts = np.repeat(np.arange(50), 6)
    y = rng.random(300) < 0.5
    assert probes.matched(np.repeat(rng.random(50), 6), y, prompts.tolist()).estimate == 0.5
    assert probes.matched(y + rng.random(300) * 0.1, y, prompts.tolist()).estimate == 1
    assert probes.matched(y.astype(float), y, list(range(300))) is None
