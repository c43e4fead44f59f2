"""clew memory audit: told before it is run, a table, lists, lines that run; show and the page know it after."""

from __future__ import annotations

import json
import shlex

import pytest

pytest.importorskip("bm25s", reason="did not run: the extra [memory] is not installed")
pytest.importorskip("scipy", reason="did not run: the extra [stats] is not installed")

from clew.harness import Runner
from clew.harness.memory import Memory
from clew.store import open_store
from clew.view.pages import transcript_page
from clew.view.pages.reports import reports
from clew.worlds.toys import Counter
from tests.cli.shell import printed

ATTACK = "\x1b[31mred‮\x07"
AGENT = """
async def agent(run):
    found = await run.memory("walks").recall(run.task.prompt)
    wrong = "early" in found.text
    for _ in range(int(run.task.prompt.split()[1].rstrip(",")) - wrong):
        await run.act("up")
    await run.act("stop")
"""


@pytest.fixture
def walks(tmp_path):
    """A store with runs that were given a harmful item and another one; gives its path and the items."""
    (tmp_path / "agent.py").write_text(AGENT)
    path = tmp_path / "walks.db"
    with open_store(path) as store:
        memory = Memory(store, "walks")
        bad = memory.add("fact", {"text": f"stop one step early {ATTACK}"}, by="ann").id
        idle = memory.add("fact", {"text": "reach for the sky, it is blue"}, by="ann").id
        memory.add("fact", {"text": "Be careful."}, by="ann")
        Runner(f"{tmp_path / 'agent.py'}:agent", (world := Counter()), None, store).collect(world.sample(12), n=1)
    return path, bad, idle


def test_an_audit_from_its_forecast_to_the_item_that_is_retired(clew, walks):
    path, bad, idle = walks
    at = ("--store", path)
    dry = clew("memory", "audit", "walks", "-n", "12", "--dry", *at)
    assert "3 to audit, 36 pairs: 48 forks, 0 of them in the store; the other 48 take about 0 tokens" in dry.output
    assert "no two words that say something" in dry.output
    assert "given at none of 12 recalls" in dry.output
    (line,) = [line for line in printed(dry.output) if line.startswith("clew memory audit")]
    done = clew(*shlex.split(line)[1:])
    assert "harmful: success falls" in done.output
    assert "48 forks made" in done.output
    retire = next(line for line in printed(done.output) if line.startswith("clew memory retire"))
    assert bad in retire
    told = json.loads(clew("memory", "audit", "walks", "-n", "12", "--json", *at).stdout)
    assert told["cost"]["forks"] == told["expected"]["forks"] == 0, "nothing is run twice"
    verdicts = {tuple(one["items"]): one["verdict"] for one in told["worth"] if one["kind"] == "item"}
    assert verdicts == {(bad,): "harmful", (idle,): "cannot tell"}
    assert [one["items"] for one in told["lists"]["junk"]]
    shown = clew("memory", "show", "walks", bad, *at).output
    assert "worth: harmful: success falls" in shown
    assert "success with it less without: -1.00" in shown
    assert "its audit took 48 forks, 0 tokens" in shown
    known = json.loads(clew("memory", "show", "walks", bad, "--json", *at).stdout)["worth"]
    assert (known["verdict"], known["success"]["estimate"]) == ("harmful", -1.0)
    with open_store(path) as store:
        run = store.find()[0]
        (call,) = [it for it in transcript_page.calls(store, run, 0, 9) if it["kind"] == "recall"]
        worth = {item["id"]: item["worth"]["verdict"] for item in call["recalled"]["items"]}
        assert worth == {bad: "harmful", idle: "cannot tell"}
        assert {one["source"].split(" ")[1] for one in reports(store)} == {"memory"}
    clew(*shlex.split(retire)[1:])
    for line in printed(done.output):
        if not line.startswith("clew memory retire"):
            clew(*shlex.split(line)[1:])
    assert json.loads(clew("memory", "show", "walks", bad, "--json", *at).stdout)["state"] == "retired"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("audit nothing", "memory 'nothing' holds no items"),
        ("audit walks --items nobody", "memory walks has no item 'nobody'"),
        ("audit walks -n 0", "give a number at least 1"),
        ("audit walks -n 9 --budget 3", "more than 3 forks"),
        ("audit walks --runs 'reward>'", "reward>"),
        ("audit walks --margin x", "--margin"),
    ],
)
def test_bad_input_is_told_in_a_sentence(clew, walks, line, says):
    done = clew("memory", *shlex.split(line), "--store", walks[0], code=None)
    assert done.exit_code != 0
    assert says in done.output
    assert "--debug" not in done.output


def test_runs_that_cannot_be_forked_are_told_and_lists_are_printed_all_the_same(clew, walks, tmp_path):
    (tmp_path / "agent.py").unlink()
    done = clew("memory", "audit", "walks", "--store", walks[0])
    assert "12 runs cannot be forked" in done.output
    assert "junk:" in done.output
    assert "red⟨RLO⟩" not in done.output, "lists name items and never say what they say"
    none = clew("memory", "audit", "walks", "--runs", "reward>5", "--store", walks[0])
    assert "no stored run that can be forked and judged" in none.output
