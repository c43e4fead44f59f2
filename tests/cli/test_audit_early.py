"""clew audit early from the command line, on an agent whose coin falls in its thinking."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from clew.core.registry import register
from clew.core.values import Task
from clew.harness import Runner
from clew.models.markov import Markov
from clew.store import Run, open_store
from clew.store.run import busy
from clew.view.pages import curve_page

pytest.importorskip("sklearn", reason="did not run: scikit-learn is not installed")

COIN = "\n".join(f"hmm well so {side} answer {side}" for side in ("heads", "tails"))
ASKED = ("--does", "answer heads", "--until", "answer", "-n", "2", "--shares", "0,.5,1")


@pytest.fixture
def coins(tmp_path):
    register("models", "coin", lambda: Markov(COIN, order=5, tokens=True))
    path = tmp_path / "coins.db"
    model = Markov(COIN, order=5, tokens=True)
    model.ref = "coin"
    runner = Runner("clew.harness.agents:chatter", None, model, path, sampling={"max_tokens": 8})
    runner.collect([Task(f"t{i}", f"question {i}") for i in range(60)], 1)
    runner.store.close()
    return path


def test_cost_verdict_saving_and_a_next_line_that_runs(clew, coins):
    at = ("--store", coins)
    dry = clew("audit", "early", "agent:chatter", *ASKED, *at, "--dry").output
    assert "60 runs with thinking, 4 tokens in the middle" in dry
    assert "to sample: 9" in dry
    assert "open until then" not in dry
    told = clew("audit", "early", "agent:chatter", *ASKED, *at).output
    assert "open until then" in told
    assert "so much is settled: 0% after 0%, " in told
    assert "100% after 100% of it; half after 100%" in told
    label = re.search(rf"clew view --page early/([0-9a-f]{{8}}) --store {re.escape(str(coins))}", told)[1]
    with open_store(coins) as store:
        page = curve_page.curve(store, label)
        assert [point["at"] for point in page["curves"]["settled"]] == [0.0, 0.5, 1.0]
        assert sorted(page["curves"]) == ["flip", "risk", "settled"]
        assert len(page["runs"]) == 60
        run = page["runs"][0]
    assert "early: " in clew("show", run, "--by", "early", *at).output
    assert "Methods with values here: early." in clew("show", run, "--by", "nothing", *at, code=2).output
    assert "no point before the end of thinking keeps the outcome" in told
    assert "note: no probes of hidden states" in told
    assert "cannot read or change hidden states" in told
    line = told.splitlines()[-1]
    assert line.startswith("Next: clew fork ")
    assert clew(*shlex.split(line.removeprefix("Next: clew "))).exit_code == 0
    again = clew("audit", "early", "agent:chatter -origin=fork", *ASKED, *at, "--dry").output
    assert "to sample: 0 continuations" in again
    said = json.loads(clew("audit", "early", "agent:chatter -origin=fork", *ASKED, *at, "--json").output)
    assert said["verdict"] == "open until then"
    assert said["saving"]["at"] is None
    assert said["curve"]["flips"][0]["n"] == 60
    assert len(said["reports"]) > 10


def test_seconds_are_foretold_as_a_range_that_every_continuation_as_a_whole_run_closes(clew, coins):
    line = ("audit", "early", "agent:chatter", *ASKED, "--store", coins, "--dry", "--json")
    cost = json.loads(clew(*line).output)["cost"]
    assert cost["continuations"] > 900
    assert 0 <= cost["seconds"] <= cost["most_seconds"]
    with open_store(coins) as store:
        runs = [Run(store, i) for i in store.find("agent:chatter", None)]
        calls = [call for run in runs for call in run.calls]
    took = sum(end - start for start, end in busy(calls))
    assert cost["most_seconds"] == pytest.approx(cost["continuations"] * took / len(runs))


def test_what_cannot_be_asked_is_refused_with_a_remedy(clew, coins):
    at = ("--store", coins)
    assert "no outcome is named" in clew("audit", "early", "agent:chatter", *at, code=2).output
    bad = clew("audit", "early", "agent:chatter", "--does", "answer", "--until", "answer", *at, code=2).output
    assert "holds in 60 of 60 runs" in bad
    assert "--saving" in bad
    alone = clew("audit", "early", "agent:chatter", *ASKED[2:], "--does", "answer", "--saving", *at).output
    assert "thinking may stop after 0%" in alone
    assert "no thinking is found" in clew("audit", "early", "agent:chatter", "--does", "heads", *at, code=2).output
    few = clew("audit", "early", "agent:chatter task=t1*", *ASKED, *at, code=2).output
    assert "too few to say anything" in few
    both = clew("audit", "early", "agent:chatter", "--judge", "x.py:y", "--does", "heads", *at, code=2).output
    assert "two outcomes are named" in both


JUDGES = """
async def loud(task, run, world):
    return {"loud": float("heads" in run.reply(run.calls[1].seq).message.text)}

async def quiet(task, run, world):
    return {"quiet": 0.0}
"""


def test_judges_of_a_file_vote_and_rules_are_compared(clew, coins, tmp_path):
    (tmp_path / "guards.py").write_text(JUDGES)
    line = (
        "audit",
        "early",
        "agent:chatter",
        "--judge",
        "guards.py:loud",
        "--judge",
        "guards.py:quiet",
        "--rule",
        "2/4",
    )
    told = clew(*line, *ASKED[2:], "--store", coins).output
    assert "open until then" in told
    assert "note: labels by 2/4:" in told
    assert "3/4 would turn" in told
