"""Planted failures of clew compare: "equal" where no branch could have told the arms apart."""

from __future__ import annotations

import random

import pytest

from clew.cli.compare import _sentence
from clew.core.values import Task
from clew.harness import Runner
from clew.methods.compare.versus import Arm, Finding, Versus
from clew.models.fakes import Scripted


def compared(first: float, second: float, n: int = 48, margin: float = 0.3, tasks: int = 1) -> Finding:
    """Two models that succeed at these rates, from the first request of one run; the verdict is what they say."""

    def says(rate: float, name: str) -> Scripted:
        model = Scripted({"": lambda r: "yes" if random.Random(f"{name} {r.seed}").random() < rate else "no"})
        model.ref = name
        return model

    runner = Runner("chatter", None, says(0.5, "recorded"))
    run = runner.collect([Task(f"t{i}", "go on") for i in range(tasks)], n=1).runs[0]
    arms = [Arm("small", {"model": says(first, "small")}), Arm("large", {"model": says(second, "large")})]

    def verdict(branch) -> float:
        return float(branch.conversation()[-1].message.text == "yes")

    (found,) = Versus(runner, run, 1, arms, n=n, margin=margin, verdict=verdict).compare()
    return found


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_arms_that_all_fail_or_all_succeed_are_not_equal_but_not_tested(rate):
    found = compared(rate, rate)
    assert found.outcome == "open"
    assert found.limits.n == 48, "it does not stop early on nothing"
    assert _sentence(found, 48).startswith(f"not tested: all 96 branches have the verdict {rate:g}")
    assert found.comparisons.json()["tested"] is False
    assert found.decides is None


def test_a_single_pair_decides_nothing():
    found = compared(0.5, 0.5, n=1)
    assert found.outcome == "open"
    assert "equal" not in _sentence(found, 1)


def test_equal_is_not_said_without_a_margin():
    found = compared(0.9, 0.9, margin=0.0)
    assert found.outcome == "open"
    assert "equal" not in _sentence(found, 48)


def test_a_rate_that_differs_by_less_than_the_interval_is_not_decided():
    found = compared(0.45, 0.55, n=16, margin=0.05)
    assert found.outcome == "open"
    assert _sentence(found, 16).startswith("not decided")


def test_truth_equal_arms_that_sometimes_fail_and_unequal_ones_are_still_told():
    same = compared(0.95, 0.95, n=96)
    assert same.outcome == "equal"
    assert same.comparisons.least == 0.3
    assert _sentence(same, 96).startswith("large and small are equal within the margin")
    assert compared(0.1, 0.9).outcome == "better"
    assert compared(0.9, 0.1).outcome == "worse"
