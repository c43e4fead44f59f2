"""Errors behind the gateway: the program is told, live as replayed, and its run goes on."""

from __future__ import annotations

import re
from typing import Any

import pytest

from clew.core import errors
from clew.core.records import Request
from clew.core.values import Message, Sampling
from clew.harness import Runner
from clew.models.fakes import Markov, Scripted
from clew.serve.gateway.programs import endpoints
from clew.serve.gateway.proxy import Gateway
from clew.store import open_store
from tests.models.server import chat, chunks, serving
from tests.serve.foreign import Client, asks, only, using

URL = "/r/one/v1/chat/completions"


def gateway(model: Any) -> Gateway:
    return Gateway(open_store(":memory:"), lambda dialect, name, extra: model)


def body(*texts: str, **more: Any) -> Any:
    return {"model": "m", "messages": [{"role": "user", "content": t} for t in texts], "max_tokens": 4, **more}


class Picky(Markov):
    """Refuses what it is asked at temperature 0.5, and a message that its template has no place for."""

    def __init__(self) -> None:
        super().__init__(tokens=True)
        renderer = self.renderer
        assert renderer is not None
        inner = renderer.delta

        def delta(prev: Any, closed: bool, message: Message, tools: Any) -> Any:
            if message.text == "no place":
                raise errors.BadInput("the template has no place for it", remedy="Leave it out.")
            return inner(prev, closed, message, tools)

        renderer.delta = delta  # type: ignore[method-assign]

    async def complete(self, request: Request) -> Any:
        if request.sampling.temperature == 0.5:
            raise errors.BadInput("this temperature is not taken", remedy="Take another.")
        return await super().complete(request)


def test_a_model_with_a_renderer_refuses_and_its_run_goes_on() -> None:
    it = gateway(Picky())

    async def work(client: Client) -> list[Any]:
        first = await client.post(URL, json=body("hi"))
        reply = first.json()["choices"][0]["message"]
        told = [{"role": "user", "content": "hi"}, reply]
        out = [first.status_code]
        for more in ("no place", "more", "and no place", "no place"):
            messages = [*told, {"role": "user", "content": more}]
            out.append((await client.post(URL, json={"model": "m", "messages": messages, "max_tokens": 4})).status_code)
        out.append((await client.post(URL, json=body("no place"))).status_code)
        out.append((await client.post(URL, json=body("hot", temperature=0.5))).status_code)
        out.append((await client.post(URL, json=body("hot", temperature=0.7))).status_code)
        return out

    statuses = [200, 400, 200, 200, 400, 400, 400, 200]
    assert using(it, work) == statuses
    run = only(it)
    assert run.stop == "returned"
    assert Runner.of(it.store, run).replay(run).calls == len(run.calls)
    assert not it.store.verify()

    async def again(client: Client) -> Any:
        it.replay(run.id)
        url = f"/r/{run.id}/v1/chat/completions"
        one = await client.post(url, json=body("hi"))
        told = [{"role": "user", "content": "hi"}, one.json()["choices"][0]["message"]]
        unsaid = {"model": "m", "messages": [*told, {"role": "user", "content": "no place"}], "max_tokens": 4}
        hot = body("hot", temperature=0.5)
        return [(await client.post(url, json=asked)).status_code for asked in (unsaid, body("no place"), hot)]

    assert using(it, again) == [400, 400, 400]


KINDS = ["Busy", "ContextOverflow", "Refused", "Unreachable", "ModelError", "BadInput", "ClewError"]


@pytest.mark.parametrize("name", KINDS)
def test_a_failure_has_the_status_it_had_when_its_run_is_replayed(name: str) -> None:
    it = gateway(Scripted([getattr(errors, name)("it failed"), "fine"], by="call"))
    live = using(it, lambda c: c.post(URL, json=body("hi")))
    run = only(it)
    assert run.stop == "returned"

    async def again(client: Client) -> Any:
        it.replay(run.id)
        return await client.post(f"/r/{run.id}/v1/chat/completions", json=body("hi"))

    replayed = using(it, again)
    assert (replayed.status_code, replayed.json()) == (live.status_code, live.json())
    assert asks(run)[0].setup.asked == Sampling(max_tokens=4)


@pytest.mark.parametrize("stream", [False, True])
def test_the_upstreams_key_reaches_neither_the_program_nor_the_record(stream: bool) -> None:
    key = "upstream-key-4711"
    with serving() as peer:
        said = f"you sent {key}, Bearer {key}"
        peer.answer = lambda body, count: chunks(*said) if body.get("stream") else chat(said)
        found = endpoints(peer.url, lambda dialect: key, {"attempts": 1})
        it = Gateway(open_store(":memory:"), found)
        body = {"model": "m", "messages": [{"role": "user", "content": "what did I send?"}], "stream": stream}
        got = using(it, lambda c: c.post(URL, json=body))
        assert peer.headers[0]["authorization"] == f"Bearer {key}"
    text = "".join(re.findall(r'"content": ?"([^"]*)"', got.text))
    assert text == "you sent ***, Bearer ***"
    run = only(it)
    assert key not in repr([run.calls, [*it.store.each_node()], run.row])
    assert it.store.node(asks(run)[0].node_out).message.text == text


@pytest.mark.parametrize("score", ["1e400", "NaN", "1" + "0" * 400, "[" * 99_999])
def test_scores_that_are_no_numbers_are_refused(score: str) -> None:
    it = gateway(Markov(tokens=True))

    async def work(client: Client) -> Any:
        await client.post(URL, json=body("hi"))
        return await client.post("/r/one/end", content=f'{{"reward": {score}}}')

    got = using(it, work)
    assert got.status_code == 400
    assert "scores are a JSON object of numbers" in got.json()["error"]["message"]
