"""Tier plans: R6 to R9 of specs/E166. A conductor that writes plans, its controls at equal calls, isolation, memory.

The pool is simulated (``pool``, ``plan_pool``); plans are parsed, performed and isolated by Clew's own orchestrator.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from clew.core.keys import derive
from papers.E166_route import conductor, crews, pool, sessions
from papers.E166_route.conductor import How, school, strict
from papers.E166_route.controls import controls
from papers.E166_route.plan_pool import Answer, forced, masters
from papers.experiment import Line, apart, by_kind

SEEDS = range(20, 24)  # seeds below were used while this was written
COPIES = 10  # of the luck of each held-out program
COPYING = (0.0, 0.6)
PROGRAMS, SESSIONS = 300, 20  # of a seed, for isolation and for memory
ROUND = 5
WAYS = {
    "conductor": How(price=0.02),
    "no price": How(),
    "cold start alone": How(iterations=0),
    "from valid plans": How(start="valid", price=0.02, iterations=200),
    "from nothing": How(start="none", price=0.02, iterations=200),
    "from nothing, lenient parser": How(start="none", parser="lenient", price=0.02, iterations=200),
}
SOME = {"no price": (20, 23)} | dict.fromkeys(list(WAYS)[3:], (20, 21))  # seeds of ways that not all have
QUICK = {"conductor": 60, "cold start alone": 0}


def cells(quick: bool) -> Iterator[Line]:
    for seed in list(SEEDS)[: 1 if quick else None]:
        for way, how in WAYS.items():
            if way in QUICK if quick else seed in SOME.get(way, SEEDS):
                yield {"kind": "plans", "way": way, "iterations": QUICK[way] if quick else how.iterations, "seed": seed}
        yield {"kind": "controls", "seed": seed}
        for copying in COPYING:
            yield {"kind": "isolation", "copying": copying, "size": 40 if quick else PROGRAMS, "seed": seed}
        for files in sessions.KINDS:
            for memory in sessions.MEMORY:
                size = 4 if quick else SESSIONS
                yield {"kind": "memory", "files": files, "memory": memory, "size": size, "seed": seed}


def cost(cell: Line) -> float:
    """CPU-seconds."""
    if cell["kind"] == "plans":
        return 4.0 + cell["iterations"] * 0.03
    if cell["kind"] == "controls":
        return 8.0
    return float(cell["size"]) * (0.006 if cell["kind"] == "isolation" else 0.1)


def plans(setting: Line, seed: int) -> Line:
    """R6: a conductor's plans for held-out programs, greedily, played in this process and through the orchestrator."""
    it, way = school(seed), WAYS[setting["way"]]
    policy, log = conductor.trained(it, way._replace(iterations=setting["iterations"]), seed)
    found = it.held.found
    texts = policy.write(it.x_held, None).texts()
    made = [strict(text) for text in texts]
    sizes, calls = np.array([len(order) for order in found.orders]), np.array([len(plan or ()) for plan in made])
    success = it.held.success(made, COPIES)
    drawn = policy.write(np.tile(it.x_held, (5, 1)), np.random.default_rng(derive(seed, "drawn"))).texts()
    at = np.arange(len(texts))
    said = crews.Crew(found, texts, crews.by_luck(found, 0)).play(at.tolist())
    same = it.held.play(made, at, np.zeros_like(at))
    agreed = sum(a == (b[-1] if b else None) for a, b in zip(said, same, strict=True))
    by = lambda x: [round(float(x[sizes == k].mean()), ROUND) for k in (1, 2, 3)]  # noqa: E731
    return {
        "success": round(float(success.mean()), ROUND), "by size": by(success),
        "forced": round(float(it.held.success([plan and forced(plan) for plan in made], COPIES).mean()), ROUND),
        "calls": round(float(calls.mean()), ROUND), "calls by size": by(calls),
        "masters": round(float(it.held.success([masters(order) for order in found.orders], COPIES).mean()), ROUND),
        "single": round(float(found.chances.mean(0).max()), ROUND),
        "unparsed": sum(plan is None for plan in made), "programs": len(made),
        "drawn unparsed": sum(strict(text) is None for text in drawn), "drawn": len(drawn),
        "played": round(float(np.mean([a == Answer(k) for a, k in zip(said, sizes.tolist(), strict=True)])), ROUND),
        "agreed": agreed, "workflows": setting["iterations"] * conductor.G * conductor.TASKS, "log": log,
    }  # fmt: skip


def isolation(setting: Line, seed: int) -> Line:
    """R8: four attempts and their majority, each attempt alone or in sight of those before."""
    found = pool.programs(setting["size"], derive(seed, "isolation"))
    out: Line = {}
    for name, shared in (("isolated", False), ("shared", True)):
        arm = crews.isolation(found, shared, setting["copying"], seed)
        out[name] = {
            "success": round(float(arm.success.mean()), ROUND), "alike": round(float(arm.alike.mean()), ROUND),
            "wrong alike": round(float(arm.wrong.mean()), ROUND), "saw": arm.saw, "attempts": arm.attempts,
        }  # fmt: skip
    return out


def memory(setting: Line, seed: int) -> Line:
    """R9: sessions of five turns, with what tools gave in the turns before, without, or as a policy lets it be seen."""
    arm = sessions.arm(setting["files"], seed, setting["size"], setting["memory"])
    means = {name: round(float(np.mean(arm[name])), ROUND) for name in ("success", "calls", "repeats")}
    return means | {"leaks": arm["leaks"]}


portions = apart  # the programs of a seed are drawn and read once
run = by_kind(
    {"plans": plans, "controls": lambda setting, seed: controls(school(seed)), "isolation": isolation, "memory": memory}
)
