"""One memory behind three doors: a Clew agent, the published MCP client, the published LangGraph store."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from clew.core.errors import BadInput, MissingExtra
from clew.core.values import Task
from clew.harness import LiveRun, Runner
from clew.harness.memory import Memory
from clew.harness.memory.recalled import shown_in
from clew.models.fakes import Echo
from clew.models.remote.embedder import Embedder, embedder_of
from clew.serve.doors.langgraph_store import langgraph_store
from clew.store import Keeper, Run, open_store
from tests.models.server import serving
from tests.serve.meanings import answered
from tests.serve.shop_memory import FORGED, QUERY, made

BAKERY, MAIL = ("bakery",), ("bakery", "mail")
QUERIES = [(QUERY, ()), (QUERY, BAKERY), (QUERY, MAIL[1:]), ("twice or once", ()), ("to pay both", MAIL), ("sing", ())]


@pytest.fixture
def store(tmp_path: Path):
    with open_store(tmp_path / "a.db") as opened:
        yield opened


def langgraph() -> None:
    for module in ("langgraph", "bm25s"):
        pytest.importorskip(module, reason=f"did not run: {module} is not installed (make frameworks)")


def _plain(item: Any) -> Any:
    return item and (item.namespace, item.key, item.value)


async def asker(run: LiveRun) -> None:
    """Recalls what each query finds."""
    for query, scope in QUERIES:
        await run.memory("shop").recall(query, k=5, scope=_scopes(scope))


def _scopes(namespace: tuple[str, ...]) -> list[str]:
    """What lies under a namespace, as scope keys of these items."""
    own = "/".join(namespace)
    return [own, *(key for key in ("bakery/mail",) if key.startswith(f"{own}/"))] if own else []


def by_clew(store: Keeper, embedder: Embedder | None = None) -> list[list[str]]:
    run = Runner(asker, None, Echo(), store, embedder=embedder).collect([Task("t", "x")], n=1).runs[0]
    return [[item.id for item in shown_in(call.text)] for call in run.calls if call.kind == "recall"]


def by_mcp(path: str, *more: str) -> list[list[str]]:
    import mcp

    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    words = ["-m", "clew.cli", "memory", "mcp", "shop", "--store", path, *more]

    async def talk() -> list[list[str]]:
        found = []
        server = mcp.StdioServerParameters(command=sys.executable, args=words, env=environment)
        async with mcp.Client(server) as client:
            for query, scope in QUERIES:
                arguments = {"query": query, "k": 5, "scope": _scopes(scope)}
                answer: Any = (await client.call_tool("recall", arguments)).content[0]
                found.append([item["id"] for item in json.loads(answer.text)["items"]])
        return found

    return asyncio.run(asyncio.wait_for(talk(), 60))


def by_langgraph(store: Keeper, embedder: Embedder | None = None) -> list[list[str]]:
    shelf = langgraph_store(store, "shop", embedder=embedder)
    return [[item.key for item in shelf.search(scope, query=query, limit=5)] for query, scope in QUERIES]


@pytest.mark.frameworks
def test_three_doors_give_the_same_items_in_the_same_order(store: Keeper) -> None:
    langgraph()
    pytest.importorskip("mcp", reason="did not run: mcp is not installed (make frameworks)")
    memory = made(store)
    found = by_clew(store)
    assert [len(ids) > 0 for ids in found] == [True] * len(QUERIES)
    assert found[0] == found[1] != found[2], "a scope takes items away"
    assert by_mcp(store.path) == found
    assert by_langgraph(store) == found
    # what one door deletes is behind none of them
    shelf = langgraph_store(store, "shop", allow=("delete",))
    (doomed,) = shelf.search(("bakery",), query="ask the bakery for the invoice", limit=1)
    shelf.delete(doomed.namespace, doomed.key)
    assert doomed.key not in {item.id for item in memory.items()}
    after = by_clew(store)
    assert doomed.key in {id for ids in found for id in ids}
    assert doomed.key not in {id for ids in (*after, *by_mcp(store.path), *by_langgraph(store)) for id in ids}
    said = [call.text for run in store.run_ids() for call in store.calls(run)]
    assert len(said) > 10
    assert not any("ask the bakery" in text for text in said)
    assert store.verify() == []


@pytest.mark.frameworks
def test_three_doors_rank_by_the_same_vectors(store: Keeper) -> None:
    langgraph()
    pytest.importorskip("mcp", reason="did not run: mcp is not installed (make frameworks)")
    made(store)
    with serving(("embeddings",)) as peer:
        peer.answer = lambda body, count: answered(body)
        ref = f"{peer.url}#seven-words"
        found = by_clew(store, embedder_of(ref))
        assert by_mcp(store.path, "--embed", ref) == found
        assert by_langgraph(store, embedder_of(ref)) == found
        sent = [text for body in peer.bodies for text in body["input"] if len(body["input"]) > 1]
        assert len(sent) == 6, "the items once, by whoever came first"
    assert found != by_clew(store)


@pytest.mark.frameworks
def test_the_store_is_what_langgraph_says_a_store_is(store: Keeper) -> None:
    langgraph()
    from langgraph.store.base import BaseStore, InvalidNamespaceError
    from langgraph.store.memory import InMemoryStore

    memory = Memory(store, "shop")
    ours, theirs = langgraph_store(store, "shop", who="graph", allow=("add", "delete")), InMemoryStore()
    assert isinstance(ours, BaseStore)
    ann, bob = ("users", "ann"), ("users", "bob")
    nested = {"kind": "Memory", "content": {"likes": ["tea", None], "n": 3, "deep": {"x": 1.5}}, "n": 3}

    def both(work: Any) -> None:
        mine, reference = work(ours), work(theirs)
        assert mine == reference

    for shelf in (ours, theirs):
        shelf.put(ann, "one", {"text": "likes tea"})
        shelf.put(ann, "two", nested)
        shelf.put(bob, "one", {"text": '{"text": "a JSON"}', "n": 9})
        shelf.put(bob, "pit", {"kind": "pitfall", "trigger": "a", "mistake": "b", "consequence": "c"})
        shelf.put(ann, "one", {"text": "likes coffee"})
    places = [(ann, "one"), (ann, "two"), (bob, "one"), (bob, "pit"), (ann, "none")]
    for where, key in places:
        both(lambda shelf, at=where, key=key: _plain(shelf.get(at, key)))
    listed = lambda found: sorted((item.namespace, item.key) for item in found)  # noqa: E731
    both(lambda shelf: listed(shelf.search(("users",))))
    both(lambda shelf: listed(shelf.search(ann)))
    both(lambda shelf: listed(shelf.search((), filter={"n": 3})))
    both(lambda shelf: listed(shelf.search((), filter={"n": {"$ne": 3}})))
    assert listed(ours.search((), filter={"n": {"$gt": 3}})) == [(bob, "one")]
    both(lambda shelf: len(shelf.search((), limit=2, offset=1)))
    both(lambda shelf: shelf.list_namespaces())
    both(lambda shelf: shelf.list_namespaces(prefix=("users", "*"), suffix=("bob",)))
    both(lambda shelf: shelf.list_namespaces(max_depth=1))
    coffee = ours.search(ann, query="coffee or tea", filter={"text": "likes coffee"})
    assert [item.value for item in coffee] == [{"text": "likes coffee"}]

    async def later() -> Any:
        await ours.aput(bob, "two", {"text": "sleeps late"})
        found = await ours.asearch(bob, query="who sleeps late", limit=1)
        await ours.adelete(bob, "two")
        return found[0].value, await ours.aget(bob, "two")

    assert asyncio.run(later()) == ({"text": "sleeps late"}, None)
    both(lambda shelf: shelf.delete(ann, "one"))
    both(lambda shelf: shelf.get(ann, "one"))
    assert "coffee" not in json.dumps([item.text for item in memory.items()])
    assert {item.by for item in memory.items()} == {"graph"}
    with pytest.raises(InvalidNamespaceError):
        ours.put((), "x", {"text": "x"})
    for value, why in (({"a": object()}, "no JSON"), ({"a": "x" * 5000}, "4,000"), ({"a": float("nan")}, "no JSON")):
        with pytest.raises(BadInput, match=why):
            ours.put(ann, "bad", value)
    with pytest.raises(BadInput, match="slash"):
        ours.put(("a/b",), "x", {"text": "x"})
    run = Run(store, ours.visit.judge(1.0))
    assert run.reward == 1.0
    assert store.verify() == []


@pytest.mark.frameworks
def test_a_graph_takes_nothing_away_that_it_may_not(store: Keeper) -> None:
    langgraph()
    memory = made(store)
    shelf = langgraph_store(store, "shop")
    found = {item.key: item for item in shelf.search((), limit=50)}
    assert set(found) == {item.id for item in memory.items()}
    hers = next(item for item in found.values() if item.namespace == ("bakery",))
    with pytest.raises(BadInput, match="may not retire"):
        shelf.put(hers.namespace, hers.key, {"kind": "plan", "text": "pay me"})
    with pytest.raises(BadInput, match="may not delete"):
        shelf.delete(hers.namespace, hers.key)
    assert {item.state for item in memory.items()} == {"active"}
    forged = next(item for item in found.values() if "SYSTEM" in item.value.get("text", ""))
    assert forged.value == {"text": FORGED}, "an item is handed on as it is, as a value and not as a prompt"
    tool = memory.add("tool", {"name": "pay", "doc": "pays an invoice"}, by="ann")
    assert shelf.get((), tool.id).value == {"kind": "tool", "name": "pay", "doc": "pays an invoice"}
    with pytest.raises(BadInput, match="may not add"):
        langgraph_store(store, "shop", allow=()).put(("x",), "y", {"text": "z"})


def test_where_langgraph_is_absent_a_sentence_says_so(store: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langgraph.store.base", None)
    with pytest.raises(MissingExtra, match=r"langgraph.store.base is not installed"):
        langgraph_store(store, "shop")
