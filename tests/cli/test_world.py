"""clew world: simulated runs held against the real world, and tools written for a simulated one."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from clew.core.registry import register
from clew.harness import Runner
from clew.harness.agents import player
from clew.methods.world_model import Simulated
from clew.methods.world_model.prompting import reply_text
from clew.methods.world_model.tool_files import tools_of_file
from clew.models.fakes import Scripted, tool_call
from clew.worlds.toys import Counter
from tests.models.server import chat, serving
from tests.worlds.simulators import Shadow

register("tasksets", "simulated", Simulated)  # as the entry point does
REAL = "counter(low=3, high=3)"
MOVES = ["up", "up", "down", "up", "up", "stop"]


@pytest.fixture
def runs(tmp_path):
    """Ids of runs of two tasks, in a simulated counter that is wrong in some of its turns."""
    real = Counter(3, 3)
    taskset = Simulated(world=REAL, model="shadow", steps=len(MOVES), kept=False)
    shadow = Shadow(real, real.sample(2), wrong=0.3)
    runner = Runner(player, taskset, Scripted(MOVES), tmp_path / "s.db", resolve_model=lambda ref: shadow)
    found = [run.id for run in runner.collect(real.sample(2), n=1).runs]
    runner.store.close()
    return found


def test_one_run_is_shown_turn_by_turn_and_its_line_runs(clew, runs):
    out = clew("world", "check", runs[0], "--store", "s.db").output
    lines = out.splitlines()
    assert lines[0].split() == ["turn", "action", "simulated", "real", "same"]
    assert len([line for line in lines if " NO" in line or line.endswith("yes")]) == len(MOVES)
    assert " NO" in out
    assert "the simulated world asked its model 6 times, for $0.0600" in out
    line = next(line for line in lines if line.startswith("see the first difference: "))
    assert "count" in clew(*shlex.split(line.partition(": ")[2])[1:]).output


def test_several_runs_have_an_interval_and_a_half_life(clew, runs):
    found = json.loads(clew("world", "check", "world=simulated", "--store", "s.db", "--json").output)
    assert found["agreement"]["n"] == 2
    assert found["agreement"]["low"] < found["agreement"]["estimate"] < found["agreement"]["high"]
    assert [len(run["turns"]) for run in found["runs"]] == [6, 6]
    agreeing = sum(turn["same"] for run in found["runs"] for turn in run["turns"])
    assert agreeing == sum(run["agreeing"] for run in found["runs"]) < 12
    assert found["half_life"] in range(1, 7)
    out = clew("world", "check", *runs, "--against", REAL, "--store", "s.db").output
    assert "of 2 runs," in out
    assert "agree: " in out


def test_a_run_of_the_real_world_agrees_with_it(clew, tmp_path):
    runner = Runner(player, Counter(3, 3), Scripted(MOVES), tmp_path / "s.db")
    run = runner.collect(Counter(3, 3).sample(1), n=1).runs[0].id
    runner.store.close()
    assert "names no real world" in clew("world", "check", run, "--store", "s.db", code=2).output
    out = clew("world", "check", run, "--against", REAL, "--store", "s.db").output
    assert "agree: 1.00" in out
    assert "in form: 1.00" in out
    assert "against itself: not tested: no question was asked twice while nothing had changed" in out
    assert "see the first difference" not in out


def test_a_simulated_world_without_a_real_one_is_held_against_itself(clew, tmp_path):
    parameters = {"type": "object", "properties": {"number": {"type": "string"}}, "required": ["number"]}
    (tmp_path / "tools.json").write_text(json.dumps([{"name": "get_order", "parameters": parameters}]))
    given = {"id": "c", "function": {"name": "get_order", "arguments": '{"number": "A3"}'}}
    (tmp_path / "demos.jsonl").write_text(
        json.dumps(
            {
                "messages": [
                    {"role": "user", "content": "Where is order A17?"},
                    {"role": "assistant", "tool_calls": [given]},
                    {"role": "tool", "tool_call_id": "c", "content": '{"state": "packed"}'},
                ]
            }
        )
    )
    simulator = Scripted([reply_text(json.dumps({"state": state})) for state in ("sent", "lost")])
    agent = Scripted([tool_call("get_order", number="A17"), tool_call("get_order", number="A17"), "It is lost."])
    where = {"tools": str(tmp_path / "tools.json"), "demos": str(tmp_path / "demos.jsonl")}
    taskset = Simulated(model="simulator", kept=False, **where)
    tool_user = "clew.harness.agents:tool_user"
    runner = Runner(tool_user, taskset, agent, tmp_path / "s.db", resolve_model=lambda name: simulator)
    (run,) = runner.collect([taskset.find("recorded-0")], n=1).runs
    runner.store.close()
    out = clew("world", "check", run.id, "--store", "s.db").output
    assert (
        f"against itself: it contradicts itself in 1 (first in run {run.id}, turns 0 and 1) of 1 repeated questions"
        in out
    )
    assert "agree" not in out
    told = json.loads(clew("world", "check", run.id, "--store", "s.db", "--json").output)
    assert (told["agreement"], told["checks"]["real"]["tested"], len(told["contradictions"])) == (None, False, 1)


def test_what_lasts_is_performed_only_where_it_is_allowed(clew, runs):
    lasts = "counter(low=3, high=3, restores='none')"
    refused = clew("world", "check", runs[0], "--against", lasts, "--store", "s.db", code=2)
    assert "cannot be undone" in refused.output
    assert "agree: " in clew("world", "check", runs[0], "--against", lasts, "--lasting", "--store", "s.db").output


def test_tools_of_a_world_and_of_functions_are_written_for_a_simulated_one(clew, tmp_path):
    assert "10 tools: look_up" in clew("world", "tools", "desk", "-o", "desk.json").output
    assert [offer.spec.name for offer in tools_of_file(str(tmp_path / "desk.json"))][:2] == ["look_up", "policy"]
    (tmp_path / "mine.py").write_text('def add(a: int, b: int) -> int:\n    """Add."""\n    return a + b\n')
    told = json.loads(clew("world", "tools", "mine.py:add", "-o", "mine.json", "--json").output)
    assert told == {"file": "mine.json", "tools": ["add"]}
    assert "actions are text" in clew("world", "tools", "counter", code=2).output


def test_tools_of_an_mcp_server_load_as_they_are(clew, tmp_path):
    pytest.importorskip("mcp", reason="did not run: mcp is not installed")
    (tmp_path / "server.py").write_text(
        "from mcp.server import MCPServer\n"
        "server = MCPServer('s')\n"
        "@server.tool()\ndef weather(city: str) -> str:\n    'The weather.'\n    return city\n"
        "server.run()\n"
    )
    clew("world", "tools", f"mcp:{sys.executable} server.py", "-o", "mcp.json")
    offer = tools_of_file(str(tmp_path / "mcp.json"))[0]
    assert (offer.spec.name, list(offer.spec.schema["properties"])) == ("weather", ["city"])


def test_models_are_ranked_in_a_simulated_world_with_a_model_of_a_file(clew, tmp_path):
    (tmp_path / "sim.py").write_text(
        "from clew.models.fakes import Scripted\n"
        "from clew.methods.world_model.prompting import reply_text\n"
        "class Told(Scripted):\n"
        "    def __init__(self):\n"
        "        super().__init__([reply_text('count 1')] * 9)\n"
        "        self.ref = 'sim.py:Told'\n"
    )
    world = f"simulated(world={REAL!r}, model='sim.py:Told', steps=2)"
    good, poor = "scripted(replies=['up','up','up'])", "scripted(replies=['up','down','stop'])"
    found = json.loads(clew("eval", good, poor, "--world", world, "--tasks", "2", "--json").output)
    assert set(found) == {good, poor}
    out = clew("world", "check", "world=simulated").output
    assert "of 4 runs" in out


@pytest.mark.whole
def test_a_training_ends_where_the_simulated_world_is_not_faithful(clew):
    """The model of the world says the same to every action; the bound lies far above what agrees."""
    pytest.importorskip("torch", reason="did not run: torch is not installed")
    from clew.models.local.model import small

    small(["up", "down", "stop", "count"], 16, 1, 2, 1, 256).save("agent")
    with serving() as peer:
        peer.say(chat("<predicted_observation>count 77</predicted_observation>"))
        world = f"simulated(world='{REAL}', model='{peer.url}#m', bound=0.8, steps=6)"
        line = ("train", "--world", world, "--model", "agent", "--name", "watched", "--max-tokens", 4)
        done = clew(*line, "--iterations", 2, "--eval-every", 0, code=2)
    assert "the simulated world agrees with the real one in 0.00" in done.output
    assert "against a bound of 0.8" in done.output
    assert "Traceback" not in done.output
