"""A tool of a memory in a run: its code runs in the sandbox alone, its calls are acts, a replay needs neither."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from clew.core.values import StopReason, ToolCall
from clew.harness import LiveRun, Runner
from clew.harness.memory import Item, Memory, tool_code
from clew.harness.memory.forgetting import forget, places
from clew.harness.memory.tool_code import Seen, Step, advance, schema_hash, through
from clew.harness.memory.tool_shelf import Deps
from clew.harness.memory.tool_uses import uses
from clew.store import Keeper, Run, open_store
from clew.worlds.apps import Apps
from clew.worlds.apps.app_rules import TOOLS
from tests.worlds.test_sandbox import needs_bubblewrap

HASHES = {spec.name: schema_hash(spec) for spec in TOOLS}
API = {name: HASHES[name] for name in ("login", "fetch", "change")}
PAGER = '''
import re

def pager(query, api):
    """All rows of a table, whatever it is filtered by."""
    found = re.search(r"(\\w+) in (\\w+) ", query)
    if found is None:
        return None
    app = found[2]
    api("login", app=app)
    rows, page, more = 0, 1, True
    while more:
        seen = next(s for s in answers(api, app, page) if "rows" in s)
        rows, page, more = rows + len(seen["rows"]), page + 1, seen["has_more"]
    return rows

def answers(api, app, page):
    tables = {"bank": "bills", "shop": "orders", "mail": "receipts", "music": "songs", "travel": "hotels"}
    for endpoint in ("list", "list_items", "search", "query"):
        yield api("fetch", app=app, endpoint=endpoint, table=tables.get(app, "events"), page=page)
'''


def kept(store: Keeper, name: str, source: str, api: dict[str, str] = API, **tools: str) -> Item:
    body = {"name": name, "doc": f"does {name}", "source": source, "deps": Deps(api, tools).text}
    return Memory(store, "shop").add("tool", body, by="ann")


async def user(run: LiveRun, tool: str = "pager") -> None:
    used = await run.memory("shop").use(tool, run.task.prompt)
    run.note("used", answer=used.answer, calls=used.calls, why=used.why)
    if used.answer is None:
        await run.act(ToolCall("c", "submit", '{"answer": "0"}'))


def played(store: Keeper, tool: str = "pager") -> Run:
    taskset = Apps()
    return Runner(user, taskset, None, store, {"tool": tool}).collect(taskset.sample(1, 3), n=1).runs[0]


def noted(run: Run) -> dict[str, object]:
    return json.loads(next(call.text for call in run.calls if call.action == "used"))


@pytest.fixture
def store(tmp_path: Path):
    with open_store(tmp_path / "a.db") as opened:
        yield opened


@needs_bubblewrap
def test_a_tool_answers_its_calls_are_acts_and_a_replay_needs_no_sandbox(store, monkeypatch) -> None:
    tool = kept(store, "pager", PAGER)
    run = played(store)
    told = noted(run)
    acts = [call for call in run.calls if call.kind == "act"]
    assert (told["calls"], told["why"]) == (len(acts), "")
    rows = [json.loads(act.text)["rows"] for act in acts if '"rows"' in act.text]
    assert told["answer"] == str(sum(map(len, rows)))
    tool = Memory(store, "shop").item(tool.id)
    assert [given.query for given in tool.given] == [Apps().find(run.task_id).prompt]
    assert [(one.answered, one.calls) for one in uses(store, tool)] == [(True, len(acts))]

    async def never(*_: object, **__: object) -> None:
        raise AssertionError("a replay begins no sandbox")

    monkeypatch.setattr(tool_code.Sandbox, "arun", never)
    Memory(store, "shop").retire(tool.id, "gone")
    again = Runner(user, Apps(), None, store).replay(run)
    assert again.calls == len(run.calls)


@needs_bubblewrap
def test_a_fork_without_the_tool_falls_through_and_a_run_goes_on_with_the_tool_it_began_with(store) -> None:
    tool = kept(store, "pager", PAGER)
    run = played(store)
    runner = Runner(user, Apps(), None, store)
    fork = runner.fork(run, memory={"without": [tool.id]})[0]
    assert noted(fork)["answer"] is None
    assert "has no tool" in str(noted(fork)["why"])
    assert len(Memory(store, "shop").item(tool.id).given) == 1, "a fork counts for nothing"
    first = next(call.seq for call in run.calls if call.kind == "recall")
    Memory(store, "shop").edit(tool.id, {**tool.body, "source": "def pager(query, api):\n    return 1"})
    late = runner.fork(run, at=first + 3)[0]
    assert noted(late)["answer"] == noted(run)["answer"], "the code is in the record of the first step"


@needs_bubblewrap
def test_what_is_deleted_leaves_the_records_of_runs(store) -> None:
    tool = kept(store, "pager", PAGER + "# the safe opens with 4711 and nobody may read this again, ever\n")
    run = played(store)
    where = places(store, [Memory(store, "shop").item(tool.id)])
    assert [place.run for place in where] == [run.id]
    forget(Memory(store, "shop"), [tool], where)
    assert not any("4711" in text for call in store.calls(run.id) for text in call.said)
    assert store.verify() == []


@needs_bubblewrap
def test_a_tool_calls_another_tool_and_does_not_stand_without_it(store) -> None:
    pager = kept(store, "pager", PAGER)
    twice = "def twice(query, api):\n    return 2 * api('pager', query=query)"
    outer = kept(store, "twice", twice, api={}, pager=pager.id)
    once, run = noted(played(store)), played(store, "twice")
    assert noted(run)["answer"] == str(2 * int(str(once["answer"])))
    assert run.id in {place.run for place in places(store, [pager])}, "its code is in that run's record too"
    ledger = [len(Memory(store, "shop").item(item.id).given) for item in (pager, outer)]
    assert ledger == [1, 1], "what a tool is made of was not selected"
    Memory(store, "shop").retire(pager.id, "no longer")
    assert "does not stand" in str(noted(played(store, "twice"))["why"])


def test_a_tool_whose_api_has_changed_or_that_is_not_there_falls_through(store) -> None:
    kept(store, "pager", PAGER, api={"fetch": "0" * 16})
    assert "arguments of fetch have changed" in str(noted(played(store))["why"])
    gone = played(store, "nobody")
    assert "has no tool 'nobody'" in str(noted(gone)["why"])
    assert gone.stop is StopReason.DONE, "the text path ended the task"
    kept(store, "writer", PAGER, api={"erase": ""})
    assert "erase, which the world does not have" in str(noted(played(store, "writer"))["why"])


def test_without_a_sandbox_the_text_path_does_it(store, monkeypatch) -> None:
    kept(store, "pager", PAGER)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    run = played(store)
    assert "sandbox failed" in str(noted(run)["why"])
    assert run.stop is StopReason.DONE


def stepped(body: str, *seen: Seen, **limits: float) -> Step:
    code = tool_code.Code("t", {"t": f"def t(query, api):\n    {body}"}, {})
    return asyncio.run(advance(code, "q", seen, replace(tool_code.LIMITS, **limits)))


ATTACKS = {  # body of the function -> what the step says
    "files outside": ("return open('/root/secret', 'r').read()", "raised"),
    "home": ("import os\n    return str(os.listdir('/home'))", "raised FileNotFoundError"),
    "network": ("import socket\n    socket.create_connection(('192.0.2.1', 80), 2)\n    return 1", "raised OSError"),
    "endless": ("while True: pass", "limit cpu"),
    "fork bomb": ("import os\n    while True: os.fork()", "limit proc|raised BlockingIO|spoke for the driver"),
    "memory": ("x = []\n    while True: x.append(bytes(1 << 20))", "limit memory|raised MemoryError|exit"),
    "huge output": ("import os\n    while True: os.write(3, b'x' * 65536)", "limit output|raised OSError"),
    "huge answer": ("return 'x' * 50000", "its answer is too long"),
    "no text": ("return [1]", "it gave no text"),
    "speaks for the driver": ("import os\n    os.write(3, b'{}{}')\n    os._exit(0)", "it spoke for the driver"),
    "ends": ("import os\n    os._exit(3)", "exit 3"),
    "raises": ("raise SystemExit(0)", "raised SystemExit"),
    "syntax": ("return return", "raised SyntaxError"),
}


@needs_bubblewrap
@pytest.mark.parametrize("name", ATTACKS)
def test_hostile_code_gives_no_answer(name: str) -> None:
    body, want = ATTACKS[name]
    step = stepped(body, cpu=1.0)
    assert (step.answer, step.call) == (None, None)
    assert re.search(want, step.why), step


@needs_bubblewrap
def test_code_that_catches_everything_or_strays_is_seen() -> None:
    catches = "try: api('a', x=1)\n    except BaseException: pass\n    return 'done'"
    assert stepped(catches).call == ("a", '{"x": 1}'), "a call that was caught is made all the same"
    strays = "import random\n    return api('a', x=random.random())"
    first = stepped(strays)
    assert first.call is not None
    assert "not deterministic" in stepped(strays, Seen(*first.call, "1")).why
    prints = "print('x' * 1000000)\n    return str(query) + str(api('a')['error'])"
    assert stepped(prints, Seen("a", "{}", "error: no")).answer == "qno"
    assert stepped("return hash('abc')") == stepped("return hash('abc')"), "hashes of texts are the same each time"


@needs_bubblewrap
def test_a_tool_that_calls_for_ever_or_what_it_must_not(store) -> None:
    async def again(seen: Sequence[Seen]) -> Step:
        return Step(("login", "{}"))

    async def answer(name: str, given: str) -> str:
        return "x" * 300_000

    few = asyncio.run(through(again, answer, lambda: API, most=3))
    assert (few.answer, few.calls) == (None, 3)
    assert asyncio.run(through(again, answer, lambda: API)).calls == 4, "answers of a million characters are enough"
    kept(store, "submits", "def submits(query, api):\n    return api('submit', answer='1')['error']")
    run = played(store, "submits")
    assert noted(run)["answer"] == "a tool may call change, fetch, login"
    assert not [call for call in run.calls if call.kind == "act"]
