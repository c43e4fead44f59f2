"""Planted failures of `gate`: verdicts from which no rule may leave the oracle out, and checks that tested nothing."""

from __future__ import annotations

import json
import random

import pytest

from clew.core.errors import BadInput
from clew.methods.gate.line_rules import Rule, Seen, choose
from clew.methods.gate.past_verdicts import read
from clew.methods.gate.said import observed

pytest.importorskip("scipy", reason="did not run: the intervals need scipy")
CRITICS = ["lint", "unit"]


def best(rows):
    return choose(rows, CRITICS).best.rule


def test_a_history_in_which_all_was_good_says_nothing_of_what_a_critic_stops():
    assert best([Seen(str(i), {"lint": True, "unit": True}, True) for i in range(500)]) == Rule()


def test_a_history_in_which_all_was_broken_says_nothing_of_what_a_critic_loses():
    assert best([Seen(str(i), {"lint": False, "unit": i % 2 == 0}, False) for i in range(500)]) == Rule()


def test_one_change_that_was_judged_five_hundred_times_is_one_change():
    rows = [Seen("same", {"lint": False}, False), Seen("good", {"lint": True}, True)] * 250
    assert best(rows) == Rule()


def test_a_handful_of_perfect_verdicts_is_too_few():
    rows = [Seen(str(i), {"lint": i % 2 == 0, "unit": i % 2 == 0}, i % 2 == 0) for i in range(12)]
    assert best(rows) == Rule()


def test_a_critic_that_tosses_a_coin_decides_nothing():
    rng = random.Random(4)
    rows = [
        Seen(str(i), {"lint": rng.random() < 0.5, "unit": rng.random() < 0.5}, rng.random() < 0.5) for i in range(400)
    ]
    assert best(rows) == Rule()


def test_verdicts_without_an_oracle_decide_nothing():
    assert best([Seen(str(i), {"lint": i % 3 > 0, "unit": True}, None) for i in range(300)]) == Rule()


@pytest.mark.parametrize(
    ("code", "tail"),
    [
        (5, "no tests ran in 0.01s\n"),
        (0, "sss\n3 skipped in 0.02s\n"),
        (0, "=========== 3 skipped, 2 deselected, 1 warning in 0.02s ===========\n"),
        (None, "...."),
        (127, "pytest: not found\n"),
        (-9, ""),
    ],
)
def test_an_oracle_that_tested_nothing_has_not_passed(code, tail):
    told = json.loads(observed("pytest -q", code, "60 s", tail, 0.1, "c").text)
    assert told["passed"] is None
    assert told["why"]


def test_junit_files_of_skipped_tests_alone_are_no_candidates(tmp_path):
    case = '<testcase classname="t" name="n" time="0"><skipped/></testcase>'
    (tmp_path / "run.xml").write_text(f"<testsuites><testsuite>{case}</testsuite></testsuites>")
    with pytest.raises(BadInput, match="holds no verdict"):
        read(tmp_path)


# ---- planted truths: still found -----------------------------------------------------------------------------------


def test_a_critic_that_is_a_part_of_the_oracle_is_found():
    rng = random.Random(1)
    rows = []
    for i in range(400):
        good = rng.random() < 0.5
        rows.append(Seen(str(i), {"lint": rng.random() < 0.9, "unit": good or rng.random() < 0.3}, good))
    assert best(rows) == Rule(("unit",))


@pytest.mark.parametrize(
    ("code", "tail", "passed"), [(0, "3 passed, 1 skipped in 0.1s\n", True), (1, "1 failed\n", False)]
)
def test_an_oracle_that_tested_something_still_decides(code, tail, passed):
    assert json.loads(observed("pytest -q", code, "", tail, 0.1, "c").text)["passed"] is passed
