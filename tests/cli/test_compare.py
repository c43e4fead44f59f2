"""clew compare from the command line: arms of each kind, what is said, what is refused, and its line for going on."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
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
    """The figures are those of docs/compare.md."""
    models = f"{planted('small', 0.35)}, {planted('large', 0.65)}"
    said = clew("compare", place, "--models", models, "-n", 16).output
    assert "not decided after 16 of 16 branches: " in said
    assert " is +0.19 [-0.36, 0.66]; about n = 160 would decide a difference as large as this one" in said
    (line,) = printed(said)
    assert line.startswith(f"clew compare {place} --models ")
    more = clew(*shlex.split(line)[1:]).output
    assert " by 0.32 [0.002, 0.60] after 44 of 160 branches" in more
    models = f"{planted('small', 0.95)}, {planted('large', 0.95)}"
    equal = clew("compare", place, "--models", models, "-n", 400, "--margin", 0.15).output
    assert "are equal within the margin: +0.01 [-0.11, 0.14] after 72 of 400 branches" in equal


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


def test_temperatures_are_arms_and_where_all_branches_end_alike_they_are_not_called_equal(clew, place):
    said = clew("compare", place, "--temperatures", "0,1", "-n", 50, "--batch", 50, "--margin", 0.1).output
    assert "not tested: all 100 branches have the verdict " in said
    assert printed(said)[0].startswith("clew show ")


SLOW = """
import asyncio
from benchmarks.compare import Planted

class Slow(Planted):
    async def complete(self, request):
        await asyncio.sleep(0.2)
        return await super().complete(request)
"""


def test_killed_at_any_moment_the_same_line_goes_on_and_ends_as_if_nothing_had_been(clew, place, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    line = ["compare", place, "--models", "slow.py:Slow(name='a',p=0.5),slow.py:Slow(name='b',p=0.5)", "-n", "8"]
    path = os.pathsep.join([str(MODELS.parents[1]), str(MODELS.parents[1] / "src"), *sys.path])
    program = [sys.executable, "-c", "import clew.cli; clew.cli.main()", *line]
    process = subprocess.Popen(program, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, stderr=subprocess.PIPE)
    with open_store(".clew/store.db") as store:
        end = time.monotonic() + 60
        while len(store.run_ids()) < 9 and time.monotonic() < end:
            time.sleep(0.05)
        process.kill()
        process.communicate()
        before = set(store.run_ids())
        assert len(before) == 9, "the run, and a batch of four branches for each of two arms"
    told = json.loads(clew(*line, "--json").output)
    made = {branch["run"] for arm in told["arms"] for branch in arm["branches"]}
    assert len(made) == 16
    with open_store(".clew/store.db") as store:
        assert before < made | {place.partition("@")[0]}
        assert store.verify() == []
    whole = json.loads(clew("compare", place, "--models", both(0.5, 0.5), "-n", "8", "--json").output)
    assert told["findings"][0]["difference"] == whole["findings"][0]["difference"]


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


CODERS = """
from clew.models.fakes import Scripted, tool_call

class Good(Scripted):
    line = "echo right > answer"
    def __init__(self):
        super().__init__([tool_call("bash", command="ls"), tool_call("bash", id="c", command=self.line), "done"])

class Bad(Good):
    line = "echo wrong > answer"
"""


@pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
def test_branches_in_a_workspace_are_verified_by_a_command(clew, tmp_path):
    Path("project").mkdir()
    Path("project/given").write_text("x")
    Path("coders.py").write_text(CODERS)
    clew("run", "coder", "--world", "workspace(folder='project')", "--task", "write", "--model", "coders.py:Bad")
    with open_store(".clew/store.db") as store:
        (run,) = store.find("")
    models = ("--models", "coders.py:Bad,coders.py:Good")
    said = clew("compare", f"{run}@3", *models, "-n", 32, "--verify", "grep -q right answer").output
    assert "coders.py:Good is better than coders.py:Bad by 1.00" in said
    clew("run", "player", "--world", WORLD, "--model", f"{MODELS}:Planted", "--tasks", 1)
    with open_store(".clew/store.db") as store:
        other = next(name for name in store.find("") if store.row(name).taskset.startswith("counter"))
    told = clew("compare", f"{other}@7", *models, "--verify", "true", code=2).output
    assert "--verify runs a command in the files of a branch, and this run has none" in told
