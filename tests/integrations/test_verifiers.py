"""verifiers both ways: a taskset of its kind as Clew tasks, and a Clew world as an environment that `vf-eval` runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("verifiers", reason="did not run: verifiers is not installed (make verifiers)")

import clew
from clew.core.errors import BadInput, UnknownName
from clew.core.records import Request
from clew.integrations.verifiers_tasks import VerifiersTasks
from clew.models.fakes import Scripted, tool_call

CAPITALS = """
import verifiers.v1 as vf

KNOWN = {"France": "Paris", "Peru": "Lima", "Kenya": "Nairobi", "Japan": "Tokyo"}

class Atlas(vf.Toolset[vf.ToolsetConfig]):
    TOOL_PREFIX = "atlas"

    @vf.tool
    def capital(self, country: str) -> str:
        \"\"\"The capital of a country.\"\"\"
        return KNOWN.get(country, "unknown")

class Config(vf.TaskConfig):
    tools: vf.ToolsetConfig = vf.ToolsetConfig()

class Data(vf.TaskData):
    answer: str

class Capital(vf.Task[Data, vf.State, Config]):
    @classmethod
    def toolsets(cls, config):
        return [Atlas(config.tools)]

    @vf.reward(weight=0.75)
    async def right(self, trace: vf.Trace) -> float:
        return float(self.data.answer in trace.last_reply)

    @vf.reward(weight=0.25)
    async def looked(self, trace: vf.Trace) -> float:
        return float(any(self.data.answer in str(m.content) for m in trace.tool_messages))

    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        return float(trace.num_turns)

class CapitalsConfig(vf.TasksetConfig):
    task: Config = Config()
    word: str = "capital"

class Capitals(vf.Taskset[Capital, CapitalsConfig]):
    def load(self):
        for country, city in KNOWN.items():
            prompt = f"Name the {self.config.word} of {country}."
            yield Capital(Data(id=country, prompt=prompt, system_prompt="Be brief.", answer=city), self.config.task)

__all__ = ["Capitals"]
"""
LINES = {  # packages that ask for more than a conversation, by what is said of them
    "own_program": (
        "class Own(vf.SingleAgentEnv): pass\n__all__ = ['Capitals', 'Own']", "plays its episodes by a program"
    ),
    "stateful": (
        "class Seen(vf.State):\n    n: int = 0\nclass Counting(vf.Toolset[vf.ToolsetConfig, Seen]):\n    pass\n"
        "Capital.toolsets = classmethod(lambda cls, config: [Counting(config.tools)])", "with a state or a server",
    ),
    "boxed": ("Capital.NEEDS_CONTAINER = True", "works in a container"),
    "silent": ("Capitals.load = lambda self: [Capital(Data(answer=''))]", "lets the user speak first"),
    "empty": ("Capitals.load = lambda self: []", "has no task"),
    "broken": ("Capitals.load = lambda self: 1 / 0", "cannot be loaded: division by zero"),
}  # fmt: skip


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "clew_test_capitals.py").write_text(CAPITALS)
    for name, (line, _) in LINES.items():
        (tmp_path / f"clew_test_{name}.py").write_text(f"{CAPITALS}\n{line}\n")
    return tmp_path


def looks_up(request: Request) -> object:
    last = request.path[-1].message
    if last.role == "tool":
        return f"It is {last.text}."
    country = re.search(r"of (\w+)\.", last.text)
    assert country is not None
    return tool_call("atlas_capital", country=country[1])


def test_a_taskset_is_run_whole_and_judged_by_its_own_rewards(packages: Path) -> None:
    taskset = VerifiersTasks("clew-test-capitals", {"word": "chief city"})
    assert [tool.spec.name for tool in taskset.functions] == ["atlas_capital"]
    tasks = [taskset.find(name) for name in ("France", "Peru", "Kenya", "Japan")]
    runner = clew.Runner("tool_user", taskset, Scripted({"": looks_up}))
    runs = runner.collect(tasks, n=2).runs
    assert [run.reward for run in runs] == [1.0] * 8
    said = {a.method: a.value for a in runner.store.annotations([runs[0].id], target="run")}
    assert said == {"reward": 1.0, "right": 0.75, "looked": 0.25, "turns": 2.0}
    first = next(call for call in runs[0].calls if call.kind == "ask")
    shown = [(node.message.role, node.message.text) for node in runner.store.thread(first.node_in)]
    assert shown == [("system", "Be brief."), ("user", "Name the chief city of France.")]
    guessed = clew.Runner("tool_user", taskset, Scripted({"": "Paris"})).collect(tasks, n=1).runs
    assert [run.reward for run in guessed] == [0.75, 0.0, 0.0, 0.0]
    assert runner.store.verify() == []
    assert str(VerifiersTasks("clew-test-capitals", {"word": "chief city"}).ref) == taskset.ref


@pytest.mark.parametrize("name", LINES)
def test_what_is_more_than_a_conversation_is_refused(packages: Path, name: str) -> None:
    with pytest.raises(BadInput, match=LINES[name][1]):
        VerifiersTasks(f"clew-test-{name}")


def test_what_is_not_there_or_does_not_fit_is_named(packages: Path) -> None:
    with pytest.raises(UnknownName, match="'clew-test-nowhere' or a package that it needs is not installed"):
        VerifiersTasks("clew-test-nowhere")
    with pytest.raises(BadInput, match=r"cannot be loaded: .*colour"):
        VerifiersTasks("clew-test-capitals", {"colour": "red"})


@pytest.fixture
def endpoint() -> Iterator[str]:
    """A server that says "up" as long as the count is below 2, then "stop"."""

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            last = str(asked["messages"][-1]["content"])
            text = "up" if "count 0" in last or "count 1" in last else "stop"
            whole = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
            steps = [({"role": "assistant", "content": text}, None), ({}, "stop")]
            parts = [{**whole, "choices": [{"index": 0, "delta": delta, "finish_reason": why}]} for delta, why in steps]
            usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
            parts.append({**whole, "choices": [], "usage": usage})
            body = "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()


ENVIRONMENT = """
from clew.integrations.verifiers_env import environment

Tasks, Env = environment("counter(low=2, high=3, steps=8)", store={store!r}, tasks=2)
__all__ = ["Tasks", "Env"]
"""
LINE = """
model = "m"
push = false
num_rollouts = 2
client = {{ base_url = "{url}", api_key_var = "CLEW_TEST_KEY" }}
env = {{ taskset.id = "clew_test_counter", agent.harness.id = "null", agent.runtime.type = "subprocess" }}
"""


@pytest.mark.timeout(300)
def test_a_world_is_an_environment_that_vf_eval_runs(tmp_path: Path, endpoint: str) -> None:
    (tmp_path / "clew_test_counter.py").write_text(ENVIRONMENT.format(store=str(tmp_path / "runs.db")))
    (tmp_path / "line.toml").write_text(LINE.format(url=endpoint))
    folder = Path(sys.executable).parent
    told = {**os.environ, "PYTHONPATH": str(tmp_path), "CLEW_TEST_KEY": "none"}
    told["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    line = [folder / "vf-eval", "@", "line.toml"]
    done = subprocess.run(line, cwd=tmp_path, env=told, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    [file] = tmp_path.glob("outputs/*/traces.jsonl")
    episodes = [json.loads(text) for text in file.read_text().splitlines()]
    traces = [trace for episode in episodes for trace in episode.get("traces", [episode])]
    with clew.open_store(tmp_path / "runs.db") as store:
        assert store.verify() == []
        runs = {run.id: run for run in store.runs()}
        assert len(runs) == len(traces) == 4
        for trace in traces:
            run = runs[trace["info"]["clew"]["run"]]
            assert trace["errors"] == []
            assert trace["rewards"]["reward"]["score"] == run.reward
            assert trace["metrics"]["steps"] == len(run.steps)
            said = [node["message"]["content"] for node in trace["nodes"]]
            kept = [node.message.text for node in store.thread(run.calls[-3].node_out or run.calls[-2].node_out)]
            assert said[: len(kept)] == kept
        assert {run.reward for run in runs.values()} <= {0.0, 1.0}
        assert any(run.reward == 1.0 for run in runs.values())
