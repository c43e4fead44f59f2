"""Tier fast: R1 to R5 of specs/E166 on the simulated pool; see ``pool`` for it and ``learners`` for what is trained."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from clew.core.keys import derive
from clew.methods.compare.design import mcnemar
from clew.methods.routing.headroom import headroom
from clew.methods.routing.policies import Known, hard
from papers.E166_route import learners, pool
from papers.E166_route.learners import WAYS, data, single, stage1, tasks, trained
from papers.experiment import Line, apart, by_kind

SEEDS, SAMPLED = range(10), (1, 3, 8)
MEASURED = 16  # samples of each pair for R1
COPIES = 2  # of each held-out program, each with luck of its own
ROUND = 5


def cells(quick: bool) -> Iterator[Line]:
    for seed in list(SEEDS)[: 2 if quick else None]:
        yield {"kind": "headroom", "seed": seed}
        for n in SAMPLED:
            yield {"kind": "targets", "n": n, "seed": seed}
        for way in WAYS:
            iterations = learners.QUICK if quick else learners.ITERATIONS
            yield {"kind": "ways", "way": way, "iterations": iterations, "seed": seed}


def cost(cell: Line) -> float:
    """CPU-seconds."""
    return 0.5 if cell["kind"] != "ways" or cell["way"] == "sft" else 1.0 + cell["iterations"] * 0.02


def room(setting: Line, seed: int) -> Line:
    """R1: the cross-fitted headroom of the held-out programs, and the exact one."""
    it = data(seed)
    found = headroom(it.held.programs.matrix(MEASURED), seed)
    assert found is not None
    chances = it.held.chances
    return {
        "headroom": round(found.report.estimate, ROUND), "low": round(found.report.low, ROUND),
        "high": round(found.report.high, ROUND),
        "plain": round(float(it.held.programs.rewards(3).mean(2).max(1).mean() - chances.mean(0).max()), ROUND),
        "single": [round(float(one), ROUND) for one in chances.mean(0)],
        "oracle": round(float(chances.max(1).mean()), ROUND),
    }  # fmt: skip


def targets(setting: Line, seed: int) -> Line:
    """R2: routers of stage 1 from n samples of each pair, by soft targets and by hard labels."""
    it = data(seed)
    means = it.learn.programs.rewards(setting["n"]).mean(2)
    soft = single(it.held, stage1(it, means, seed)).mean()
    label = hard(Known(it.learn.x[:, : pool.WIDTH], means, None, seed))(it.held.x[:, : pool.WIDTH])
    return {
        "soft": round(float(soft), ROUND),
        "hard": round(float(it.held.chances[np.arange(len(label)), label].mean()), ROUND),
        "best": round(float(it.held.chances.mean(0).max()), ROUND),
        "oracle": round(float(it.held.chances.max(1).mean()), ROUND),
    }  # fmt: skip


def ways(setting: Line, seed: int) -> Line:
    """R3 to R5: a head trained in one way, on held-out tasks, on single steps, and with parts of the pool."""
    it = data(seed)
    head, rollouts, once = trained(setting["way"], it, seed, setting["iterations"])
    at, luck = tasks(it.held, derive(seed, "held luck"), COPIES)
    whole = np.ones((len(at), pool.W), bool)
    done = pool.play(it.held, at, luck, head[None], whole, sample=False, once=once)
    base = pool.play(it.held, at, luck, stage1(it, it.means, seed)[None], whole, sample=False)
    up, down = (int((a.success[0] > b.success[0]).sum()) for a, b in ((done, base), (base, done)))
    parts, held = pool.proper_subsets(), len(it.held.x)
    share, reached, asked = [], [], 0
    for part in parts:
        share.append(single(it.held, head, part).mean() / it.held.chances[:, part].max(1).mean())
        masks = np.broadcast_to(part, (held, pool.W))
        some = pool.play(it.held, at[:held], luck[:held], head[None], masks, sample=False, once=once)
        reached.append(some.success.mean())
        asked += int(np.isin(some.choice, np.flatnonzero(~part)).sum())
    return {
        "success": round(float(done.success.mean()), ROUND), "tasks": len(at), "up": up, "down": down,
        "p": float(f"{mcnemar(up, down):.3g}"), "single": round(float(single(it.held, head).mean()), ROUND),
        "calls": round(float(done.calls.mean()), ROUND), "price": round(float(done.price.mean()), ROUND),
        "subset share": round(float(np.mean(share)), ROUND), "subset least": round(float(np.min(share)), ROUND),
        "subset success": round(float(np.mean(reached)), ROUND), "masked asked": asked, "rollouts": rollouts,
    }  # fmt: skip


portions = apart  # the programs of a seed are drawn and read once
run = by_kind({"headroom": room, "targets": targets, "ways": ways})
