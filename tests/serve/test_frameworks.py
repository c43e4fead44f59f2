"""Agents of published frameworks, unmodified, through the gateway: recorded, replayed without a model, forked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clew.harness import Runner
from clew.store import Run, open_store
from tests.models.server import Peer, chat, serving

AGENTS_SDK = """
import asyncio
from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled

set_tracing_disabled(True)
set_default_openai_api("chat_completions")

@function_tool
def add(a: int, b: int) -> int:
    "Adds two numbers."
    return a + b

async def main():
    agent = Agent(name="sums", instructions="Use the tool.", tools=[add], model="any")
    first = await Runner.run(agent, "add 2 3")
    print(first.final_output)
    second = await Runner.run(agent, first.to_input_list() + [{"role": "user", "content": "add 4 5"}])
    print(second.final_output)

asyncio.run(main())
"""

LANGGRAPH = """
import warnings
warnings.simplefilter("ignore")
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

def add(a: int, b: int) -> int:
    "Adds two numbers."
    return a + b

agent = create_agent(ChatOpenAI(model="any"), [add], system_prompt="Use the tool.")
messages = []
for said in ("add 2 3", "add 4 5"):
    messages = agent.invoke({"messages": [*messages, {"role": "user", "content": said}]})["messages"]
    print(messages[-1].content)
"""
PROGRAMS = {"agents": AGENTS_SDK, "langgraph": LANGGRAPH}


def adder(body: dict[str, Any], count: int) -> Any:
    last = body["messages"][-1]
    if last["role"] == "tool":
        return chat(f"the sum is {last['content']}")
    a, b = last["content"].split()[-2:]
    function = {"name": "add", "arguments": json.dumps({"a": int(a), "b": int(b)})}
    called = {"id": f"call_{len(body['messages'])}", "type": "function", "function": function}
    return chat(None, tool_calls=[called])  # type: ignore[arg-type]


@pytest.fixture
def peer() -> Iterator[Peer]:
    with serving() as peer:
        peer.answer = adder
        yield peer


def gateway(store: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", "import clew.cli; clew.cli.main()", "gateway", "--store", str(store), *words]
    quiet = {"LANGSMITH_TRACING": "false", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    return subprocess.run(line, capture_output=True, text=True, timeout=180, env=os.environ | quiet)


@pytest.mark.frameworks
@pytest.mark.parametrize("framework", list(PROGRAMS))
def test_an_agent_of_a_framework_is_recorded_replayed_and_forked(framework: str, peer: Peer, tmp_path: Path) -> None:
    pytest.importorskip(framework, reason=f"did not run: {framework} is not installed (make frameworks)")
    program, path = tmp_path / "program.py", tmp_path / "s.db"
    program.write_text(PROGRAMS[framework])
    start = ("--", sys.executable, str(program))

    made = gateway(path, "--upstream", peer.url, "--name", framework, *start)
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines() == ["the sum is 5", "the sum is 9"]
    assert len(peer.bodies) == 4
    store = open_store(path)
    (identity,) = store.find(f"tag:{framework}")
    run = Run(store, identity)
    asks = [c for c in run.calls if c.kind == "ask"]
    assert len(asks) == 4
    assert [n.message.role for n in run.conversation(asks[-1].conversation)] == [
        "system", *("user", "assistant", "tool", "assistant") * 2
    ]  # fmt: skip
    assert asks[0].setup is not None
    assert [t.name for t in asks[0].setup.tools] == ["add"]
    assert Runner.of(store, run).replay(run).calls == len(run.calls)

    again = gateway(path, "--replay", run.id, *start)
    assert again.returncode == 0, again.stderr
    assert again.stdout == made.stdout
    assert len(peer.bodies) == 4  # no model was asked

    forked = gateway(path, "--fork", f"{run.id}@{asks[2].seq}", "--reply", "that is enough", *start)
    assert forked.returncode == 0, forked.stderr
    assert forked.stdout.splitlines() == ["the sum is 5", "that is enough"]
    assert len(peer.bodies) == 4
    assert not store.verify()
