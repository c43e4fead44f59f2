"""The report of the tier service: mark R12 of specs/E166 section 7.2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.E166_route import pool
from papers.E166_route.endpoints import FAULTS
from papers.E166_route.tier_service import AT_ONCE, FAILURES
from papers.experiment import Line
from papers.stats import Mark, Results, by_seed, document, mark, pooled, table

TRIES = 2 * (FAILURES - 1 + AT_ONCE)  # of a worker that is down: what opens the breaker, and what was under way


def report(lines: Sequence[Line]) -> str:
    r = Results(lines)
    return document("# E166, tier service: one worker is down", marks(r), "## By worker", _workers(r))


def _lost(r: Results, down: str, field: str = "success") -> np.ndarray:
    """What is lost where a worker is down, by seed: the mean over the ways in which it is."""
    whole = r.get(field, fault="", worker="")
    return np.mean([whole - r.get(field, fault=fault, worker=down) for fault in FAULTS], axis=0)


def marks(r: Results) -> list[Mark]:
    there = [name for name in pool.WORKERS if r.of(worker=name)]
    lost = np.mean([_lost(r, name) for name in there], axis=0)
    oracle = np.mean([_lost(r, name, "oracle") for name in there], axis=0)
    every = [line for line in r.all if line["worker"]]
    behind = np.array([line["told"] - line["success"] for line in every])
    asked, by_rank = (sum(line[field] for line in r.all) for field in ("asked", "by rank"))
    most = max(line["reached down"] for line in every)
    return [
        mark("R12 success lost, mean over the workers", "at most .02", by_seed(lost), most=0.02),
        Mark("R12 the same of the exact oracle", "no mark", by_seed(oracle), None),
        Mark(
            "R12 less than the router that is told", "at most .02 in every cell",
            f"at most {behind.max():.3f} in {len(behind)} cells", bool(behind.max() <= 0.02),
        ),
        mark("R12 answered by the best worker that is up", "all", pooled(by_rank, asked), least=1.0),
        Mark(f"R12 tries that reach the worker that is down, of {every[0]['asked']} requests", f"at most {TRIES}",
             f"at most {most}", most <= TRIES),
    ]  # fmt: skip


def _workers(r: Results) -> str:
    return table(
        [name for name in pool.WORKERS if r.of(worker=name)],
        ("down", lambda name: name),
        ("success lost", lambda name: by_seed(_lost(r, name)), ".3f"),
        ("the oracle loses", lambda name: by_seed(_lost(r, name, "oracle")), ".3f"),
        ("most tries that reached it", lambda name: int(r.get("reached down", worker=name).max())),
    )


def figure(lines: Sequence[Line]) -> Any:
    """Success lost by worker, beside what the oracle loses."""
    from papers.drawing import canvas, finish

    r = Results(lines)
    made, axis = canvas((6.4, 3.2))
    there = [name for name in pool.WORKERS if r.of(worker=name)]
    for step, (field, label) in enumerate((("success", "router, requests sent"), ("oracle", "oracle, exact"))):
        found = [by_seed(_lost(r, name, field)) for name in there]
        x, y = np.arange(len(there)) + 0.2 * step - 0.1, [one.estimate for one in found]
        reach = [[one.estimate - one.low for one in found], [one.high - one.estimate for one in found]]
        axis.errorbar(x, y, yerr=reach, fmt="os"[step], color=f"C{step}", label=label, ms=4)
    axis.axhline(0.02, color="grey", lw=0.8, ls="--")
    axis.set_xticks(range(len(there)), there)
    axis.set_ylabel("success lost where the worker is down")
    finish(axis, font=7)
    return made
