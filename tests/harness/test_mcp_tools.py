"""MCP servers as tools: what they answer is recorded, replays start none, and a server that misbehaves is bounded."""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

import pytest

from clew.core.errors import BadInput
from clew.core.values import Task
from clew.harness import Runner
from clew.harness.mcp.server_process import Command, _Life
from clew.harness.toolbox import tools_of
from clew.models.fakes import Scripted, tool_call
from clew.worlds.foreign_schemas import fault
from tests.harness import mcp_server

pytest.importorskip("mcp", reason="did not run: the package mcp is not installed")
SERVER = Path(mcp_server.__file__)


def ref(way: str = "", before: str = "") -> str:
    return f"mcp:{before} {sys.executable} {SERVER} {way}".replace("mcp: ", "mcp:")


def run_of(*calls, way: str = "", before: str = "", **options):
    runner = Runner("tool_user", None, Scripted([*calls, "done"]), tools=[ref(way, before)], **options)
    return runner, runner.collect([Task("t", "go")], n=1).runs[0]


def acts(run):
    return [call.text for call in run.calls if call.kind == "act"]


def test_results_errors_and_wrong_arguments_come_back_to_the_model():
    calls = [tool_call("add", a=2, b=40), tool_call("add", a="2", b=1), tool_call("fail"), tool_call("data")]
    runner, run = run_of(*calls, tool_call("dots_and_slashes"))
    added, wrong, failed, data, dots = acts(run)
    assert (added, failed, data) == ("42", "error: the disk is full", '{"n": 3}')
    assert wrong == 'error: add: argument a must be integer, not "2"'
    assert dots == "dots.and/slashes was called"
    assert run.stop == "returned"
    offered = next(call.setup.tools for call in run.calls if call.setup is not None)
    assert offered[0].schema == mcp_server.WHOLE
    assert runner.tools["add"].parallel
    assert runner.tools["add"].idempotent
    assert not runner.tools["fail"].parallel


def test_a_replay_in_another_runner_starts_no_server_and_a_fork_starts_it(tmp_path):
    started = tmp_path / "started"
    _, run = run_of(tool_call("add", a=2, b=40), way=f"w={started}", store=tmp_path / "store.db")
    assert started.read_text() == "started\n"
    again = Runner.of(tmp_path / "store.db", run.id, model=Scripted([tool_call("add", a=1, b=1), "done"]))
    assert again.replay(run.id).calls == len(run.calls)
    assert started.read_text() == "started\n"
    fork = again.fork(run.id, 1)[0]
    assert acts(fork) == ["2"]
    assert started.read_text() == "started\n" * 2


def test_the_record_keeps_the_command_the_names_and_the_digest_of_the_program(tmp_path):
    _, run = run_of(tool_call("add", a=2, b=40))
    settings = json.loads(run.row.settings)
    (kept,) = settings["tools"]
    assert kept["ref"] == ref().strip()
    assert kept["names"][0] == "add"
    assert list(settings["sources"]) == [str(SERVER)]


def test_an_image_is_kept_or_named_never_lost():
    _, run = run_of(tool_call("show"))
    assert "a dot:" in acts(run)[0]
    assert "image/png" in acts(run)[0]


def test_a_server_that_dies_ends_the_run_plainly_and_the_next_run_has_another():
    runner, run = run_of(tool_call("die"))
    assert run.stop == "world_error"
    assert "ended with exit code 3: out of memory ␛[31m" in run.calls[-2].error
    runner.model = Scripted([tool_call("add", a=1, b=2), "done"])
    assert acts(runner.collect([Task("u", "go")], n=1).runs[0]) == ["3"]


def test_a_server_that_dies_again_and_again_is_not_started_forever():
    runner, _ = run_of(tool_call("die"))
    ended = [runner.collect([Task(f"u{i}", "go")], n=1).runs[0] for i in range(3)]
    assert [run.stop for run in ended] == ["world_error"] * 3
    assert "died 3 times" in ended[-1].calls[-2].error


def test_a_call_that_hangs_comes_back_as_an_error_in_its_time():
    began = time.monotonic()
    _, run = run_of(tool_call("nap"), before="--seconds 0.7")
    assert acts(run) == ["error: TimeoutError: no answer within 0.7 s"]
    assert run.stop == "returned"
    assert time.monotonic() - began < 30


def test_floods_are_cut():
    _, run = run_of(tool_call("big"))
    assert acts(run)[0].endswith("2,600,000 further characters of the result were cut)")
    _, run = run_of(tool_call("flood"), before="--seconds 20")
    assert run.stop == "world_error"
    assert "ended" in run.calls[-2].error


def test_hostile_names_and_schemas_are_left_out_with_a_reason_each():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        made = tools_of(ref("hostile"))
    assert [tool.spec.name for tool in made] == ["good", "slow"]
    said = "\n".join(str(warning.message) for warning in told)
    for part in ("cannot be told", "'http://127.0.0.1:9/schema.json'", "grows without bound", "deeper than 24",
                 "no JSON Schema", "longer than 64,000"):  # fmt: skip
        assert part in said, part
    assert "\x1b" not in said
    assert "\u202e" not in said
    began = time.monotonic()
    assert fault({"type": "array"}) == "describes no object of arguments"
    assert fault({"type": "object", "properties": {"a": {"$ref": "#"}}}) == ""
    slow = next(tool for tool in made if tool.spec.name == "slow")
    assert slow.check is not None
    assert "pattern" not in json.dumps(slow.check)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (ref("many"), "has more than 128 tools"),
        (ref("none"), "has no tool"),
        (ref("array"), "does not list its tools: ValidationError"),
        (ref("dies"), "ended with exit code 1: no licence"),
        (ref("silent", "--seconds 0.5"), "did not begin within 0.5 s"),
        ("mcp:/no/such/program x", "cannot be started: No such file"),
        ("mcp:true", "ended with exit code 0"),
        ("mcp:--env TOKEN=secret server", "takes a name alone"),
        ("mcp:--seconds soon server", "is no number"),
        ("mcp:'", "does not parse"),
        ("mcp:", "starts no MCP server"),
        (ref("", "--env NOT_SET_ANYWHERE"), "the variable NOT_SET_ANYWHERE that it needs is not set"),
    ],
)
def test_a_server_that_cannot_be_used_is_a_sentence(command, said):
    with pytest.raises(BadInput) as caught:
        tools_of(command)
    assert said in caught.value.message
    assert caught.value.remedy
    assert "secret" not in str(caught.value)


def test_a_request_that_comes_after_a_failed_start_hears_why_it_failed():
    from mcp import types

    life = _Life(Command.parse("/no/such/program x"))
    assert life.ended.wait(30)
    asked = life.submit(types.PingRequest(), types.EmptyResult)
    assert isinstance(asked.exception(0), BadInput)
    assert "cannot be started: No such file" in str(asked.exception(0))


def test_a_server_gets_the_variables_that_are_named_and_no_credential_else(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("MY_TOKEN", "handed on")
    calls = [tool_call("variable", id="a", key="MY_TOKEN"), tool_call("variable", id="b", key="OPENAI_API_KEY")]
    _, run = run_of(*calls, before="--env MY_TOKEN")
    assert acts(run) == ["'handed on'", "None"]
    assert "handed on" not in run.row.settings


def test_a_command_is_parsed_as_a_shell_parses_it():
    made = Command.parse("--seconds 3 --env A --env B 'my server' --flag 'x y'")
    assert made == Command(("my server", "--flag", "x y"), ("A", "B"), 3.0)
