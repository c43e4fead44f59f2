"""Agents, executors and tools from outside the spine: bundled ones and small ones of this test keep one contract."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from clew.core import registry
from clew.core.errors import BadInput, MissingExtra, UnknownName
from clew.core.values import ToolSpec
from clew.harness import LiveRun, Runner, Tool
from clew.harness.agents import player
from clew.harness.contract import check_agent, check_executor, check_tools
from clew.harness.executors import IN_LOOP, Drive, Prepared
from clew.harness.loading import RECORDED, agent_ref, load_agent
from clew.harness.run.spec import OnRun, RunSpec
from clew.harness.toolbox import again, recorded, references, tools_of
from clew.models.fakes import Scripted
from clew.store import Run
from clew.worlds.toys import Counter

# agents


async def greeter(run: LiveRun) -> None:
    run.note("greeted")


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_bundled_agents_are_found_by_name_and_as_records_name_them(name: str) -> None:
    pytest.importorskip("torch", reason="did not run: torch is not installed")
    check_agent(name)
    assert load_agent(RECORDED[name]) is load_agent(name)
    assert agent_ref(load_agent(name)) == RECORDED[name]


def test_names_of_older_records_find_the_same_agents() -> None:
    for old, name in (
        ("clew.audit.behaviour:episode", "episode"),
        ("clew.harness.coder:coder", "coder"),
        ("clew.harness.workflow.orchestrator:orchestrator", "orchestrator"),
    ):
        assert load_agent(old) is load_agent(name)


def test_an_agent_from_outside_has_a_short_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._local, "agents", {"greeter": greeter})
    check_agent("greeter")
    (run,) = Runner("greeter", Counter(), None).collect(Counter().sample(1), n=1).runs
    assert (run.agent, [call.action for call in run.calls if call.kind == "note"]) == ("greeter", ["greeted"])


def test_an_agent_whose_package_is_absent_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "entries", lambda kind: __import__("importlib.metadata").metadata.EntryPoints())
    for ref in ("coder", "clew.serve.relay:relay"):
        with pytest.raises(UnknownName, match="cannot be loaded: no agent is called") as caught:
            load_agent(ref)
        assert caught.value.remedy
    assert "Install the package" in caught.value.remedy


# executors


class InTurn:
    """Drives each run to its end before it begins the next; ``fault`` spoils what is handed over."""

    def __init__(self, n: int = 1, fault: str = "") -> None:
        self.fault, self.ended = fault, False

    def __enter__(self) -> InTurn:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended = True

    @asynccontextmanager
    async def session(self, spec: RunSpec) -> AsyncIterator[Drive]:
        if self.fault == "model":
            spec = replace(spec, model=Scripted(["stop"]))
        async with IN_LOOP.session(spec) as drive:

            async def one(run: Prepared, on_run: OnRun | None = None) -> Run:
                return await drive(run, None if self.fault == "silent" else on_run)

            yield one


def test_an_executor_from_outside_is_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._local, "executors", {"in-turn": InTurn})
    check_executor(registry.build("executors", "in-turn(n=2)"))
    runner = Runner(player, Counter(), Scripted(["stop"]), executor="in-turn")
    assert isinstance(runner.executor, InTurn)
    with pytest.raises(UnknownName, match="no executor is called 'nowhere'"):
        Runner(player, Counter(), Scripted(["stop"]), executor="nowhere(n=2)")


@pytest.mark.parametrize(("fault", "says"), [("model", "runs differ"), ("silent", "on_run is not called")])
def test_the_contract_of_executors_finds_faults(fault: str, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        check_executor(InTurn(fault=fault))


def test_the_running_loop_and_worker_processes_keep_the_contract() -> None:
    check_executor(IN_LOOP)
    with registry.build("executors", "workers(n=2)") as workers:
        check_executor(workers)


def test_ray_that_is_not_installed_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # type: ignore[arg-type]
    with pytest.raises(MissingExtra, match="ray is not installed"):
        registry.build("executors", "ray(n=2, address='local')")


# tools


class Shelf:
    """Tools by the letters of a word; ``fault`` spoils them."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def tools(self, rest: str, known: object = None, flags: object = None) -> list[Tool]:
        if not rest and self.fault != "lenient":
            raise BadInput("a shelf has letters", remedy="Write shelf:LETTERS.")
        specs = [ToolSpec(letter, "A letter.", {"type": "object", "properties": {}}) for letter in rest or "a"]
        origin = {"ref": f"shelf:{rest}", "names": list(rest)}
        safe = self.fault == "flags" and known is None
        kept = {} if self.fault == "nameless" else origin
        return [Tool(spec, self.say, safe, False, kept) for spec in specs]

    def files(self, rest: str) -> list[str]:
        return ["letters.py"]

    async def say(self) -> str:
        return "said"


def test_tools_from_outside_open_by_their_word_and_from_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._local, "tools", {"shelf": Shelf})
    assert check_tools(Shelf(), "ab") == ["a", "b"]  # type: ignore[arg-type]
    made = tools_of("shelf:ab")
    rows = recorded(made)
    assert rows == [{"ref": "shelf:ab", "names": ["a", "b"]}]
    assert references(rows) == ["letters.py:"]
    assert [tool.spec.name for tool in again(rows, dict)] == ["a", "b"]
    monkeypatch.setitem(registry._local, "tools", {})
    with pytest.raises(UnknownName, match="no tool is called 'shelf'"):
        again(rows, dict)


@pytest.mark.parametrize(
    ("fault", "says"),
    [("lenient", "is accepted"), ("flags", "where the first may not"), ("nameless", "no mapping|names")],
)
def test_the_contract_of_tools_finds_faults(fault: str, says: str) -> None:
    with pytest.raises((AssertionError, KeyError), match=says):
        check_tools(Shelf(fault), "ab")  # type: ignore[arg-type]


SERVER = """
from mcp.server import MCPServer
server = MCPServer("letters")

@server.tool()
def shout(text: str) -> str:
    "Shouts."
    return text.upper()

server.run("stdio")
"""


def test_mcp_servers_keep_the_contract_of_tools(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="did not run: mcp is not installed")
    (tmp_path / "server.py").write_text(SERVER)
    scheme = registry.build("tools", "mcp")
    assert check_tools(scheme, f"{sys.executable} {tmp_path / 'server.py'}") == ["shout"]


def test_the_spine_loads_no_guest() -> None:
    program = """
import sys
import clew.harness.runner, clew.harness.agents, clew.harness.toolbox
from clew.harness.loading import load_agent
load_agent("player")
guests = ("clew.harness.mcp", "clew.harness.coder", "clew.harness.remembering", "clew.harness.workflow",
          "clew.harness.workers", "clew.store.postgres", "clew.models.local", "clew.models.compose.router")
print([name for name in sys.modules if name.startswith(guests)])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
