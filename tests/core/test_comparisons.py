"""A verdict is given only where a comparison could have failed."""

from __future__ import annotations

import pytest

from clew.core.comparisons import Comparisons
from clew.core.errors import BadInput


def test_a_verdict_that_could_have_failed_is_given():
    seen = Comparisons("final answers", made=40, could_differ=12, least=0.05, unit="of the reward")
    assert seen.tested
    assert seen.verdict("passed") == "passed"
    assert str(seen) == "12 of 40 final answers could differ; an effect below 0.05 of the reward does not count"


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (Comparisons("final answers", 40, 0), "not tested: nothing in final answers could differ"),
        (Comparisons("final answers", 0, 0), "not tested: there are no final answers"),
        (Comparisons("ends", 40, 0, why_not="all runs have equal length"), "not tested: all runs have equal length"),
    ],
)
def test_where_nothing_could_differ_nothing_is_passed(seen, said):
    assert not seen.tested
    assert seen.verdict("passed") == said
    assert seen.json()["tested"] is False


@pytest.mark.parametrize(("made", "could"), [(1, 2), (0, 1), (3, -1)])
def test_counts_that_contradict_each_other_are_refused(made, could):
    with pytest.raises(BadInput, match="could differ"):
        Comparisons("ends", made, could)


def test_comparisons_without_a_least_effect_are_told_too():
    assert str(Comparisons("final answers", 40, 12)) == "12 of 40 final answers could differ"
