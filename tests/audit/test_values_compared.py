"""Agreement between methods: what is planted is found, nothing is found where nothing is, no value counts twice."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import spearmanr

from clew.core.records import Annotation, Report
from clew.harness import Runner
from clew.methods.agreement.values_compared import Pair, Valued, compared, values_of
from clew.models.fakes import Markov
from clew.store import Run
from clew.worlds.toys import Counter

RNG = np.random.default_rng


def planted(b: Callable[[np.ndarray], np.ndarray], tasks: int = 12, each: int = 20) -> Pair:
    """Two methods over calls of some tasks: noise, and what ``b`` makes of it."""
    x = RNG(0).normal(size=tasks * each)
    places = [(f"run{i // 5}", i % 5) for i in range(len(x))]
    values = {name: Valued(dict(zip(places, of.tolist(), strict=True)), {}) for name, of in (("one", x), ("two", b(x)))}
    (pair,) = compared(values, {place: f"task{i // each}" for i, place in enumerate(places)})
    return pair


@pytest.mark.parametrize(("b", "sign"), [(np.exp, 1), (lambda x: -(x**3), -1)])
def test_methods_that_rank_alike_correlate_fully_whatever_their_scale(
    b: Callable[[np.ndarray], np.ndarray], sign: int
) -> None:
    pair = planted(b)
    assert isinstance(pair.rank, Report)
    assert pair.rank.estimate == pytest.approx(sign)
    assert (pair.on, pair.n, pair.tasks, pair.rank.n) == ("calls", 240, 12, 12)
    assert pair.shuffled is not None
    assert pair.shuffled[0] < 0 < pair.shuffled[1]
    assert pair.shuffled[1] - pair.shuffled[0] < 0.4


def test_of_methods_that_have_nothing_to_do_with_each_other_the_interval_holds_nothing() -> None:
    held = 0
    for seed in range(40):
        rank = planted(lambda x, seed=seed: RNG(seed + 1).normal(size=len(x))).rank  # type: ignore[misc]
        assert isinstance(rank, Report)
        held += rank.low <= 0 <= rank.high
    assert held >= 33, "95 % intervals over twelve tasks that hold 0 far too seldom"


def test_equal_values_have_the_rank_of_their_mean() -> None:
    def coarse(x: np.ndarray) -> np.ndarray:
        return np.round(x + RNG(3).normal(size=len(x)))

    pair = planted(coarse)
    x = RNG(0).normal(size=240)
    assert isinstance(pair.rank, Report)
    assert pair.rank.estimate == pytest.approx(spearmanr(x, coarse(x)).statistic)


def test_few_tasks_have_no_interval_and_a_constant_no_correlation() -> None:
    assert isinstance(planted(np.exp, tasks=3).rank, float)
    even = planted(np.zeros_like)
    assert (even.rank, even.shuffled, even.apart) == (None, None, "")


@pytest.fixture
def runner() -> Runner:
    model = Markov("up\nup\ndown\nstop", order=1, tokens=True)
    return Runner("clew.harness.agents:player", Counter(), model)


@pytest.fixture
def runs(runner: Runner) -> list[Run]:
    return list(runner.collect(Counter().sample(3), n=2, seed=0).runs)


def asks_of(run: Run) -> list[int]:
    return [call.seq for call in run.calls if call.kind == "ask"]


def test_values_are_read_where_they_stand(runs: list[Run]) -> None:
    run = max(runs, key=lambda run: len(run.calls))
    other = next(one for one in runs if one is not run)
    asks = asks_of(run)
    packed = np.array([np.nan, 1.0, 3.0], np.float32)
    run.store.annotate(
        [
            Annotation("call", "m", 1.0, run.id, asks[0]), Annotation("call", "m", 5.0, run.id, asks[0], version="2"),
            Annotation("call", "m", -1.0, run.id, asks[1]), Annotation("run", "m", 9.0, other.id),
            Annotation("tokens", "t", None, run.id, asks[0], values=packed),
        ]
    )  # fmt: skip
    values, tasks = values_of(runs)
    assert values["m"].calls == {(run.id, asks[0]): 5.0, (run.id, asks[1]): -1.0}
    assert values["m"].runs == {(run.id, -1): 2.0, (other.id, -1): 9.0}
    assert values["t"].calls == {(run.id, asks[0]): 2.0}
    assert set(values) == {"m", "t", "reward"}
    assert set(values_of(runs, ("t",))[0]) == {"t"}
    assert tasks[run.id, asks[0]] == run.row.task_id


def test_calls_that_a_fork_shares_count_once(runner: Runner, runs: list[Run]) -> None:
    run = max(runs, key=lambda run: len(run.calls))
    asks = asks_of(run)
    run.store.annotate([Annotation("call", "m", 1.0 * seq, run.id, seq) for seq in asks])
    (fork,) = runner.fork(run, run.at(step=len(asks) - 1))
    values, _ = values_of([run, fork])
    assert len(values["m"].calls) == len(asks)
