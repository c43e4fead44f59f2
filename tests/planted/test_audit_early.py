"""Planted failures of clew audit early: what is never settled, what nothing can tell, and outcomes nobody showed."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="did not run: scikit-learn is not installed")

from clew.core.errors import BadInput
from clew.core.values import Task
from clew.harness import Runner
from clew.harness.agents import chatter
from clew.harness.fork.continuations import Continuations
from clew.methods.early import linear_probes as probes
from clew.methods.early import study
from clew.methods.early.branches import Sizes
from clew.methods.early.curves import Draws, curve, dependence
from clew.methods.early.fitting import FIRST, SHUFFLED
from clew.methods.early.outcome import Shown
from clew.methods.early.verdict import verdict
from clew.methods.why.rewind import Behaviour
from clew.models.markov import Markov

ANSWERED = "hmm well so so answer heads\nhmm well so so answer tails"  # the coin falls behind the thinking
THOUGHT = "hmm well so heads answer heads\nhmm well so tails answer tails"
SHARES = (0.0, 0.5, 1.0)


def asked(corpus: str, does: str = "answer heads", n: int = 60, **how) -> study.Arms:
    runner = Runner(chatter, None, Markov(corpus, order=5, tokens=True), sampling={"max_tokens": 8})
    runs = runner.collect([Task(f"t{i}", f"question {i}") for i in range(n)], 1).runs
    outcome = Shown(Behaviour(does))
    hands = Continuations(runner, outcome=outcome)
    return study.prepare(runs, hands, outcome, until="answer", sizes=Sizes(shares=SHARES, n=4, swaps=1), **how)[0]


def test_a_coin_that_falls_in_the_answer_is_not_settled_after_the_whole_thinking():
    found = study.answer(asked(ANSWERED), probing=False)
    assert found.curve.time is None
    assert found.curve.never
    assert found.curve.half.startswith("half is not settled even after 100% of the thinking (")
    assert found.verdict.kind == "open after the thinking"
    assert "half after 100%" not in found.verdict.text


def test_truth_a_coin_that_falls_in_the_thinking_is_open_until_it_falls():
    found = study.answer(asked(THOUGHT), probing=False)
    assert found.verdict.kind == "open until then"
    assert found.curve.time.estimate == 1
    assert not found.curve.late


def drawn(last: float, prompts: int = 60) -> Draws:
    """Continuations that differ as a coin at first, and at the last cut in a share of the prompts."""
    rng = np.random.default_rng(0)
    open_ = rng.random(prompts) < last
    chances = np.array(
        [np.full(prompts, 0.5), np.full(prompts, 0.5), np.where(open_, 0.5, rng.integers(0, 2, prompts))]
    )
    hits = rng.binomial(8, chances)
    return Draws(hits, np.full_like(hits, 8), np.arange(prompts))


def test_the_upper_end_of_the_time_is_not_told_as_a_measurement_where_half_may_never_be_settled():
    found = curve(drawn(0.42), SHARES)
    assert found.late
    assert found.half.endswith("later than 100%, if at all]")
    assert found.time.caveats
    undecided = curve(drawn(0.6), SHARES)
    assert undecided.time is None
    assert verdict(undecided, dependence(np.full(60, 0.4)), None).kind in ("cannot tell", "open after the thinking")


@pytest.mark.parametrize(("does", "saving"), [("answer edge", False), ("answer edge", True)])
def test_an_outcome_that_no_run_shows_is_refused_also_for_a_saving(does, saving):
    with pytest.raises(BadInput, match="holds in none of 60 runs"):
        asked(THOUGHT, does, one_sided=saving)


def test_an_outcome_that_every_run_shows_leaves_nothing_to_tell():
    with pytest.raises(BadInput, match="nothing to tell apart"):
        asked(THOUGHT, "answer")


def noise(seed: int, n: int = 60, width: int = 30) -> tuple[np.ndarray, np.ndarray, list[str]]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, width)), rng.permutation(np.arange(n) % 2 == 0), [f"p{i}" for i in range(n)]


def test_states_that_tell_nothing_do_not_pass_their_shuffled_control():
    """One shuffle at 60 runs lies anywhere from .35 to .65; what counts is what 50 of them reach."""
    x, y, prompts = noise(2)
    control = probes.shuffled(SHUFFLED, x, y, prompts, lambda: probes.first_token(60, 30))
    assert control.auroc.design.startswith("50 shuffles")
    assert control.auroc.estimate == pytest.approx(0.5, abs=0.06)
    assert 0.55 < control.bar < 0.75
    lucky = probes.told(FIRST, x[:, 0] + 0.7 * y, y, prompts)
    weak = lucky._replace(auroc=probes.told(FIRST, x[:, 0], y, prompts).auroc)
    found = study.Answer(asked(THOUGHT), probes=[control, weak])
    assert study._best(found) is None, "no more than shuffled labels reach"


def test_truth_states_that_tell_the_outcome_pass_and_folds_are_divided_several_times():
    x, y, prompts = noise(3)
    x[:, :5] += 2.0 * y[:, None]
    made = probes.probe(FIRST, x, y, prompts, lambda: probes.first_token(60, 30))
    assert made.auroc.low > 0.8
    assert "mean of 3 divisions into folds" in made.auroc.design
    one = probes.told(FIRST, probes.out_of_fold(x, y, prompts, lambda: probes.first_token(60, 30))[0], y, prompts)
    assert made.auroc.estimate == pytest.approx(one.auroc.estimate, abs=0.1)


def test_labels_of_prompts_are_shuffled_whole_where_prompts_have_several_runs():
    y, group = np.repeat([True, False, True, False], 3), np.repeat(np.arange(4), 3)
    mixed = probes._mixed(y, group, np.random.default_rng(0))
    assert all(len(set(mixed[group == one].tolist())) == 1 for one in range(4))
    assert mixed.sum() == y.sum()
