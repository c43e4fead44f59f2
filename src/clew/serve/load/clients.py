"""Clients that put a server under load, and what they measured. ``clew bench serve`` runs them against any endpoint of
OpenAI's chat completions, streamed. They must never share state with the server under test."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput

F64 = npt.NDArray[np.float64]
SLICES = 10  # of the time that counts, for an interval of the throughput
WARM = 0.2  # of the time does not count


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked of a server.

    users: requests at all times, each followed by the next (closed). rate: instead, requests in a second that arrive at
    random (open). seconds: how long; the first fifth does not count, what is under way at the end is cut.

    Raises:
        BadInput: both or neither of users and rate, or a number that is not above 0.
    """

    model: str
    prompts: tuple[str, ...]
    users: int = 0
    rate: float = 0.0
    seconds: float = 20.0
    max_tokens: int = 128
    temperature: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.users > 0) == (self.rate > 0) or self.users < 0 or self.rate < 0:
            raise BadInput(f"{self.users} users and {self.rate} requests a second", remedy="Give one of the two.")
        if not self.prompts or self.seconds <= 0 or self.max_tokens < 2:
            raise BadInput(
                f"{len(self.prompts)} prompts, {self.seconds} seconds, {self.max_tokens} tokens of a reply",
                remedy="Give at least one prompt, some seconds, and 2 tokens or more.",
            )


@dataclass(slots=True)
class Answer:
    """One request as its client saw it; times in seconds since the beginning. ``tokens``: by the server's count."""

    asked: float
    chunks: list[float] = field(default_factory=list)  # when each part with text arrived
    ended: float | None = None
    tokens: int = 0
    error: str = ""


async def drive(base: str, demand: Demand, key: str = "") -> Seen:
    """Put the endpoint at ``base`` (as in http://host/v1) under this demand.

    An error ends its request, not the measurement; a user whose request failed waits a tenth of a second.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    rng, answers = np.random.default_rng(demand.seed), list[Answer]()
    timeout = httpx.Timeout(demand.seconds + 30, connect=10)
    async with httpx.AsyncClient(limits=limits, headers=headers, timeout=timeout) as client:
        began = time.perf_counter()

        async def one(number: int) -> Answer:
            answers.append(answer := Answer(time.perf_counter() - began))
            await _ask(client, base, demand, number, answer, began)
            return answer

        async def user(number: int) -> None:
            for turn in range(1 << 30):
                if (await one(number + turn * demand.users)).error:
                    await asyncio.sleep(0.1)

        async def arrivals() -> None:
            tasks, due = set[asyncio.Task[Answer]](), 0.0
            try:
                for number in range(1 << 30):
                    due += rng.exponential(1 / demand.rate)
                    await asyncio.sleep(max(0.0, due - (time.perf_counter() - began)))
                    tasks.add(asyncio.create_task(one(number)))
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

        jobs = [user(i) for i in range(demand.users)] if demand.users else [arrivals()]
        running = [asyncio.create_task(job) for job in jobs]
        try:
            done, _ = await asyncio.wait(running, timeout=demand.seconds, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()  # raises what went wrong here, not at the server
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    return Seen(demand, answers)


async def _ask(client: httpx.AsyncClient, base: str, demand: Demand, number: int, answer: Answer, began: float) -> None:
    body = {
        "model": demand.model,
        "messages": [{"role": "user", "content": demand.prompts[number % len(demand.prompts)]}],
        "max_tokens": demand.max_tokens,
        "temperature": demand.temperature,
        "seed": demand.seed * 1_000_003 + number,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    try:
        async with client.stream("POST", f"{base}/chat/completions", json=body) as reply:
            if reply.status_code != 200:
                await reply.aread()
                answer.error = f"status {reply.status_code}"
                return
            async for line in reply.aiter_lines():
                if not line.startswith("data:"):
                    continue
                if (data := line[5:].strip()) == "[DONE]":
                    answer.ended = time.perf_counter() - began
                    return
                _note(answer, json.loads(data), time.perf_counter() - began)
        answer.error = answer.error or "cut stream"
    except httpx.TimeoutException:
        answer.error = "timeout"
    except httpx.TransportError as error:
        answer.error = "no connection" if isinstance(error, httpx.ConnectError) else "broken connection"
    except (ValueError, KeyError, TypeError, AttributeError):
        answer.error = "malformed reply"


def _note(answer: Answer, event: dict[str, Any], now: float) -> None:
    """A part of a reply. Text, reasoning and tool calls are all the model's tokens."""
    if "error" in event:
        answer.error = "error in the stream"
    for choice in event.get("choices") or ():
        delta = choice.get("delta") or {}
        if any(delta.get(part) for part in ("content", "reasoning_content", "reasoning", "tool_calls")):
            answer.chunks.append(now)
    if usage := event.get("usage"):
        answer.tokens = int(usage["completion_tokens"])


@dataclass(frozen=True, slots=True)
class Seen:
    """What the clients saw of one demand."""

    demand: Demand
    answers: list[Answer]

    @property
    def errors(self) -> dict[str, int]:
        """How many requests ended in an error, by kind."""
        return dict(Counter(a.error for a in self.answers if a.error))

    @property
    def ended(self) -> list[Answer]:
        """Requests answered whole and asked after the warm-up, or all answered whole where those are none."""
        whole = [a for a in self.answers if a.ended is not None and not a.error and a.chunks]
        return [a for a in whole if a.asked >= WARM * self.demand.seconds] or whole

    @property
    def per_chunk(self) -> float:
        """Tokens in a part of a reply; 1 where the server counts none."""
        told = [a for a in self.answers if a.ended is not None and a.tokens and a.chunks]
        return sum(a.tokens for a in told) / sum(len(a.chunks) for a in told) if told else 1.0

    def throughput(self) -> F64:
        """Tokens per second of all requests in each of ten parts of the time that counts."""
        edges = np.linspace(WARM, 1, SLICES + 1) * self.demand.seconds
        arrived = np.array([t for a in self.answers for t in a.chunks])
        found: F64 = np.histogram(arrived, edges)[0] * self.per_chunk / np.diff(edges)
        return found

    def speeds(self) -> F64:
        """Tokens per second of each request that ended, from when it was asked."""
        return np.array([(a.tokens or len(a.chunks)) / (a.ended - a.asked) for a in self.ended if a.ended is not None])

    def first(self) -> F64:
        """Seconds to the first token of each of them."""
        return np.array([a.chunks[0] - a.asked for a in self.ended])

    def between(self) -> F64:
        """Seconds from one token to the next, the mean of each of them that has two."""
        long = [a for a in self.ended if (a.tokens or len(a.chunks)) > 1]
        return np.array([(a.chunks[-1] - a.chunks[0]) / ((a.tokens or len(a.chunks)) - 1) for a in long])
