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
from clew.models.dialects import chat as wire
from clew.store import Run, open_store
from tests.models.server import Peer, chat, serving
from tests.serve.foreign import bodies

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
LANGMEM = """
import warnings
warnings.simplefilter("ignore")
from langchain_core.messages import AIMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langmem.short_term import summarize_messages

model, summary = ChatOpenAI(model="any"), None
said = [HumanMessage("add 2 3", id="1"), AIMessage("it is 5", id="2")]
for turn in range(3):
    said += [HumanMessage("add %d 5 " % turn + "and then " * 60 + "%d 5" % turn, id="h%d" % turn)]
    short = summarize_messages(said, running_summary=summary, model=model, max_tokens=200, max_summary_tokens=60)
    summary = short.running_summary or summary
    said.append(AIMessage(model.invoke(short.messages).content, id="a%d" % turn))
    print(said[-1].content)
"""

AUTOGEN = """
import asyncio, os
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient

async def add(a: int, b: int) -> int:
    "Adds two numbers."
    return a + b

info = {"vision": False, "function_calling": True, "json_output": False, "family": "unknown",
        "structured_output": False}

async def main():
    client = OpenAIChatCompletionClient(model="any", base_url=os.environ["OPENAI_BASE_URL"], model_info=info)
    agent = AssistantAgent("sums", client, tools=[add], system_message="Use the tool.", reflect_on_tool_use=True)
    for said in ("add 2 3", "add 4 5"):
        print((await agent.run(task=said)).messages[-1].content)

asyncio.run(main())
"""

INSPECT = """
import warnings
warnings.simplefilter("ignore")
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import tool

@tool
def add():
    async def execute(a: int, b: int):
        '''Adds two numbers.

        Args:
            a: the first
            b: the second
        '''
        return str(a + b)
    return execute

task = Task(dataset=[Sample("add 2 3"), Sample("add 4 5")], solver=[use_tools(add()), generate()])
(log,) = eval(task, model="openai/any", display="none", max_samples=1, log_dir="logs", responses_api=False)
for sample in log.samples:
    print(sample.output.completion)
"""

PYDANTIC_AI = """
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel

agent = Agent(OpenAIChatModel("any"), system_prompt="Use the tool.")

@agent.tool_plain
def add(a: int, b: int) -> int:
    "Adds two numbers."
    return a + b

first = agent.run_sync("add 2 3")
print(first.output)
print(agent.run_sync("add 4 5", message_history=first.all_messages()).output)
"""

SMOLAGENTS = """
import os
from smolagents import OpenAIServerModel, ToolCallingAgent, tool

@tool
def add(a: int, b: int) -> int:
    \"\"\"Adds two numbers.

    Args:
        a: the first
        b: the second
    \"\"\"
    return a + b

model = OpenAIServerModel("any", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
agent = ToolCallingAgent(tools=[add], model=model, max_steps=4, verbosity_level=0)
for said in ("add 2 3", "add 4 5"):
    print(agent.run(said, reset=False))
"""
PROGRAMS = {"agents": AGENTS_SDK, "langgraph": LANGGRAPH}
EXPORTED = {
    **PROGRAMS, "langmem": LANGMEM, "autogen_agentchat": AUTOGEN, "inspect_ai": INSPECT,
    "pydantic_ai": PYDANTIC_AI, "smolagents": SMOLAGENTS,
}  # fmt: skip


def adder(body: dict[str, Any], count: int) -> Any:
    """Adds by the tool; says what it found by ``final_answer`` where that is offered."""
    last = body["messages"][-1]
    content = last["content"] if isinstance(last["content"], str) else "".join(p["text"] for p in last["content"])
    offered = [t["function"]["name"] for t in body.get("tools") or ()]
    if last["role"] == "tool" or "Observation" in content:
        said = f"the sum is {content.split()[-1]}"
        if "final_answer" not in offered:
            return chat(said)
        function = {"name": "final_answer", "arguments": json.dumps({"answer": said})}
        return chat(None, tool_calls=[{"id": f"call_{count}", "type": "function", "function": function}])  # type: ignore[arg-type]
    a, b = content.split()[-2:]
    if not offered or not (a + b).isdigit():
        return chat(f"nothing to add in message {len(body['messages'])}, \u202e\U0001f600")
    function = {"name": "add", "arguments": json.dumps({"a": int(a), "b": int(b)})}
    called = {"id": f"call_{len(body['messages'])}", "type": "function", "function": function}
    return chat(None, tool_calls=[called])  # type: ignore[arg-type]


@pytest.fixture
def peer() -> Iterator[Peer]:
    with serving() as peer:
        peer.answer = adder
        yield peer


def gateway(store: Path, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", "import clew.cli; clew.cli.main()", "gateway", "--store", str(store), *words]
    quiet = {"LANGSMITH_TRACING": "false", "OPENAI_AGENTS_DISABLE_TRACING": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(line, capture_output=True, text=True, timeout=180, env=os.environ | quiet, cwd=cwd)


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


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether a program tells a message again, in a spelling of its own."""

    def plain(message: dict[str, Any]) -> Any:
        content = message.get("content") or ""
        text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        calls = [(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"] or "{}"))
                 for c in message.get("tool_calls") or ()]  # fmt: skip
        return message["role"], text, calls, message.get("tool_call_id")

    return bool(plain(a) == plain(b))


def conversations(log: list[Any]) -> list[list[Any]]:
    """What passed between a program and its endpoint, by conversation: each message as it first passed."""
    found: list[list[Any]] = []
    for one in log:
        sent, reply = one["sent"]["messages"], one["received"]["choices"][0]["message"]
        common = []
        for known in found:
            pairs = zip(known, sent, strict=False)
            common.append(next((i for i, (a, b) in enumerate(pairs) if not same(a, b)), min(len(known), len(sent))))
        whole = [i for i, n in enumerate(common) if n == len(found[i])]
        near = max(whole or range(len(found)), key=lambda i: common[i], default=None)
        kept = found[near][: common[near]] if near is not None else []
        told = [*kept, *sent[len(kept) :], reply]
        if near is not None and whole:
            found[near] = told
        else:
            found.append(told)
    return [c for c in found if not any(len(o) > len(c) and o[: len(c)] == c for o in found)]


@pytest.mark.frameworks
@pytest.mark.parametrize("framework", list(EXPORTED))
def test_an_export_equals_what_the_program_sent_and_received(framework: str, peer: Peer, tmp_path: Path) -> None:
    pytest.importorskip(framework, reason=f"did not run: {framework} is not installed (make frameworks)")
    program, path, log = tmp_path / "program.py", tmp_path / "s.db", tmp_path / "log.jsonl"
    program.write_text(EXPORTED[framework])
    tap = (sys.executable, str(Path(__file__).with_name("tap.py")), str(log))
    made = gateway(
        path, "--upstream", peer.url, "--name", "one", "--", *tap, sys.executable, str(program), cwd=tmp_path
    )
    assert made.returncode == 0, made.stderr + made.stdout
    passed = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(passed) > 2
    assert {one["status"] for one in passed} == {200}
    store = open_store(path)
    (identity,) = store.find("tag:one")
    run = Run(store, identity)
    assert bodies(run) == [one["sent"] for one in passed], "every request, to the letter"
    received = [one["received"]["choices"][0]["message"] for one in passed]
    replies = [store.node(c.node_out).message for c in run.calls if c.kind == "ask"]
    assert wire.messages_to_wire(replies) == received

    line = [sys.executable, "-c", "import clew.cli; clew.cli.main()", "export", identity, "--store", str(path)]
    out = subprocess.run([*line, "-o", str(tmp_path / "out.jsonl")], capture_output=True, text=True, timeout=60)
    assert out.returncode == 0, out.stderr
    exported = json.loads((tmp_path / "out.jsonl").read_text())
    held = [exported["messages"], *exported.get("conversations", [])]
    assert sorted(map(json.dumps, held)) == sorted(map(json.dumps, conversations(passed)))
    assert not store.verify()
