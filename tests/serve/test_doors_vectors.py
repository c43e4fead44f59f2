"""Vectors behind every door of a memory: the same order for the same query, and a model that fails blocks nobody."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("bm25s", reason="did not run: the extra [memory] is not installed")

from clew.core.errors import Unreachable
from clew.core.values import Task
from clew.harness import LiveRun, Runner
from clew.harness.memory import Memory
from clew.harness.memory.recalled import shown_in
from clew.harness.run.notes import SHORT
from clew.models.fakes import Echo
from clew.serve.doors.langgraph_store import Shelf
from clew.serve.doors.memory_tools import MemoryTools
from clew.serve.doors.visit import Visit
from clew.store import Keeper, Run, open_store
from tests.models.server import chat, serving
from tests.serve.foreign import before, notes, using
from tests.serve.meanings import Meanings
from tests.serve.shop_memory import made

QUERIES = ("settle the bill at once", "settle the bill of the bakery", "whales", "money")


@pytest.fixture
def store(tmp_path: Path):
    with open_store(tmp_path / "a.db") as opened:
        made(opened)
        yield opened


async def asker(run: LiveRun) -> None:
    for query in QUERIES:
        await run.memory("shop").recall(query, k=4)


def given(run: Run) -> list[list[str]]:
    return [[item.id for item in shown_in(call.text)] for call in run.calls if call.kind == "recall"]


def by_clew(store: Keeper, model: Meanings | None) -> list[list[str]]:
    return given(Runner(asker, None, Echo(), store, embedder=model).collect([Task("t", "p")], n=1).runs[0])


def by_tools(store: Keeper, model: Meanings) -> list[list[str]]:
    tools = MemoryTools(Visit(store, "shop", "theirs", embedder=model))
    return [[one["id"] for one in json.loads(asyncio.run(tools.recall(query, k=4)))["items"]] for query in QUERIES]


def by_shelf(store: Keeper, model: Meanings) -> list[list[str]]:
    shelf = Shelf(Visit(store, "shop", "theirs", embedder=model))
    return [[item.id for item in shelf.search((), query, None, 4, 0)] for query in QUERIES]


def by_gateway(store: Keeper, model: Meanings) -> list[list[str]]:
    with serving() as peer:
        peer.answer = lambda body, count: chat("done")
        it = before(peer, store, memory="shop", embedder=model)

        async def ask(client: Any) -> None:
            for query in QUERIES:
                body = {"model": "m", "messages": [{"role": "user", "content": query}]}
                assert (await client.post("/r/theirs/v1/chat/completions", json=body)).status_code == 200

        using(it, ask)
    run = Run(store, store.find("tag:theirs")[0])
    return [ids[:4] for ids in given(run)]


def test_every_door_gives_the_same_items_in_the_same_order(store: Keeper) -> None:
    model = Meanings()
    found = by_clew(store, model)
    assert found != by_clew(store, None), "vectors change what is found"
    texts = {item.id: item.text for item in Memory(store, "shop").items()}
    assert "invoice" in texts[found[0][0]], "which shares no word with the query"
    assert by_tools(store, model) == found
    assert by_shelf(store, model) == found
    assert by_gateway(store, model) == found
    asked = model.queries
    for run in store.runs():
        assert Runner.of(store, run, model=Echo()).replay(run).calls == len(run.calls)
    assert model.queries == asked
    assert store.verify() == []


def test_a_model_that_fails_is_said_once_in_a_visit_which_replays(store: Keeper) -> None:
    model = Meanings()
    model.fails = Unreachable("nobody listens")
    visit = Visit(store, "shop", "theirs", embedder=model)
    tools = MemoryTools(visit)
    first, again = (json.loads(asyncio.run(tools.recall("invoice"))) for _ in range(2))
    assert first["by_words_alone"] == again["by_words_alone"] == "nobody listens"
    assert "error" not in first
    assert first["items"]
    run = Run(store, visit.judge(1.0))
    assert [call.kind for call in run.calls] == ["open", "recall", "note", "recall", "end"]
    assert [call.action for call in run.calls if call.kind == "note"] == [SHORT]
    assert Runner.of(store, run).replay(run).calls == 5
    model.fails = None
    visit.recall("invoice")
    assert [call.kind for call in Run(store, visit.judge(1.0)).calls] == ["open", "recall", "end"]
    assert store.verify() == []


def test_a_program_of_the_gateway_is_answered_where_the_model_fails(store: Keeper) -> None:
    model = Meanings()
    model.fails = Unreachable("nobody listens")
    found = by_gateway(store, model)
    assert found[2], "by words"
    run = Run(store, store.find("tag:theirs")[0])
    assert [note["why"] for note in notes(run) if note.get("memory")] == ["nobody listens"]
    assert Runner.of(store, run).replay(run).calls == len(run.calls)
