"""The gateway: foreign programs recorded, replayed and forked; what passes through is not changed or mixed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from clew.core.records import Cursor, Edit, Intervention, Request
from clew.core.values import Completion, Message
from clew.exchange import recall
from clew.harness import Runner
from clew.models.dialects import sse
from clew.models.fakes import Scripted, tool_call
from clew.serve.gateway.proxy import Gateway
from clew.store import Run, open_store

TOOLS = [
    {"type": "function", "function": {"name": "add", "description": "adds", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}}
]  # fmt: skip
Client = httpx.AsyncClient


def answer(request: Request) -> Message:
    """Adds two numbers by the tool, then says the sum; seeds tell samples apart."""
    last = request.path[-1].message
    if last.role == "tool":
        return Message("assistant", f"the sum is {last.text}")
    a, b = last.text.split()[-2:]
    return tool_call("add", id=f"call-{len(request.path)}", a=int(a), b=int(b))


def gateway(model: Any, store: Any = ":memory:", **options: Any) -> Gateway:
    return Gateway(open_store(store), lambda dialect, name, extra: model, **options)


async def program(client: Client, base: str, sums: int = 2, tweak: Callable[[Any], Any] = lambda m: m) -> list[str]:
    """A foreign agent: a tool loop over chat completions that keeps its own history."""
    messages: list[Any] = [{"role": "system", "content": "use the tool"}]
    said = []
    for k in range(sums):
        messages.append({"role": "user", "content": f"add {k} {k + 1}"})
        while True:
            body = {"model": "m", "messages": tweak(messages), "tools": TOOLS, "temperature": 0.5}
            got = await client.post(f"{base}/chat/completions", json=body)
            assert got.status_code == 200, got.text
            reply = got.json()
            message = reply["choices"][0]["message"]
            messages.append(message)
            if not message.get("tool_calls"):
                said.append(message["content"])
                break
            for call in message["tool_calls"]:
                given = json.loads(call["function"]["arguments"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(given["a"] + given["b"])})
    return said


def using(it: Gateway, work: Callable[[Client], Awaitable[Any]]) -> Any:
    async def go() -> Any:
        transport = httpx.ASGITransport(it.application())
        async with it.running(), Client(transport=transport, base_url="http://gateway") as client:
            return await work(client)

    return asyncio.run(go())


def only(it: Gateway) -> Run:
    (run,) = it.store.find("")
    return Run(it.store, run)


def test_a_program_is_recorded_as_a_run_and_its_record_replays() -> None:
    model = Scripted({"": answer})
    it = gateway(model)
    said = using(it, lambda c: program(c, "/r/one/v1"))
    run = only(it)
    asks = [c for c in run.calls if c.kind == "ask"]
    assert said == ["the sum is 1", "the sum is 3"]
    assert len(asks) == 4
    assert run.stop == "returned"
    assert {c.conversation for c in asks} == {0}
    turn = ["user", "assistant", "tool", "assistant"]
    assert [n.message.role for n in run.conversation(0)] == ["system", *turn, *turn]
    assert asks[0].setup.asked.temperature == 0.5
    assert it.store.find("tag:one") == [run.id]
    assert not it.store.verify()
    model.calls = 0
    assert Runner.of(it.store, run).replay(run).calls == len(run.calls)
    assert model.calls == 0


def test_an_export_holds_what_the_program_sent_and_received() -> None:
    """No act of the gateway itself is a message; a history that changes in passing does not end the main list."""
    sent: list[Any] = []

    def plain(messages: list[Any]) -> list[Any]:
        sent[:] = [dict(m) for m in messages]
        return messages

    def changing(messages: list[Any]) -> list[Any]:
        return [messages[0] | {"content": f"use the tool, it is {len(messages)} o'clock"}, *messages[1:]]

    it = gateway(Scripted({"": answer}))
    using(it, lambda c: program(c, "/r/one/v1", tweak=plain))
    found = recall(only(it))
    assert [m.role for m in found.messages] == [*(m["role"] for m in sent), "assistant"]
    assert [m.text for m in found.messages[:-1]] == [m.get("content") or "" for m in sent]
    assert found.messages[-1].text == "the sum is 3"
    assert found.others == ()
    it = gateway(Scripted({"": answer}))
    using(it, lambda c: program(c, "/r/one/v1", tweak=changing))
    found = recall(only(it))
    turn = ["user", "assistant", "tool", "assistant"]
    assert [m.role for m in found.messages] == ["system", *turn, *turn]
    assert "sent" not in [m.text for other in (found.messages, *found.others) for m in other]
    assert len(found.others) == 3


def test_a_restarted_program_is_answered_from_the_record_alone() -> None:
    model = Scripted({"": answer})
    it = gateway(model)
    said = using(it, lambda c: program(c, "/r/one/v1"))
    run, model.calls = only(it), 0
    before = len(it.store.find(""))

    async def again(client: Client) -> list[str]:
        it.replay(run.id)
        return await program(client, f"/r/{run.id}/v1")

    assert using(it, again) == said
    assert model.calls == 0
    assert len(it.store.find("")) == before


def test_a_program_that_left_the_recorded_course_is_told_where() -> None:
    it = gateway(Scripted({"": answer}))
    using(it, lambda c: program(c, "/r/one/v1"))
    run = only(it)

    async def other(client: Client) -> httpx.Response:
        it.replay(run.id)
        body = {"model": "m", "messages": [{"role": "user", "content": "add 5 5"}]}
        return await client.post(f"/r/{run.id}/v1/chat/completions", json=body)

    reply = using(it, other)
    assert reply.status_code == 404, "which no client of this dialect sends again by itself"
    assert reply.headers["x-should-retry"] == "false"
    assert 'messages[0].text: "add 5 5" instead of "use the tool"' in reply.json()["error"]["message"]


def test_a_fork_answers_from_the_record_up_to_its_cursor_and_lives_after_it() -> None:
    model = Scripted({"": answer})
    it = gateway(model)
    using(it, lambda c: program(c, "/r/one/v1"))
    run = only(it)
    third = [c.seq for c in run.calls if c.kind == "ask"][2]
    model.calls = 0

    async def again(client: Client) -> list[list[str]]:
        edit = Intervention((Edit("reply", third, "I would rather not"),))
        plain, changed = it.fork(Cursor(run.id, third))[0], it.fork(Cursor(run.id, third), 1, edit)[0]
        return [await program(client, f"/r/{s.name}/v1") for s in (plain, changed)]

    plain, changed = using(it, again)
    assert plain == ["the sum is 1", "the sum is 3"]
    assert changed == ["the sum is 1", "I would rather not"]
    assert model.calls == 2  # the two asks of the plain fork past its cursor
    forks = [Run(it.store, r) for r in reversed(it.store.find("")) if r != run.id]
    first, last = sorted(f.parent.seq for f in forks if f.parent is not None)
    assert last == third
    assert json.loads(run.calls[first].action)[1] == "receive", "a request is the fork's own, unless its reply is given"
    assert [c.kind for c in run.calls[first + 1 : third]] == ["act"], "the last reply was sent while it waited"
    assert all(f.stop == "returned" for f in forks)
    assert not it.store.verify()


def test_a_history_told_anew_is_a_branch_and_its_drift_is_named() -> None:
    it = gateway(Scripted({"": answer}))

    def compacted(messages: list[Any]) -> list[Any]:
        if len(messages) < 6:
            return messages
        return [messages[0], {"role": "user", "content": "so far: one sum"}, *messages[4:]]

    using(it, lambda c: program(c, "/r/one/v1", tweak=compacted))
    run = only(it)
    notes = [json.loads(c.text) for c in run.calls if c.kind == "note"]
    assert [n["why"] for n in notes] == ["messages 1 to 3 replaced by 1"]
    first, second = run.conversation(0), run.conversation(1)
    assert first[0].key == second[0].key  # the shared beginning is shared in the store
    assert [n.message.text for n in second][:3] == ["use the tool", "so far: one sum", "the sum is 1"]
    assert Runner.of(it.store, run).replay(run).calls == len(run.calls)


def test_requests_under_way_at_once_are_branches_of_one_run() -> None:
    async def slow(request: Request) -> Message:
        await asyncio.sleep(0.02)
        return Message("assistant", f"about {request.path[-1].message.text}")

    it = gateway(Scripted({"": slow}))

    async def both(client: Client) -> list[str]:
        async def one(word: str) -> str:
            messages = [{"role": "system", "content": "s"}, {"role": "user", "content": word}]
            reply = await client.post("/r/one/v1/chat/completions", json={"model": "m", "messages": messages})
            return str(reply.json()["choices"][0]["message"]["content"])

        return list(await asyncio.gather(*map(one, "abcdef")))

    assert using(it, both) == [f"about {w}" for w in "abcdef"]
    run = only(it)
    assert len({c.conversation for c in run.calls if c.kind == "ask"}) == 6
    assert Runner.of(it.store, run).replay(run).calls == len(run.calls)


@pytest.mark.parametrize("unnamed", ["guess", "apart"])
def test_requests_without_a_name(unnamed: Any) -> None:
    it = gateway(Scripted({"": answer}), unnamed=unnamed)
    using(it, lambda c: program(c, "/v1"))
    runs = it.store.find("tag:guessed")
    assert len(runs) == (1 if unnamed == "guess" else 4)


@pytest.mark.parametrize("named", [True, False])
def test_64_equal_clients_are_64_runs(named: bool) -> None:
    it = gateway(Scripted({"": answer}))

    async def all_of_them(client: Client) -> list[list[str]]:
        return await asyncio.gather(*(program(client, f"/r/c{i}/v1" if named else "/v1") for i in range(64)))

    said = using(it, all_of_them)
    assert said == [["the sum is 1", "the sum is 3"]] * 64
    runs = [Run(it.store, r) for r in it.store.find("")]
    assert len(runs) == 64
    assert {tuple(n.message.text for n in r.conversation(0)) for r in runs} == {
        tuple(n.message.text for n in runs[0].conversation(0))
    }
    assert all(sum(c.kind == "ask" for c in r.calls) == 4 for r in runs)
    assert not it.store.verify()


class Typist(Scripted):
    """Streams its answer word by word."""

    async def stream(self, request: Request) -> Any:
        self.calls += 1
        text = "one two three four"
        for word in text.split():
            await asyncio.sleep(0)
            yield word + " "
        yield Completion(Message("assistant", text + " "))


BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    "responses": ("/responses", {"input": "hi"}),
    "messages": ("/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}),
}


@pytest.mark.parametrize("dialect", list(BODIES))
def test_streams_arrive_in_pieces_and_whole(dialect: str) -> None:
    from clew.serve.gateway.wire import DIALECTS

    it = gateway(Typist([]))
    path, body = BODIES[dialect]

    async def read(client: Client) -> Any:
        stream, events, pieces = DIALECTS[dialect].Stream(), sse.Events(), []
        async with client.stream("POST", f"/r/one/v1{path}", json=body | {"model": "m", "stream": True}) as reply:
            async for line in reply.aiter_lines():
                event = events.feed(line)
                if event is not None and (text := stream.feed(event)):
                    pieces.append(text)
        return stream.result(), pieces

    completion, pieces = using(it, read)
    assert pieces == ["one ", "two ", "three ", "four "]
    assert completion.message.text == "one two three four "
    assert completion.finish == "stop"
    assert [c.finish for c in only(it).calls if c.kind == "ask"] == ["stop"]


def test_responses_go_on_from_an_earlier_answer_by_its_id() -> None:
    it = gateway(Scripted({"": lambda r: f"{len(r.path)} messages"}))

    async def two(client: Client) -> str:
        first = (await client.post("/r/one/v1/responses", json={"model": "m", "input": "a"})).json()
        body = {"model": "m", "input": "b", "previous_response_id": first["id"]}
        second = (await client.post("/r/one/v1/responses", json=body)).json()
        return str(second["output"][0]["content"][0]["text"])

    assert using(it, two) == "3 messages"
    assert {c.conversation for c in only(it).calls if c.kind == "ask"} == {0}


def test_errors_of_the_model_reach_the_program_and_the_record() -> None:
    from clew.core.errors import ContextOverflow, Unreachable

    replies = [ContextOverflow("too long"), Unreachable("nobody there"), "fine"]
    it = gateway(Scripted(replies, by="call"))

    async def three(client: Client) -> list[int]:
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        return [(await client.post("/r/one/v1/chat/completions", json=body)).status_code for _ in range(3)]

    assert using(it, three) == [400, 502, 200]
    run = only(it)
    assert [bool(c.error) for c in run.calls if c.kind == "ask"] == [True, True, False]
    assert run.stop == "returned"
    assert Runner.of(it.store, run).replay(run).calls == len(run.calls)


def test_a_client_that_hangs_up_leaves_a_reply_that_says_cut() -> None:
    class Slow(Typist):
        async def stream(self, request: Request) -> Any:
            for word in ["one ", *["more "] * 400]:
                await asyncio.sleep(0.005)
                yield word
            yield Completion(Message("assistant", "the end"))

    it = gateway(Slow([]))

    async def leave(client: Client) -> None:
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
                 "path": "/r/one/v1/chat/completions", "raw_path": b"", "query_string": b"", "headers": [],
                 "client": ("127.0.0.1", 1), "server": ("gateway", 80)}  # fmt: skip
        sent: list[Any] = []
        heard = asyncio.Event()

        async def receive() -> Any:
            if not sent:
                sent.append(1)
                return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}
            await heard.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body" and b"one" in message.get("body", b""):
                heard.set()

        await asyncio.wait_for(it.application()(scope, receive, send), 10)
        for _ in range(200):
            if [c for c in only(it).calls if c.kind == "act" and c.text == "nobody listens"]:
                return
            await asyncio.sleep(0.01)

    using(it, leave)
    (ask,) = [c for c in only(it).calls if c.kind == "ask"]
    assert ask.finish == "cut"
    assert it.store.node(ask.node_out).message.text.startswith("one ")
    assert [c.text for c in only(it).calls if c.kind == "act"][-1:] != ["sent"]
    assert not it.store.verify()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{not json", "the body is not JSON"),
        (b"[]", "the body is a list"),
        (b'{"model": "m"}', "needs a list of messages"),
        (b'{"model": "m", "messages": []}', "no messages"),
        (b'{"messages": [{"role": "user", "content": "a"}]}', "names no model"),
        (b'{"model": "m", "messages": [{"role": 5}]}', "needs a role"),
        (b'{"model": "m", "messages": [{"role": "user", "content": "a"}], "max_tokens": "many"}', "dialect"),
        (b'{"model": "m", "messages": [{"role": "user", "content": "a"}], "temperature": {}}', "wrong kind"),
        (b'{"model": "m", "n": 3, "messages": [{"role": "user", "content": "a"}]}', "n > 1"),
        (b'{"model": "m", "messages": "' + b"x" * 10_000_000 + b'"}', "list of messages"),
        (b"[" * 100_000, "not JSON"),
        (b" " * (65 << 20), "a body of more than"),
    ],
)
def test_bad_requests_leave_the_store_clean(body: bytes, told: str) -> None:
    it = gateway(Scripted({"": answer}))

    async def both(client: Client) -> httpx.Response:
        bad = await client.post("/r/one/v1/chat/completions", content=body)
        await program(client, "/r/one/v1")
        return bad

    reply = using(it, both)
    assert reply.status_code == (413 if len(body) > 64 << 20 else 400)
    assert told in reply.json()["error"]["message"]
    assert sum(c.kind == "ask" for c in only(it).calls) == 4
    assert not it.store.verify()


def test_ten_megabytes_of_text_pass_unchanged() -> None:
    it = gateway(Scripted({"": lambda r: str(len(r.path[0].message.text))}))
    text = "ab\u202e<script>" * 900_000

    async def large(client: Client) -> str:
        body = {"model": "m", "messages": [{"role": "user", "content": text}]}
        return str((await client.post("/r/one/v1/chat/completions", json=body)).json()["choices"][0]["message"])

    assert str(len(text)) in using(it, large)
    assert only(it).conversation(0)[0].message.text == text


def test_who_may_ask() -> None:
    it = gateway(Scripted({"": answer}), token="secret")
    body = {"model": "m", "messages": [{"role": "user", "content": "add 1 2"}]}

    async def ask(client: Client) -> list[int]:
        tries = ({}, {"authorization": "Bearer secret:mine"}, {"x-api-key": "wrong"},
                 {"authorization": "Bearer secret", "origin": "http://elsewhere"})  # fmt: skip
        return [(await client.post("/v1/chat/completions", json=body, headers=h)).status_code for h in tries]

    assert using(it, ask) == [401, 200, 401, 403]
    assert it.store.find("tag:mine") == [only(it).id]


def test_a_run_ends_with_its_scores() -> None:
    it = gateway(Scripted({"": answer}))

    async def ended(client: Client) -> Any:
        await program(client, "/r/one/v1")
        wrong = await client.post("/r/one/end", content=b'{"reward": "good"}')
        right = await client.post("/r/one/end", json={"reward": 0.5})
        absent = await client.post("/r/two/end")
        return wrong.status_code, right.json()["stop"], absent.status_code

    assert using(it, ended) == (400, "returned", 404)
    assert only(it).reward == 0.5


def test_a_gateway_that_died_goes_on_with_its_unfinished_runs(tmp_path: Any) -> None:
    model = Scripted({"": answer})
    path = tmp_path / "s.db"
    first = gateway(model, path)
    messages = [{"role": "user", "content": "add 1 2"}]

    async def start(client: Client) -> Any:
        body = {"model": "m", "messages": messages, "tools": TOOLS}
        reply = await client.post("/r/one/v1/chat/completions", json=body)
        for task in first.work.values():  # as if killed: the run does not end
            task.cancel()
        return reply.json()["choices"][0]["message"]

    called = using(first, start)
    assert only(first).stop is None
    first.store.close()
    second = gateway(model, path)
    history = [*messages, called, {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": "3"}]

    async def go_on(client: Client) -> str:
        body = {"model": "m", "messages": history, "tools": TOOLS}
        return str(
            (await client.post("/r/one/v1/chat/completions", json=body)).json()["choices"][0]["message"]["content"]
        )

    assert using(second, go_on) == "the sum is 3"
    run = only(second)
    assert run.stop == "returned"
    assert len(run.conversation(0)) == 4
    assert not second.store.verify()


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
CACHED = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
TOOL = {"name": "add", "description": "adds", "input_schema": {"type": "object", "properties": {}}}
SENT = [
    ("/chat/completions", {
        "model": "m", "response_format": {"type": "json_object"}, "tool_choice": "auto", "seed": 5, "user": "me",
        "messages": [{"role": "user", "name": "ann", "content": [{"type": "text", "text": "what is this"}, IMAGE]}],
        "tools": TOOLS,
    }),
    ("/messages", {
        "model": "m", "max_tokens": 7, "metadata": {"user_id": "me"}, "tool_choice": {"type": "any"},
        "messages": [{"role": "user", "content": [CACHED]}], "tools": [TOOL],
    }),
    ("/responses", {
        "model": "m", "input": [{"role": "user", "content": "hi"}], "reasoning": {"effort": "low"},
        "max_output_tokens": 9,
    }),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body"), SENT)
def test_what_a_program_sends_reaches_the_endpoint_unchanged(path: str, body: dict[str, Any]) -> None:
    from clew.models.remote import Remote
    from tests.models.server import serving

    with serving() as peer:
        it = Gateway(
            open_store(":memory:"),
            lambda dialect, name, extra: Remote(peer.url, name, dialect=dialect, extra=extra, attempts=1),
        )
        using(it, lambda c: c.post(f"/r/one/v1{path}", json=body))
        (arrived,) = peer.bodies
    ours = {"logprobs", "return_token_ids", "seed"} - body.keys()
    assert {k: v for k, v in arrived.items() if k not in ours} == body


def test_a_run_that_nobody_ends_ends_when_idle_and_its_name_goes_on() -> None:
    it = gateway(Scripted({"": answer}), idle=0.2)
    model = Scripted({"": answer})
    whole = gateway(model)

    async def twice(client: Client) -> tuple[str, list[str]]:
        """The same program in two halves, and between them nothing for longer than the limit."""
        messages: list[Any] = []
        for half in range(2):
            for text in ("add 1 2", "add 3 4"):
                messages.append({"role": "user", "content": text})
                body = {"model": "m", "messages": messages, "tools": TOOLS}
                got = await client.post("/r/one/v1/chat/completions", json=body)
                assert got.status_code == 200, got.text
                messages.append(got.json()["choices"][0]["message"])
                call = messages[-1]["tool_calls"][0]["id"]
                messages.append({"role": "tool", "tool_call_id": call, "content": "7"})
            if it.idle and not half:
                first = next(iter(it.work))
                await asyncio.wait([it.work[first]], timeout=20)
                await asyncio.sleep(0)
                assert not it.sessions
                assert not it.work
                assert it.store.lease(first, "somebody else", 1) is None
                it.store.release(first, "somebody else")
        return first if it.idle else "", [m["content"] for m in messages]

    first, _ = using(it, twice)
    runs = [Run(it.store, r) for r in reversed(it.store.find("tag:one"))]
    assert [run.stop for run in runs] == ["time_limit", "returned"]
    assert runs[0].id == first
    assert runs[1].parent is not None
    assert runs[1].parent.run == first
    it.idle = None
    told = [[(n.message.role, n.message.text) for n in run.conversation(0)] for run in runs]
    using(whole, lambda c: twice(c))
    assert told[1] == [(n.message.role, n.message.text) for n in only(whole).conversation(0)]
    assert told[0] == told[1][: len(told[0])]
    assert all(c.kind != "note" for c in runs[1].calls), "no drift"
    assert not it.store.verify()
    for run in runs:
        assert Runner.of(it.store, run).replay(run).calls == len(run.calls)


def test_forks_and_replays_wait_for_their_program_whatever_the_idle_limit() -> None:
    it = gateway(Scripted({"": answer}))
    said = using(it, lambda c: program(c, "/r/one/v1"))
    run = only(it)
    third, it.idle = [c.seq for c in run.calls if c.kind == "ask"][2], 0.1

    async def later(client: Client) -> list[list[str]]:
        waiting = [it.fork(Cursor(run.id, third))[0], it.replay(run.id)]
        await asyncio.sleep(0.5)
        assert not any(session.ended for session in waiting)
        done = [await program(client, f"/r/{session.name}/v1") for session in waiting]
        fork = waiting[0]
        await asyncio.wait([it.work[fork.run]], timeout=20)
        body = {"model": "m", "messages": [{"role": "user", "content": "add 8 9"}], "tools": TOOLS}
        again = await client.post(f"/r/{fork.name}/v1/chat/completions", json=body)
        assert again.status_code == 200, again.text
        return done

    assert using(it, later) == [said, said]
    fork, second = (Run(it.store, r) for r in reversed(it.store.find("")) if r != run.id)
    assert (fork.stop, second.stop) == ("time_limit", "returned")
    assert second.parent is not None
    assert second.parent.run == fork.id, "the id of a fork names what goes on with it"
    assert not it.store.verify()
