"""How a program's run is shown: what was sent and received, and what was tried upstream."""

from __future__ import annotations

from typing import Any

from clew.core.records import Cursor
from clew.serve.gateway.programs import endpoints
from clew.serve.gateway.proxy import Gateway
from clew.store import open_store
from clew.view.terminal import tree
from tests.models.server import chat, failing, serving
from tests.serve.foreign import Client, asks, before, only, using

URL = "/r/one/v1/chat/completions"
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


async def program(client: Client) -> None:
    told: list[Any] = [{"role": "system", "content": "use the tool"}, {"role": "user", "content": "add one"}]
    reply = (await client.post(URL, json={"model": "m", "messages": told})).json()["choices"][0]["message"]
    told += [reply, {"role": "tool", "tool_call_id": "c1", "content": "it is 2"}]
    await client.post(URL, json={"model": "m", "messages": told})


def test_a_programs_run_reads_as_its_conversation() -> None:
    with serving() as peer:
        peer.say(chat(None, tool_calls=[CALL]), chat("two"))  # type: ignore[arg-type]
        it = before(peer)
        using(it, program)
        run = only(it)
        using(it, lambda c: fork(it, run.id, asks(run)[1].seq, c))
    lines = [line.lstrip("│├└╰ ") for line in str(tree(run)).splitlines()]
    said = [line for line in lines if "tags:" not in line][2:]
    assert said[0] == "system: use the tool"
    assert said[1] == "user: add one"
    assert 'add({"a": 1})' in said[2]
    assert "fork" in said[3], "its request is its own: the tool may say something else there"
    assert said[4] == "tool: it is 2"
    assert "“two”" in said[5]
    text = str(tree(run)) + str(tree(run, full=True))
    assert "receive(" not in text
    assert "send(" not in text


async def fork(it: Gateway, run: str, seq: int, client: Client) -> None:
    it.fork(Cursor(run, seq))


def test_what_was_tried_upstream_is_recorded_and_shown() -> None:
    with serving() as peer:
        peer.say(failing(500, "on fire"), chat("at last"), failing(503, "no room"))
        twice = endpoints(peer.url, lambda dialect: None, {"attempts": 2, "backoff": 0.01})
        it = Gateway(open_store(":memory:"), twice)

        async def two(client: Client) -> None:
            for text in ("a", "b"):
                await client.post(URL, json={"model": "m", "messages": [{"role": "user", "content": text}]})

        using(it, two)
    run = only(it)
    assert [[(a.status, a.error) for a in c.attempts] for c in asks(run)] == [
        [(500, "on fire"), (200, "")], [(503, "no room"), (503, "no room")],
    ]  # fmt: skip
    shown = str(tree(run))
    assert "2 attempts upstream; failed: 500 on fire" in shown
    assert "2 attempts upstream; failed: 503 no room; 503 no room" in shown
