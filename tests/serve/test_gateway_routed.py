"""A foreign program behind the gateway, answered by a pool: what it sends goes on as it came, and its policy holds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx

import clew
from clew.models.compose.decision import decision_of
from clew.serve.gateway.proxy import Gateway
from clew.store import open_store
from tests.models.pool import folder, servers, worker


def test_a_program_is_answered_by_a_pool(tmp_path: Path) -> None:
    with servers("small", "large") as (small, large):
        model = clew.model(f"route:{folder(tmp_path / 'r', [worker(small), worker(large, region='eu')])}")
        store = open_store(tmp_path / "s.db")
        proxy = Gateway(store, lambda dialect, name, extra: model)

        async def program() -> list[str]:
            transport = httpx.ASGITransport(proxy.application())
            async with proxy.running(), httpx.AsyncClient(transport=transport, base_url="http://proxy") as client:
                said = []
                for policy in ({"regions": ["eu"]}, None):
                    body: Any = {"model": "any", "messages": [{"role": "user", "content": "hi"}], "new_field": 7}
                    got = await client.post("/r/talk/v1/chat/completions", json=body | {"policy": policy})
                    assert got.status_code == 200, got.text
                    said.append(got.json()["choices"][0]["message"]["content"])
                    assert (small.accepted, large.accepted) == (len(said) - 1, 1)
                await client.post("/r/talk/end")
                return said

        assert asyncio.run(program()) == ["I am large", "I am small"]
        (sent,) = large.bodies
        assert (sent["model"], sent["new_field"]) == ("m", 7)
        assert "policy" not in sent
        calls = [call for one in store.find("") for call in store.run(one).calls if call.kind == "ask"]
        decisions = [decision_of(call.inner) for call in calls]
        assert [one and one.worker for one in decisions] == ["large", "small"]
        store.close()
