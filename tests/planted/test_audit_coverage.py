"""`clew audit coverage`: where no mistake could have been seen, it says "not tested"; planted ones are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clew.core.registry import build
from clew.harness import Runner
from clew.methods.recoveries import Trail, coverage
from clew.methods.recoveries.coverage import Coverage
from clew.models.fakes import Scripted


def runs(*words: str, solved: bool = True, task: str = "t") -> list[Trail]:
    """Runs through states of one letter each; an action is named by where it leads."""
    return [Trail(task, tuple(word), tuple(word[1:]), solved) for word in words]


def told(paths: list[Trail]) -> Coverage:
    return coverage(paths, [act for path in paths if path.solved for act in path.acts()])


@pytest.mark.parametrize(
    ("paths", "why"),
    [
        (runs("abababababababababab", solved=False), "no run of these tasks was solved"),
        (runs("aaaa", "aaaa", solved=False), "no run of these tasks was solved"),
        (runs("abcd"), "no state was visited more than once"),
        ([*runs("abcd"), *runs("abcd", task="u"), *runs("abcd", task="v")], "no state was visited more than once"),
        ([*runs("abcd"), *runs("xyxyx", solved=False, task="u")], "no state was visited more than once"),
        ([*runs("abcd"), *runs("efgh")], "no state was visited more than once"),
    ],
    ids=["never solved, to and fro", "never solved, stands", "one run", "one run a task", "solved elsewhere", "apart"],
)
def test_where_no_act_could_be_seen_to_be_a_mistake_nothing_is_said_of_any(paths: list[Trail], why: str) -> None:
    found = told(paths)
    assert found.comparisons.tested is False
    assert why in found.comparisons.verdict("")
    assert found.mistakes == 0
    assert found.to_json()["mistakes"] is None
    assert (found.states, found.retreats) == (None, None)


def test_a_run_that_meets_no_solved_one_is_not_judged_beside_those_that_are() -> None:
    found = told([*runs("abcd", "abecd"), *runs("pqpqpq", solved=False)])
    assert (found.acts, found.judged, found.mistakes) == (12, 7, 0)


def test_planted_mistakes_are_found_and_those_without_distances_are_not_counted_in() -> None:
    found = told([*runs("abcd", "abefebcd"), *runs("abababab", solved=False, task="u")])
    assert (found.acts, found.judged, found.mistakes, found.lost) == (17, 10, 2, 1)
    assert found.states is not None
    assert found.comparisons.could_differ == 10


def test_the_command_says_so(clew: Any, tmp_path: Path) -> None:
    """Runs that go to and fro in a household and never do what is asked."""
    world = build("tasksets", "household(rooms=2,goals=('open',),steps=6)")
    model = Scripted({"": lambda request: ("go kitchen", "go bathroom")[request.seed % 2]})
    runner = Runner("clew.harness.agents:player", world, model, tmp_path / "store.db")
    runner.collect(world.sample(2), n=3)
    runner.store.close()
    text = clew("audit", "coverage", "--store", tmp_path / "store.db").output
    assert "mistakes were not tested: no run of these tasks was solved" in text
    assert "2 tasks have no solved run; 36 actions without a distance are not judged" in text
    assert "recoveries: not tested" in text
    assert "are mistakes" not in text
