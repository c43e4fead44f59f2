"""`clew audit judge` and `clew audit methods`: no judge is said to beat a rule, and no methods to agree, where that was
not tested; planted ones are found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from clew.methods.agreement.held import Held, held
from clew.methods.agreement.rated import Rated, verdict_scale
from clew.methods.agreement.values_compared import Pair, Valued, compared

Judge = Callable[[int, int, np.random.Generator], float]


def things(judge: Judge, tasks: int = 40, each: int = 4, people: Callable[[int, bool], int] | None = None) -> Held:
    """Labelled runs: the length of the last reply is drawn, and people call 60 % good, or what ``people`` says."""
    rng, rows = np.random.default_rng(0), list[Rated]()
    for i in range(tasks * each):
        task, tune, length = i // each, i // each % 2 == 0, int(rng.integers(1, 9))
        worth = int(rng.random() < 0.6) if people is None else people(i, tune)
        value = float(judge(worth, length, rng))
        rows.append(Rated(f"r{i}", f"r{i}", f"t{task}", "toy", {"ann": worth}, worth, value, {"tokens": float(length)},
                          tune, False))  # fmt: skip
    return held(rows, "j", verdict_scale())


def right(worth: int, length: int, rng: np.random.Generator) -> float:
    return float(worth if rng.random() < 0.9 else 1 - worth)


@pytest.mark.parametrize(
    "judge",
    [
        lambda worth, length, rng: 1.0,
        lambda worth, length, rng: 0.0,
        lambda worth, length, rng: float(rng.random() < 0.6),
        lambda worth, length, rng: float(length > 4),
        lambda worth, length, rng: float(1 - worth),
    ],
    ids=["always good", "always bad", "chance", "length", "the other way round"],
)
def test_judges_that_are_worth_nothing_are_not_said_to_beat_a_rule(judge: Judge) -> None:
    assert "The judge beats" not in things(judge).verdict


@pytest.mark.parametrize("tasks", [2, 4, 8])
def test_few_tasks_kept_apart_are_no_test_even_of_a_judge_that_is_always_right(tasks: int) -> None:
    found = things(lambda worth, length, rng: float(worth), tasks=tasks, each=12)
    assert not found.comparisons.tested
    assert f"was not tested: {tasks // 2} tasks are kept apart, and 5 are needed" in found.verdict


def test_labels_of_one_kind_on_the_tasks_kept_apart_are_no_test() -> None:
    found = things(right, people=lambda i, tune: i % 2 if tune else 1)
    assert not found.comparisons.tested
    assert "people call all work of the tasks kept apart the same" in found.verdict


def test_a_planted_judge_is_found() -> None:
    found = things(right)
    assert found.comparisons.could_differ == 80
    assert found.verdict.startswith("The judge beats both")


def pair_of(a: Sequence[float], b: Sequence[float], tasks: int = 12) -> Pair:
    """Two methods on the same calls of some tasks."""
    places = [(f"r{i}", 1) for i in range(len(a))]
    values = {name: Valued(dict(zip(places, of, strict=True)), {}) for name, of in (("one", a), ("two", b))}
    (pair,) = compared(values, {place: f"t{i % tasks}" for i, place in enumerate(places)})
    return pair


NOISE = np.random.default_rng(1).normal(size=(2, 120))


@pytest.mark.parametrize("constant", [0.0, 1.0, -3.5])
def test_a_method_that_says_the_same_everywhere_agrees_with_nothing(constant: float) -> None:
    pair = pair_of(NOISE[0].tolist(), [constant] * 120)
    assert pair.rank is None
    assert pair.comparisons.verdict("agree") == "not tested: one says the same everywhere"


@pytest.mark.parametrize("tasks", [1, 2, 9])
def test_few_tasks_give_no_interval(tasks: int) -> None:
    assert isinstance(pair_of(NOISE[0].tolist(), NOISE[0].tolist(), tasks).rank, float)


def test_three_places_give_no_interval() -> None:
    assert isinstance(pair_of([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]).rank, float)


def test_noise_holds_nothing_and_a_planted_agreement_is_found() -> None:
    apart, alike = pair_of(*NOISE.tolist()).rank, pair_of(NOISE[0].tolist(), (NOISE[0] + NOISE[1]).tolist()).rank
    assert not isinstance(apart, float | None)
    assert not isinstance(alike, float | None)
    assert apart.low < 0 < apart.high
    assert alike.low > 0.3
