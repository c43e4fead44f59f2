"""clew memory craft: which plans are due and why, a tool that is admitted, one that is refused, lines that run."""

from __future__ import annotations

import json
import shlex

import pytest

from clew.harness.memory import Memory
from clew.store import open_store
from tests.audit.test_craft_tools import errands
from tests.cli.shell import printed
from tests.worlds.test_sandbox import needs_bubblewrap

MINE = """
from tests.audit.test_craft_tools import draft, written as codify

def wrong(plan, queries, api):
    return draft("return 12345", "guess")
"""


@pytest.fixture
def shop(store, tmp_path):
    with open_store(store) as opened:
        _, plan = errands(opened, 5)
    (tmp_path / "mine.py").write_text(MINE)
    return plan.id


@pytest.fixture
def say(clew, store):
    return lambda *args, **more: clew("memory", "craft", "errands", *args, "--store", store, **more)


def test_what_is_due_is_told_and_nothing_is_changed(say, store, shop):
    shown = say("--dry").output
    assert "would save no tokens" in shown, "the runs asked no model"
    assert "to build: 0 tools" in shown
    fixed = say("--dry", "--theta", "3").output
    assert "different shapes of 3" in fixed
    assert "to build: 1 tool" in fixed
    (told,) = json.loads(say("--dry", "--theta", "3", "--json").stdout)["plans"]
    assert (told["plan"], told["uses"], told["due"]) == (shop, 5, True)
    assert not json.loads(say("--dry", "--theta", "300", "--json").stdout)["plans"][0]["due"]
    with open_store(store) as opened:
        assert [item.kind for item in Memory(opened, "errands").items()] == ["plan"]
    for wrong in (["--theta", "x"], ["--theta", "0"], ["--dry", "--finish", "submit"], [], ["nobody", "--dry"]):
        assert say(*wrong, code=2).exit_code == 2


@needs_bubblewrap
def test_a_tool_is_refused_then_admitted_and_each_line_runs(say, clew, store, shop, tmp_path):
    mine = str(tmp_path / "mine.py")
    refused = say("--codifier", f"{mine}:wrong", "--theta", "3", "--shadow", "2").output
    assert f"plan {shop}: refused: on " in refused
    assert "tried before" in say("--dry", "--theta", "3").output
    late = json.loads(say("--codifier", f"{mine}:codify", "--theta", "5", "--shadow", "2", "--json").stdout)
    assert late["crafted"] == [], "it waits"
    few = say("--codifier", f"{mine}:codify", "--shadow", "50", shop).output
    assert "5 stored runs that followed the plan are no 50 shadow tasks" in few
    dry = say("--dry", "--theta", "1", "--shadow", "6", "--fresh", "2", shop).output
    assert f"plan {shop}: up to 2 new tasks (1 shadow tasks are lacking): about 0 tokens" in dry
    done = say("--codifier", f"{mine}:codify", "--shadow", "2", shop)
    assert "admitted totals" in done.output
    assert "2 of 2 ends of the tool and of the text path could differ" in done.output
    assert "building 1,000" in done.output, "the refused draft asked nobody"
    assert [clew(*shlex.split(line)[1:]).exit_code for line in printed(done.output)] == [0] * 2
    (tool_told,) = json.loads(say("--dry", "--json").stdout)["tools"]
    assert (tool_told["uses"], tool_told["success of tool"], tool_told["success of plan"]) == (0, "2 of 2", "5 of 5")
    with open_store(store) as opened:
        tool = Memory(opened, "errands").items("active")[-1]
    shown = clew("memory", "show", "errands", tool.id, "--store", store).output
    assert "def totals(query, api):" in shown
    assert f"from_plan: {shop}" in shown


@needs_bubblewrap
def test_new_tasks_make_up_for_stored_runs_that_are_lacking(say, store, shop, tmp_path):
    line = ("--codifier", f"{tmp_path / 'mine.py'}:codify", "--shadow", "6")
    few = say(*line, shop).output
    assert "5 stored runs that followed the plan are no 6 shadow tasks" in few
    done = say(*line, "--fresh", "12", shop).output
    assert "plan " + shop + ": up to 12 new tasks (1 shadow tasks are lacking): about 0 tokens" in done
    assert "admitted totals" in done
    assert "its ends are those of the text path on 6 shadow tasks" in done
    with open_store(store) as opened:
        assert len(opened.run_ids()) > 5
        assert len(Memory(opened, "errands").item(shop).given) == 5, "the plan did not recur"
