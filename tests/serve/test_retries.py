"""A request that a client sends again, and what a program says of its requests."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from clew.core.values import Message
from clew.harness import Runner
from clew.models.fakes import Scripted
from clew.serve.gateway.proxy import Gateway
from clew.store import open_store
from tests.models.server import chat, failing, serving
from tests.serve.foreign import Client, asks, before, collected, notes, only, using

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
URL = "/r/one/v1/chat/completions"
SAYS_SO = [
    ({}, {"x-stainless-retry-count": "1"}),
    ({"idempotency-key": "k"}, {"idempotency-key": "k"}),
    ({}, {"x-clew-request": "retry"}),
]


def said(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["message"]["content"])


@pytest.mark.parametrize(("first", "second"), SAYS_SO)
def test_a_retry_after_the_answer_gets_the_same_answer(first: dict[str, str], second: dict[str, str]) -> None:
    with serving() as peer:
        peer.say(chat("one"), chat("two"))
        it = before(peer)

        async def twice(client: Client) -> list[str]:
            return [said(await client.post(URL, json=BODY, headers=h)) for h in (first, second)]

        assert using(it, twice) == ["one", "one"]
        assert len(peer.bodies) == 1
    run = only(it)
    assert len(asks(run)) == 1
    assert [n["retry"] for n in notes(run)] == [0]
    assert Runner.of(it.store, run).replay(run).calls == len(run.calls)
    assert not it.store.verify()


@pytest.mark.parametrize(("first", "second"), SAYS_SO)
@pytest.mark.parametrize("stream", [False, True])
def test_a_retry_before_the_answer_waits_for_it(first: dict[str, str], second: dict[str, str], stream: bool) -> None:
    go = asyncio.Event()
    count = 0

    async def slow(request: Any) -> Message:
        nonlocal count
        count += 1
        await go.wait()
        return Message("assistant", f"answer {count}")

    it = Gateway(open_store(":memory:"), lambda dialect, name, extra: Scripted({"": slow}))

    async def both(client: Client) -> list[str]:
        body = BODY | {"stream": stream}
        one = asyncio.ensure_future(client.post(URL, json=body, headers=first))
        await asyncio.sleep(0.1)
        two = asyncio.ensure_future(client.post(URL, json=body, headers=second))
        await asyncio.sleep(0.1)
        go.set()
        return [(await r).text for r in (one, two)]

    texts = using(it, both)
    replies = [collected("chat", t)[0].message.text if stream else json.loads(t)["choices"][0]["message"]["content"]
               for t in texts]  # fmt: skip
    assert replies == ["answer 1", "answer 1"]
    assert len(asks(only(it))) == 1


def test_an_equal_body_alone_is_another_question() -> None:
    with serving() as peer:
        peer.say(chat("one"), chat("two"))
        it = before(peer)

        async def twice(client: Client) -> list[str]:
            first = {"x-stainless-retry-count": "0", "idempotency-key": "a"}
            second = {"x-stainless-retry-count": "0", "idempotency-key": "b"}
            return [said(await client.post(URL, json=BODY, headers=h)) for h in (first, second)]

        assert using(it, twice) == ["one", "two"]
    assert len(asks(only(it))) == 2


def test_a_retry_of_another_body_is_another_question() -> None:
    with serving() as peer:
        peer.say(chat("one"), chat("two"))
        it = before(peer)

        async def twice(client: Client) -> list[str]:
            again = {"x-stainless-retry-count": "1"}
            return [said(await client.post(URL, json=BODY | more, headers=again)) for more in ({}, {"seed": 1})]

        assert using(it, twice) == ["one", "two"]


def test_a_retry_of_what_failed_is_asked_in_the_same_conversation() -> None:
    with serving() as peer:
        peer.say(failing(500), chat("one"))
        it = before(peer)

        async def twice(client: Client) -> list[int]:
            again: list[dict[str, str]] = [{}, {"x-stainless-retry-count": "1"}]
            return [(await client.post(URL, json=BODY, headers=h)).status_code for h in again]

        assert using(it, twice) == [502, 200]
        run = only(it)
        assert [(c.conversation, bool(c.error)) for c in asks(run)] == [(0, True), (0, False)]
        assert [n["asked"] for n in notes(run)] == [True]
        told = len(peer.bodies)

        async def again(client: Client) -> list[int]:
            it.replay(run.id)
            url = f"/r/{run.id}/v1/chat/completions"
            return [(await client.post(url, json=BODY, headers=h)).status_code
                    for h in ({}, {"x-stainless-retry-count": "1"})]  # fmt: skip

        assert using(it, again) == [502, 200]
        assert len(peer.bodies) == told


def test_a_program_declares_a_sub_agent_and_a_compaction() -> None:
    with serving() as peer:
        it = before(peer)

        async def work(client: Client) -> None:
            told: list[Any] = [{"role": "system", "content": "you"}, {"role": "user", "content": "go"}]
            reply = (await client.post(URL, json={"model": "m", "messages": told})).json()["choices"][0]["message"]
            told += [reply, {"role": "user", "content": "more"}]
            await client.post(URL, json={"model": "m", "messages": told})
            helper = [told[0], {"role": "user", "content": "look it up"}]
            await client.post(URL, json={"model": "m", "messages": helper}, headers={"x-clew-request": "sub-agent"})
            short = [told[0], {"role": "user", "content": "so far: nothing"}, told[-1]]
            await client.post(URL, json={"model": "m", "messages": short}, headers={"x-clew-request": "compaction"})
            bad = await client.post(URL, json=BODY, headers={"x-clew-request": "whatever"})
            assert bad.status_code == 400
            assert "retry, compaction, sub-agent" in bad.json()["error"]["message"]

        using(it, work)
    run = only(it)
    assert [c.conversation for c in asks(run)] == [0, 0, 1, 2]
    assert [(n["note"], n["conversation"]) for n in notes(run)] == [("sub-agent", 1), ("compaction", 2)]
    arrived = [json.loads(c.text) for c in run.calls if c.kind == "act" and '"receive"' in c.action]
    assert [it["of"] for it in arrived if "of" in it][2:] == [-1, 0], "the sub-agent's begins anew"
    assert Runner.of(it.store, run).replay(run).calls == len(run.calls)


def test_the_official_client_tries_again_and_the_record_has_one_question() -> None:
    """The client's own retry, by its own counter, of a request that it gave up too early."""
    openai = pytest.importorskip("openai", reason="did not run: openai is not installed (make extras)")
    count = 0

    async def slow(request: Any) -> Message:
        nonlocal count
        count += 1
        await asyncio.sleep(1.0)
        return Message("assistant", f"answer {count}")

    it = Gateway(open_store(":memory:"), lambda dialect, name, extra: Scripted({"": slow}))

    async def ask(client: Client) -> str:
        with_transport = httpx.AsyncClient(transport=Impatient(it.application(), 0.3))
        official = openai.AsyncOpenAI(
            api_key="clew:one", base_url="http://gateway/v1", max_retries=3, http_client=with_transport
        )
        reply = await official.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        return str(reply.choices[0].message.content)

    assert using(it, ask) == "answer 1"
    assert count == 1
    assert len(asks(only(it))) == 1


class Impatient(httpx.ASGITransport):
    """Gives up the first request after so many seconds, as a client with a short timeout does."""

    def __init__(self, app: Any, seconds: float) -> None:
        super().__init__(app)
        self.seconds: float | None = seconds

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        seconds, self.seconds = self.seconds, None
        work = asyncio.ensure_future(super().handle_async_request(request))
        if seconds is None:
            return await work
        await asyncio.wait({work}, timeout=seconds)
        raise httpx.ReadTimeout("too slow", request=request)
