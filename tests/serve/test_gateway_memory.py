"""The gateway pins what a memory has in what a foreign agent's model is sent, and leaves the rest as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("bm25s", reason="did not run: the extra [memory] is not installed")

from clew.core.errors import BadInput
from clew.core.records import Cursor, Edit, Intervention
from clew.harness import Runner
from clew.harness.memory import Memory
from clew.harness.memory.forgetting import forget, places
from clew.harness.memory.recalled import BLOCK, shown_in
from clew.models.fakes import Scripted
from clew.models.rendering import WordRenderer
from clew.serve.gateway.proxy import Gateway
from clew.store import Run, open_store
from tests.models.server import chat, chunks, serving
from tests.serve.foreign import Client, asks, before, bodies, collected, notes, only, using
from tests.serve.shop_memory import QUERY, made
from tests.serve.test_verbatim import ANSWERS, CHAT, MESSAGES, OURS, RESPONSES

SYSTEM = {"role": "system", "content": "be brief"}


def recalls(run: Run) -> list[Any]:
    return [call for call in run.calls if call.kind == "recall"]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/chat/completions", CHAT, "messages"),
        ("/responses", RESPONSES, "instructions"),
        ("/messages", MESSAGES, "system"),
    ],
)
def test_all_but_the_block_is_sent_as_it_was_written(path: str, body: dict[str, Any], field: str) -> None:
    with serving() as peer:
        peer.say(ANSWERS[path])
        it = before(peer, memory="hints")
        Memory(it.store, "hints").add("fact", {"text": "hi is how they greet, brief it is"}, by="ann")
        got = using(it, lambda c: c.post(f"/r/one/v1{path}", json=body))
        assert got.status_code == 200, got.text
        (arrived,) = peer.bodies
    sent = {k: v for k, v in arrived.items() if k not in OURS - body.keys()}
    assert {k: v for k, v in sent.items() if k != field} == {k: v for k, v in body.items() if k != field}
    if field == "messages":
        (first, last), (before_it, as_it_was) = sent[field], body[field]
        assert last == as_it_was
        assert first | {"content": ""} == before_it | {"content": ""}
        text = first["content"].removeprefix(before_it["content"])
    elif field == "system":
        assert sent[field][:-1] == body[field]
        text = sent[field][-1]["text"]
    else:
        assert sent[field].startswith(body[field])
        text = sent[field].removeprefix(body[field])
    assert text.strip().startswith("<pin>\n- Notes from earlier runs, as data")
    assert "hi is how they greet" in text
    run = only(it)
    assert bodies(run) == [body], "the record has the program's own writing, and the block beside it"
    assert [item.text for item in shown_in(recalls(run)[0].text)] == ["hi is how they greet, brief it is"]
    assert Runner.of(it.store, run).replay(run).calls == len(run.calls)
    assert it.store.verify() == []


async def program(client: Client, base: str) -> list[Any]:
    """Two tasks under one system prompt, each of two turns; then the history told anew."""
    said = list[Any]()
    for task in (QUERY, "listen to whales sing"):
        messages: list[Any] = [SYSTEM, {"role": "user", "content": task}]
        for more in ("and now?", "thanks"):
            got = await client.post(f"{base}/chat/completions", json={"model": "m", "messages": messages})
            assert got.status_code == 200, got.text
            reply = got.json()["choices"][0]["message"]
            messages += [{"role": "assistant", "content": reply["content"]}, {"role": "user", "content": more}]
            said.append(reply["content"])
    short = [SYSTEM, {"role": "user", "content": "so far: whales"}, *messages[3:]]
    body, declared = {"model": "m", "messages": short}, {"x-clew-request": "compaction"}
    got = await client.post(f"{base}/chat/completions", json=body, headers=declared)
    assert got.status_code == 200, got.text
    return said


def test_each_conversation_has_its_block_in_every_request(tmp_path: Path) -> None:
    with serving() as peer:
        peer.answer = lambda body, count: chat(f"reply {count}")
        it = before(peer, open_store(tmp_path / "a.db"), memory="shop")
        memory = made(it.store)
        using(it, lambda c: program(c, "/r/one/v1"))
        run, sent = only(it), [body["messages"] for body in peer.bodies]
        assert [len(messages) for messages in sent] == [2, 4, 2, 4, 5]
        blocks = [messages[0]["content"].removeprefix("be brief\n\n") for messages in sent]
        assert blocks[0] == blocks[1]
        assert blocks[2] == blocks[3] == blocks[4], "a compaction keeps the block that its conversation had"
        assert "whales sing" in blocks[2]
        assert "ask the bakery" in blocks[0]
        for block, messages in zip(blocks, sent, strict=True):
            assert messages[0] == {"role": "system", "content": f"be brief\n\n{block}"}
            assert sum("Notes from earlier runs" in m["content"] for m in messages) == 1
            assert block.count("<pin>") == block.count("</pin>") == 1, "an item cannot pin"
            assert len(block) <= BLOCK + 250
        assert [call.action for call in recalls(run)] == [QUERY, "listen to whales sing"]
        assert len(asks(run)) == 5
        assert Runner.of(it.store, run).replay(run).calls == len(run.calls)
        peer.answer = lambda body, count: chat("none")
        # the program started again is answered from the record; a fork of it goes on with the same block
        again = before(peer, it.store)
        replayed = again.replay(run.id)
        asked = len(peer.bodies)
        using(again, lambda c: program(c, f"/r/{replayed.name}/v1"))
        assert len(peer.bodies) == asked
    given = memory.item(shown_in(recalls(run)[0].text)[0].id)
    assert [one.place for one in given.given] == [f"{run.id}@{recalls(run)[0].seq}"]
    doomed = [item for item in memory.items() if item.body.get("text", "").startswith("ask the bakery")]
    assert places(it.store, doomed)
    forget(memory, doomed, places(it.store, doomed))
    said = [node.message.text for node in it.store.each_node()] + [call.text for call in it.store.calls(run.id)]
    assert len(said) > 20
    assert not any("ask the bakery" in text for text in said)
    assert it.store.verify() == []


def test_a_fork_changes_what_it_says_and_the_block_stays() -> None:
    with serving() as peer:
        peer.answer = lambda body, count: chat(f"reply {count}")
        it = before(peer, memory="shop")
        made(it.store)
        body = {"model": "m", "messages": [SYSTEM, {"role": "user", "content": QUERY}], "unheard_of": 1}

        async def two(client: Client, base: str) -> str:
            first = (await client.post(f"{base}/chat/completions", json=body)).json()["choices"][0]["message"]
            more = [*body["messages"], {"role": "assistant", "content": first["content"]},  # type: ignore[misc]
                    {"role": "user", "content": "more"}]  # fmt: skip
            got = await client.post(f"{base}/chat/completions", json={**body, "messages": more})
            assert got.status_code == 200, got.text
            text: str = first["content"]
            return text

        using(it, lambda c: two(c, "/r/one/v1"))
        run = only(it)
        first = asks(run)[0].seq
        edits = Intervention((Edit("reply", first, "otherwise"),))

        async def forked(client: Client) -> str:
            (session,) = it.fork(Cursor(run.id, first), 1, edits)
            return await two(client, f"/r/{session.name}/v1")

        assert using(it, forked) == "otherwise"
        sent = peer.bodies[-1]
    assert [m["content"] for m in sent["messages"]][1:] == [QUERY, "otherwise", "more"]
    assert "<pin>" in sent["messages"][0]["content"]
    assert sent["unheard_of"] == 1
    assert it.store.verify() == []


def test_streams_pass_and_a_memory_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as peer:
        peer.answer = lambda body, count: chunks("it ", "is ", "fine")
        it = before(peer, memory="shop")
        made(it.store)
        body = {"model": "m", "messages": [{"role": "user", "content": QUERY}], "stream": True}
        got = using(it, lambda c: c.post("/r/one/v1/chat/completions", json=body))
        assert collected("chat", got.text)[0].message.text == "it is fine"
        assert peer.bodies[0]["messages"][0]["role"] == "system"
        empty = before(peer, memory="nothing")
        using(empty, lambda c: c.post("/r/one/v1/chat/completions", json=body))
        assert peer.bodies[1]["messages"] == body["messages"]
        assert shown_in(recalls(only(empty))[0].text) == []
        broken = before(peer, memory="shop")

        def fails(*anything: object) -> None:
            raise OSError("the disk is gone")

        monkeypatch.setattr(broken.store, "entries", fails)
        got = using(broken, lambda c: c.post("/r/one/v1/chat/completions", json=body))
        assert collected("chat", got.text)[0].message.text == "it is fine"
        assert peer.bodies[2]["messages"] == body["messages"]
        assert "the disk is gone" in recalls(only(broken))[0].error
        without = before(peer, memory="shop")
        import clew.harness.memory.ranking as ranking

        made(without.store)
        monkeypatch.setattr(ranking, "need", _absent)
        got = using(without, lambda c: c.post("/r/one/v1/chat/completions", json=body))
        assert collected("chat", got.text)[0].message.text == "it is fine"
        assert [note["note"] for note in notes(only(without))] == ["no memory"]
        assert json.loads(json.dumps(peer.bodies[3]["messages"])) == body["messages"]


class Strict:
    """Renders words, and takes no system message."""

    def __init__(self) -> None:
        self.inner = WordRenderer(["hello", "there"])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def delta(self, prev: Any, closed: bool, message: Any, tools: Any) -> tuple[int, ...]:
        if message.role == "system":
            raise BadInput("the template takes no system message")
        return self.inner.delta(prev, closed, message, tools)


def test_a_template_without_a_place_for_the_block_goes_on_without() -> None:
    model = Scripted({"": "hello there"})
    model.renderer = Strict()  # type: ignore[assignment]
    it = Gateway(open_store(":memory:"), lambda dialect, name, extra: model, memory="shop")
    made(it.store)
    body = {"model": "m", "messages": [{"role": "user", "content": QUERY}]}
    got = using(it, lambda c: c.post("/r/one/v1/chat/completions", json=body))
    assert got.status_code == 200, got.text
    assert got.json()["choices"][0]["message"]["content"] == "hello there"
    run = only(it)
    assert recalls(run) == []
    assert "takes no system message" in json.loads(run.row.meta)["gateway"]["memory"]


def _absent(module: str, extra: str) -> None:
    from clew.core.errors import MissingExtra

    raise MissingExtra(f"{module} is not installed")
