"""Planted forks of which `clew memory audit` must not say what an item is worth, and some of which it must."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("scipy", reason="did not run: the extra [stats] is not installed")

from clew.methods.memory.worth.worth_verdict import Pair, Subject, Worth, judged

ITEM = Subject("item", ("a",))


def worth(sides: list[tuple[tuple[float, float, float], tuple[float, float, float]]], runs: int = 0) -> Worth:
    """What is said of one item after pairs of forks: (success, turns, tokens) with it, and without it."""
    made = [Pair(f"r{i % (runs or len(sides))}", *both) for i, both in enumerate(sides)]
    (found,) = judged({ITEM: made}, {ITEM: "item a"})
    return found


def same(success: float, n: int = 60, tokens: float = 0.0):
    return [((success, 10.0, 100.0 + tokens), (success, 10.0, 100.0))] * n


NOT_TESTED = {
    "a judge that gives 0 to all": same(0.0),
    "a judge that gives 1 to all": same(1.0),
    "a floor, and fewer tokens": same(0.0, tokens=-40.0),
    "a ceiling, and more tokens": same(1.0, tokens=40.0),
}


@pytest.mark.parametrize("planted", NOT_TESTED)
def test_forks_that_all_ended_alike_tell_nothing(planted):
    found = worth(NOT_TESTED[planted])
    assert (found.verdict, found.checks.tested, found.more) == ("cannot tell", False, None)
    assert found.why.startswith("not tested: every fork ")


def mixed(n: int, share: float = 0.5):
    return [((float(i < share * n), 10.0, 100.0),) * 2 for i in range(n)]


CANNOT_TELL = {
    "one pair": [*mixed(1), ((1.0, 10.0, 100.0), (0.0, 10.0, 100.0))],
    "few runs": mixed(6),
    "a noisy item": mixed(20) + [((1.0, 9.0, 90.0), (0.0, 9.0, 90.0)), ((0.0, 9.0, 90.0), (1.0, 9.0, 90.0))] * 5,
    "not judged": mixed(40) + [((math.nan, 10.0, 100.0), (1.0, 10.0, 100.0))] * 10,
}


@pytest.mark.parametrize("planted", CANNOT_TELL)
def test_too_little_is_no_verdict(planted):
    assert worth(CANNOT_TELL[planted]).verdict == "cannot tell"


def test_many_forks_of_one_run_are_one_run():
    assert worth([((1.0, 9.0, 90.0), (0.0, 9.0, 90.0))] * 60, runs=1).verdict == "cannot tell"


def test_what_is_there_is_found():
    assert worth(mixed(60)).verdict == "no effect shown"
    assert worth(mixed(20) + [((1.0, 9.0, 90.0), (0.0, 9.0, 90.0))] * 20).verdict == "helpful"
    assert worth(mixed(20) + [((0.0, 9.0, 90.0), (1.0, 9.0, 90.0))] * 20).verdict == "harmful"
    dear = [((s, 10.0, 140.0), (s, 10.0, 100.0)) for s in (0.0, 1.0) * 30]
    assert worth(dear).verdict == "harmful"
