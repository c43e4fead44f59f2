"""Planted failures of clew audit cliffs: "nothing flagged" where nothing could have been."""

from __future__ import annotations

import numpy as np

from clew.harness.fork.continuations import Continuations
from clew.methods.cliffs import Search, detect, survey
from clew.methods.cliffs.detect import Found
from clew.worlds.sums import Sums
from tests.audit import planted


def searched(judge=None, n: int = 24, fresh: int = 24, runs: int = 4, **how) -> Found:
    class Judged(Sums):
        async def judge(self, task, run, world):
            verdict = judge(run) if judge is not None else None
            return await super().judge(task, run, world) if judge is None else verdict

    runner, some = planted.solutions(n=runs, taskset=Judged(low=3, high=3))
    hands = Continuations(runner)
    return detect(survey(some, lambda run: hands, Search(n=n, fresh=fresh, **how)))


def untested(found: Found, why: str) -> None:
    told = found.comparisons()
    assert not told.tested
    assert told.verdict("0 flagged").startswith("not tested: ")
    assert why in told.verdict("0 flagged")
    assert not found.confirmed


def test_truth_the_planted_cliffs_are_found_and_places_could_have_fallen():
    found = searched(runs=6, n=32, fresh=32)
    assert found.confirmed
    assert found.comparisons().could_differ >= len(found.confirmed)
    assert found.comparisons().verdict("2 flagged") == "2 flagged"


def test_truth_where_no_token_matters_nothing_is_flagged_and_it_could_have_been():
    found = searched(lambda run: {"reward": float(run.row.seed % 2)})
    assert not found.confirmed
    assert found.comparisons().tested


def test_a_task_that_nobody_solves_has_no_place_to_fall_from():
    untested(searched(lambda run: {"reward": 0.0}), "no place did more than 0%")


def test_a_judge_that_never_decides_tests_nothing():
    def never(run):
        if run.row.origin == "fork":
            raise ZeroDivisionError("no verdict")
        return {"reward": 0.0}

    found = searched(never)
    assert found.undecided
    untested(found, "no place did more than 0%")


def test_so_few_continuations_that_no_fall_would_be_significant():
    found = searched(n=4, fresh=2)
    assert found.survey.tested
    untested(found, "more of them (-n, --fresh) may do")


def test_no_token_that_could_lower_the_chance_by_the_margin():
    found = searched(margin=0.95)
    assert not found.survey.tested
    untested(found, "could lower the chance of success by more than the margin")


def test_right_runs_all_alike_are_tested_but_none_is_a_cliff():
    found = searched(lambda run: {"reward": 1.0})
    assert not found.cliffs
    assert found.comparisons().tested, "a fall from 1 would have been seen"
    assert np.isfinite([float(c.potential) for c in found.potentials.values()]).all()
