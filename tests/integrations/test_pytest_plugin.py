"""The plug-in for pytest in a project that is not Clew: recorded once, replayed with the model gone, in both modes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

AGENT = """
import json, os, urllib.request

PROMPT = "You add numbers."
TOOL = {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {"a": {}, "b": {}}}}

def add(a, b):
    return str(a + b)

def ask(messages, base):
    body = json.dumps({"model": "scripted", "messages": messages, "tools": [{"type": "function", "function": TOOL}]})
    head = {"authorization": "Bearer " + os.environ.get("OPENAI_API_KEY", "none")}
    request = urllib.request.Request(base + "/chat/completions", body.encode(), head)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]

def run(base):
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": "What is 2 + 3, then + 4?"}]
    while True:
        reply = ask(messages, base)
        messages.append(reply)
        if not reply.get("tool_calls"):
            return reply["content"]
        for call in reply["tool_calls"]:
            result = add(**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

if __name__ == "__main__":
    print(run(os.environ["OPENAI_BASE_URL"]))
"""
TESTS = """
import sys
import agent

def test_exact(clew_replay):
    clew_replay("sum", [sys.executable, "agent.py"])

def test_loose(clew_replay):
    clew_replay("sum", [sys.executable, "agent.py"], mode="loose")

def test_here(clew_replay):
    with clew_replay("here") as served:
        assert agent.run(served.url) == "It is 9."
"""
SAYS = [{"a": 2, "b": 3}, {"a": 5, "b": 4}]


class Upstream(BaseHTTPRequestHandler):
    """A model that follows a script: it calls ``add`` twice, then answers."""

    asked = 0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        type(self).asked += 1
        turn = sum(m["role"] == "assistant" for m in body["messages"])
        message: dict = {"role": "assistant", "content": "It is 9."}
        if turn < len(SAYS):
            call = {"name": "add", "arguments": json.dumps(SAYS[turn])}
            message = {"role": "assistant", "content": None}
            message["tool_calls"] = [{"id": f"call_{turn}", "type": "function", "function": call}]
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if turn < len(SAYS) else "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        text = json.dumps(
            {"id": "x", "object": "chat.completion", "model": "scripted", "choices": [choice], "usage": usage}
        )
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


def pytest_in(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the project's tests in a pytest of its own, which finds the plug-in as a user does: by its entry point."""
    line = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-q",
        *words,
    ]
    left_out = ("CLEW_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY")
    given = {k: v for k, v in os.environ.items() if k not in left_out} | environment
    return subprocess.run(line, capture_output=True, text=True, timeout=120, cwd=folder, env=given)


@contextmanager
def upstream() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose tests were recorded; the upstream is gone since."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "agent.py").write_text(AGENT)
    (folder / "test_agent.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\n")
    before = Upstream.asked
    key = "sk-proj-" + "Ab3dEf6h" * 3
    with upstream() as url:
        done = pytest_in(folder, "--clew-record", "--clew-upstream", url, OPENAI_API_KEY=key)
    assert done.returncode == 0, done.stdout
    assert Upstream.asked == before + 9, "three tests recorded three requests each"
    files = sorted((folder / "tests" / "runs").iterdir())
    assert [f.name for f in files] == ["here.clew", "sum.clew"]
    return folder


@pytest.fixture
def project(recorded: Path, tmp_path: Path) -> Path:
    """A clone of it, as a second developer has one."""
    return Path(shutil.copytree(recorded, tmp_path / "clone"))


def changed(project: Path, before: str, after: str) -> None:
    text = (project / "agent.py").read_text()
    assert before in text
    (project / "agent.py").write_text(text.replace(before, after))


def outcome(project: Path) -> tuple[set[str], str]:
    """Which tests fail now, and all that was said."""
    asked = Upstream.asked
    done = pytest_in(project, "-rf")
    assert Upstream.asked == asked, "a replay asks no model"
    failed = {line.split("::")[1].split()[0] for line in done.stdout.splitlines() if line.startswith("FAILED")}
    assert done.returncode == (1 if failed else 0), done.stdout + done.stderr
    return failed, done.stdout


@pytest.mark.whole
def test_an_agent_that_stayed_the_same_passes_in_both_modes_without_a_model(project):
    assert outcome(project)[0] == set()


@pytest.mark.whole
def test_another_prompt_fails_in_exact_mode_alone_and_names_the_message(project):
    changed(project, "You add numbers.", "You sum numbers.")
    failed, said = outcome(project)
    assert failed == {"test_exact", "test_here"}
    wanted = 'request 1 differs at message 0 (system): text: "You sum numbers." instead of "You add numbers."'
    assert wanted in said


def test_another_result_of_a_tool_fails_in_exact_mode_at_its_message(project):
    changed(project, "return str(a + b)", "return f'{a + b}.0'")
    failed, said = outcome(project)
    assert failed == {"test_exact", "test_here"}
    assert 'request 2 differs at message 3 (tool): text: "5.0" instead of "5"' in said


@pytest.mark.whole
def test_another_use_of_tools_fails_in_both_modes(project):
    changed(project, 'for call in reply["tool_calls"]:', 'for call in reply.pop("tool_calls")[:0]:')
    failed, said = outcome(project)
    assert failed == {"test_exact", "test_here", "test_loose"}
    assert "at request 2 the tools were used differently: nothing more, where the record has: a call add(" in said


@pytest.mark.whole
def test_a_tool_that_is_offered_otherwise_fails_in_loose_mode_and_its_description_does_not(project):
    changed(project, '"description": "Adds."', '"description": "Adds two numbers."')
    assert outcome(project)[0] == {"test_exact", "test_here"}
    changed(project, '"b": {}', '"c": {}')
    failed, said = outcome(project)
    assert failed == {"test_exact", "test_here", "test_loose"}
    assert "request 1 offers other tools: add.properties.b: nothing instead of {}" in said


@pytest.mark.whole
def test_an_agent_that_stops_early_or_goes_on_fails_in_both_modes(project):
    changed(project, 'if not reply.get("tool_calls"):', "if True:")
    failed, said = outcome(project)
    assert failed == {"test_exact", "test_here", "test_loose"}
    assert "request 2 of the 3 recorded was never made" in said
    changed(project, "if True:", 'if len(messages) > 7 and not reply.get("tool_calls"):')
    changed(project, 'in reply["tool_calls"]', 'in reply.get("tool_calls", [])')
    failed, said = outcome(project)
    assert failed == {"test_exact", "test_here", "test_loose"}
    assert "a request after all 3 that the record has" in said


@pytest.mark.whole
def test_a_program_that_fails_and_a_run_that_is_missing_are_told(project):
    changed(project, "print(run(", "raise SystemExit(run(")
    failed, said = outcome(project)
    assert failed == {"test_exact", "test_loose"}
    assert "ended with exit code 1: It is 9." in said
    (project / "tests" / "runs" / "sum.clew").unlink()
    failed, said = outcome(project)
    assert failed == {"test_exact", "test_loose"}
    assert "Record it once with `pytest --clew-record`" in said


@pytest.mark.whole
def test_a_run_that_says_a_credential_is_not_kept(project):
    key = "sk-proj-" + "Zb3dEf6h" * 3
    changed(project, "You add numbers.", f"The key is {key}.")
    with upstream() as url:
        done = pytest_in(project, "--clew-record", "--clew-upstream", url, "-k", "exact")
    assert done.returncode == 1
    assert "sum.clew is not kept: a credential was said" in done.stdout
    assert not (project / "tests" / "runs" / "sum.clew").exists()


def test_a_pytest_that_uses_no_recorded_run_loads_nothing_of_clew(tmp_path):
    look = "import sys\ndef test_it():\n    assert {m for m in sys.modules if m.startswith('clew.')} <= KNOWN\n"
    known = "KNOWN = {'clew.integrations', 'clew.integrations.pytest_plugin'}\n"
    (tmp_path / "test_it.py").write_text(known + look)
    done = pytest_in(tmp_path)
    assert done.returncode == 0, done.stdout
