"""clew compare from the command line: arms of each kind, what is said, what is refused, and its line for going on."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from clew.store import open_store
from tests.cli.shell import printed

MODELS = Path(__file__).parents[2] / "benchmarks" / "compare.py"
WORLD = "counter(low=3,high=3)"


def planted(name: str, p: float) -> str:
    return f"{MODELS}:Planted(name={name!r},p={p})"


def both(p: float, q: float) -> str:
    return f"{planted('a', p)}, {planted('b', q)}"


@pytest.fixture
def place(clew) -> str:
    clew("run", "player", "--world", WORLD, "--model", f"{MODELS}:Planted", "--tasks", 1)
    with open_store(".clew/store.db") as store:
        return f"{store.find('')[0]}@7"


def test_the_better_model_is_named_with_the_interval_and_a_line_that_runs(clew, place):
    said = clew("compare", place, "--models", both(0.1, 0.9), "-n", 64).output
    assert "Planted(name='b',p=0.9) is better than " in said
    assert " of 64 branches" in said
    (line,) = printed(said)
    assert line.startswith("clew diff ")
    assert "equal up to call 7" in clew(*shlex.split(line)[1:]).output
    with open_store(".clew/store.db") as store:
        (report,) = store.reports().values()
        assert report.low > 0
        assert report.n < 64
        runs = len(store.find(""))
    assert clew("compare", place, "--models", both(0.1, 0.9), "-n", 64).output == said
    with open_store(".clew/store.db") as store:
        assert len(store.find("")) == runs, "the same line makes no branch"
        assert len(store.reports()) == 1, "nor another report"


def test_what_is_not_decided_says_how_many_branches_would_and_the_printed_line_decides_it(clew, place):
    said = clew("compare", place, "--models", both(0.3, 0.7), "-n", 8).output
    assert "not decided after 8 of 8 branches" in said
    assert "would decide a difference as large as this one" in said
    (line,) = printed(said)
    assert line.startswith(f"clew compare {place} --models ")
    more = clew(*shlex.split(line)[1:]).output
    assert f" of {shlex.split(line)[-1]} branches" in more


def test_json_holds_the_branches_and_what_was_found(clew, place):
    words = ("--models", both(0.5, 0.5), "-n", 6, "--batch", 3, "--json")
    told = json.loads(clew("compare", place, *words).output)
    assert told["at"] == place
    assert [len(arm["branches"]) for arm in told["arms"]] == [6, 6]
    (found,) = told["findings"]
    assert found["outcome"] == "open"
    verdicts = [[branch["verdict"] for branch in arm["branches"]] for arm in told["arms"]]
    assert found["difference"]["mean"] == pytest.approx((sum(verdicts[1]) - sum(verdicts[0])) / 6)
    assert {v for arm in verdicts for v in arm} <= {0.0, 1.0}


def test_one_arm_alone_is_compared_with_the_run_as_recorded(clew, place):
    said = clew("compare", place, "--models", planted("worse", 0.0), "-n", 32).output
    assert "is worse than as recorded by 1.00 [" in said
    told = json.loads(clew("compare", place.partition("@")[0], "--say", "2=count 9", "-n", 32, "--json").output)
    assert [arm["name"] for arm in told["arms"]] == ["as recorded", "say 2=count 9"]
    assert told["at"].endswith("@5"), "the third message reaches the third request"
    assert told["findings"][0]["outcome"] == "worse"


def test_temperatures_are_arms_and_equal_ones_are_said_to_be_within_the_margin(clew, place):
    said = clew("compare", place, "--temperatures", "0,1", "-n", 200, "--batch", 50, "--margin", 0.1).output
    assert "temperature 1 and temperature 0 are equal within the margin: +0.00 [" in said
    assert printed(said)[0].startswith("clew show ")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "no arm is named"),
        (("--models", "echo,markov", "--temperatures", "0,1"), "arms of two kinds"),
        (("--models", "echo,echo"), "echo is named twice"),
        (("--temperatures", "warm"), "are not numbers"),
        (("--say", "words"), "names no message"),
        (("--models", "echo,nobody"), "nobody"),
    ],
)
def test_bad_input_is_one_sentence(clew, place, words, told):
    shown = clew("compare", place, *words, code=2).output
    assert told in shown
    assert "Traceback" not in shown


def test_a_run_without_a_place_is_refused(clew, place):
    shown = clew("compare", place.partition("@")[0], "--models", "echo,markov", code=2).output
    assert "but no place in it" in shown
