"""Foreign programs for tests of the gateway: what they send, and gateways in front of a loopback endpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from clew.models.dialects.sse import Events
from clew.serve.gateway import verbatim
from clew.serve.gateway.programs import endpoints
from clew.serve.gateway.proxy import Gateway
from clew.serve.gateway.verbatim import DIALECTS
from clew.serve.history import Arrival, History
from clew.store import Run, open_store
from tests.models.server import Peer

Client = httpx.AsyncClient
Work = Callable[[Client], Awaitable[Any]]


def before(peer: Peer, store: Any = ":memory:", **options: Any) -> Gateway:
    """A gateway whose upstream is ``peer``; each request is tried once."""
    found = endpoints(peer.url, lambda dialect: "upstream-key", {"attempts": 1})
    return Gateway(open_store(store) if isinstance(store, str) else store, found, **options)


def using(it: Gateway, work: Work) -> Any:
    """Run ``work(client)`` against a gateway in this process."""

    async def go() -> Any:
        transport = httpx.ASGITransport(it.application())
        async with it.running(), Client(transport=transport, base_url="http://gateway") as client:
            return await work(client)

    return asyncio.run(go())


def only(it: Gateway) -> Run:
    (run,) = it.store.find("")
    return Run(it.store, run)


def asks(run: Run) -> list[Any]:
    return [c for c in run.calls if c.kind == "ask"]


def notes(run: Run) -> list[Any]:
    return [json.loads(c.text) | {"note": c.action} for c in run.calls if c.kind == "note"]


def sse(*events: Any, named: bool = False) -> bytes:
    """Server-sent events, with their names as OpenAI's responses and Anthropic have them."""
    lines = [(f"event: {e['type']}\n" if named else "") + f"data: {json.dumps(e)}\n\n" for e in events]
    return "".join(lines).encode()


def collected(dialect: str, text: str) -> tuple[Any, list[Any]]:
    """A stream's answer as its client puts it together, and its events."""
    stream, events, found = DIALECTS[dialect].Stream(), Events(), []
    for line in text.splitlines():
        if (event := events.feed(line)) is not None:
            found.append(event)
            stream.feed(event)
    return stream.result(), found


def bodies(run: Run) -> list[Any]:
    """The bodies of a run's requests, from its record alone."""
    history, out = History(), []
    for call in sorted(run.calls, key=lambda c: (c.done, c.seq)):
        if call.kind == "ask":
            reply = run.store.node(call.node_out).message if call.node_out else None
            history.answered(call.conversation, reply)
        elif call.kind == "act" and json.loads(call.action)[1] == "receive":
            it = Arrival.read(call.text)
            if it is not None:
                path = history.apply(it)
                out.append(verbatim.recorded(history.whole(it), path)[1])
    return out
