"""Tier service: R12 of specs/E166. One worker of the pool is down behind the router that serves, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import lru_cache
from typing import NamedTuple

import numpy as np

import clew
from clew.core.errors import ModelError
from clew.core.keys import derive
from clew.methods.routing.fit_router import head_of
from clew.models.asking import request
from clew.models.compose.decision import decision_of
from clew.models.compose.ngrams import Ngrams
from clew.models.compose.policy import Policy
from clew.models.compose.routed import Routed
from clew.models.compose.router import Router, Worker
from clew.models.fakes import Echo
from papers.E166_route import pool
from papers.E166_route.endpoints import FAULTS, PATIENCE, Endpoint, endpoints, said
from papers.experiment import Line, apart, each

SEEDS, LEARN, SAMPLES, HELD = range(5), 600, 3, 300
AT_ONCE = 4  # clients
FAILURES = 3  # that open a worker's breaker
ROUND = 5


def cells(quick: bool) -> Iterator[Line]:
    for seed in list(SEEDS)[: 1 if quick else None]:
        yield {"kind": "service", "fault": "", "worker": "", "seed": seed}
        for down in pool.WORKERS[: 2 if quick else None]:
            for fault in FAULTS:
                yield {"kind": "service", "fault": fault, "worker": down, "seed": seed}


def cost(cell: Line) -> float:
    """CPU-seconds."""
    return 1.6


class Trial(NamedTuple):
    """Of a seed: the programs that are asked, as prompts without twins, and the head fitted to others."""

    asked: pool.Programs
    router: Router


@lru_cache(maxsize=2)
def trial(seed: int) -> Trial:
    drawn = pool.programs(2 * HELD, derive(seed, "service"))
    first = sorted({text: i for i, text in reversed(list(enumerate(drawn.texts)))}.values())[:HELD]
    texts, orders = ([given[i] for i in first] for given in (drawn.texts, drawn.orders))
    asked = pool.Programs(texts, drawn.counts[first], drawn.keys[first], orders)
    learn = pool.programs(LEARN, derive(seed, "learn")).matrix(SAMPLES)
    head, _ = head_of(learn, Ngrams(), seed=seed)
    return Trial(asked, Router(tuple(Worker(name, "echo") for name in pool.WORKERS), Ngrams(), head))


def outcome(setting: Line, seed: int) -> Line:
    """All programs asked once by four clients: what came back, and what the router that is told would get.

    ``told`` is the same router whose policy denies the worker: it knows beforehand what the other finds out.
    """
    it, down = trial(seed), setting["worker"]
    ends = endpoints(it.asked, down, setting["fault"])
    answers = asyncio.run(_asked(it, ends))
    denied = Routed(it.router, [Echo()] * pool.W, policy=Policy(deny=(down,) if down else ()))
    orders = [denied.plan(request(Echo(), said(text))).order for text in it.asked.texts]
    rewards, mask = it.asked.rewards(1)[:, :, 0], np.array([name != down for name in pool.WORKERS])
    rows = np.arange(len(rewards))
    reached = [pool.WORKERS.index(who) if who else -1 for who, _ in answers]
    by_rank = sum(who == order[0] for who, order in zip(reached, orders, strict=True))
    return {
        "success": round(float(np.mean([good for _, good in answers])), ROUND),
        "told": round(float(rewards[rows, [order[0] for order in orders]].mean()), ROUND),
        "oracle": round(float(it.asked.chances[:, mask].max(1).mean()), ROUND),
        "unanswered": reached.count(-1), "asked": len(answers), "by rank": by_rank,
        "reached down": sum(one.asked for one in ends if one.fault),
    }  # fmt: skip


async def _asked(it: Trial, ends: list[Endpoint]) -> list[tuple[str, bool]]:
    """Who answered each program (empty for nobody), and whether rightly."""
    answers = [("", False)] * len(it.asked.texts)
    async with AsyncExitStack() as stack:
        for one in ends:
            await stack.enter_async_context(one.listening())
        models = [
            clew.model(f"openai:m@http://127.0.0.1:{one.port}/v1", attempts=2, backoff=0.01, timeout=PATIENCE)
            for one in ends
        ]
        # a pause longer than any cell: whether a worker is tried again while it is down must not hang on the clock
        routed, left = Routed(it.router, models, failures=FAILURES, pause=3600.0), iter(range(len(answers)))

        async def client() -> None:
            for i in left:
                try:
                    done = await routed.complete(request(Echo(), said(it.asked.texts[i])))
                except ModelError:
                    continue
                decided = decision_of(done.inner)
                assert decided is not None
                answers[i] = (decided.worker, done.message.text == "right")

        await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    return answers


portions = apart
run = each(outcome)
