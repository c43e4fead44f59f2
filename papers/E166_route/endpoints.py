"""The simulated pool as endpoints over loopback, one of which may be down in a way that real ones are.

``tier_service`` asks them through the router that serves. A worker answers "right" or "wrong" by the luck of ``pool``;
each counts the requests that reach it. They must never answer anything that is not drawn by the pool.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from papers.E166_route import pool

FAULTS = ("closed", "500", "429", "silent", "malformed", "broken off")
PATIENCE = 0.15  # seconds that a client waits for an answer


class Endpoint:
    """One worker. rewards: of it, by prompt, 0 or 1. fault: in which it is down, or empty."""

    def __init__(self, rewards: Mapping[str, float], fault: str = "") -> None:
        self.rewards, self.fault, self.asked, self.port = rewards, fault, 0, 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        if self.fault == "closed":
            server.close()  # the port is free again, and nobody listens there
        try:
            yield
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                size = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
                body = json.loads(await reader.readexactly(size))
                self.asked += 1
                if self.fault == "silent":
                    await asyncio.sleep(60)
                writer.write(self._answer(body["messages"][-1]["content"]))
                await writer.drain()
                if self.fault == "broken off":
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client has gone, or the cell is over
        finally:
            writer.close()

    def _answer(self, prompt: str) -> bytes:
        message = {"role": "assistant", "content": "right" if self.rewards[prompt] else "wrong"}
        told = {"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 10, "completion_tokens": 1}}  # fmt: skip
        status = f"{self.fault} down" if self.fault.isdigit() else "200 OK"
        body = json.dumps({"error": {"message": "down"}} if self.fault.isdigit() else told).encode()
        if self.fault == "malformed":
            body = body[: len(body) // 2]
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        return head + (body[: len(body) // 2] if self.fault == "broken off" else body)


def said(text: str) -> str:
    """What a user says in a program's transcript."""
    return text.removeprefix("user: ").rstrip("\n")


def endpoints(found: pool.Programs, down: str = "", fault: str = "") -> list[Endpoint]:
    """One for each worker of the pool; ``down`` names the one that has the fault."""
    rewards = found.rewards(1)[:, :, 0]
    prompts = [said(text) for text in found.texts]
    return [
        Endpoint(dict(zip(prompts, rewards[:, j].tolist(), strict=True)), fault if name == down else "")
        for j, name in enumerate(pool.WORKERS)
    ]
