"""The report of the tier fast: marks R1 to R5 of specs/E166 section 7.2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.E166_route.learners import WAYS
from papers.experiment import Line
from papers.stats import Mark, Report, Results, by_seed, document, mark, pooled, table

RIVALS = ("random", "sft+random", "reinforce", "sft+reinforce", "cma")
OURS = "sft+cma"


def report(lines: Sequence[Line]) -> str:
    r = Results(lines)
    return document(
        "# E166, tier fast: a simulated pool, one call a turn", marks(r), "## What was trained", _ways(r), _told(r)
    )


def _get(r: Results, way: str, field: str) -> np.ndarray:
    return r.get(field, kind="ways", way=way)


def _gap(r: Results, a: str, b: str, field: str = "success") -> Report:
    return by_seed(_get(r, a, field) - _get(r, b, field))


def marks(r: Results) -> list[Mark]:
    """Met or not by the point estimate, except where a promise names the interval."""
    room, low = r.get("headroom", kind="headroom"), r.get("low", kind="headroom")
    out = [
        mark("R1 cross-fitted headroom", "at least .10", by_seed(room), least=0.10),
        mark("R1 its bootstrap interval", "above 0 in every seed", pooled((low > 0).sum(), len(low)), least=1.0),
    ]
    soft, hard, best, oracle = (
        {n: r.get(f, kind="targets", n=n) for n in (1, 3, 8)} for f in ("soft", "hard", "best", "oracle")
    )
    for n in (1, 3, 8):
        reached = by_seed((soft[n] - best[n]) / (oracle[n] - best[n]))
        if n == 3:
            out.append(mark("R2 share of the exact headroom, n = 3", "at least .8", reached, least=0.8))
        else:
            out.append(Mark(f"R2 share of the exact headroom, n = {n}", "no mark", reached, None))
    out += [
        mark("R2 soft less hard targets, n = 1", "at least .03", by_seed(soft[1] - hard[1]), least=0.03),
        Mark("R2 soft less hard targets, n = 3", "no mark", by_seed(soft[3] - hard[3]), None),
        mark("R2 soft less hard targets, n = 8", "at least -.005", by_seed(soft[8] - hard[8]), least=-0.005),
    ]
    p = _get(r, OURS, "p")
    out += [
        mark("R3 SFT + CMA less SFT, several turns", "at least .03", _gap(r, OURS, "sft"), least=0.03),
        mark("R3 exact McNemar against SFT", "p below .01 in every seed", pooled((p < 0.01).sum(), len(p)), least=1.0),
        mark("R3 single steps, SFT + CMA less SFT", "at least -.01", _gap(r, OURS, "sft", "single"), least=-0.01),
        Mark("R3 the same without replay", "no mark", _gap(r, f"{OURS}, no replay", "sft", "single"), None),
        mark(
            "R3 by turn less by question, both evolved",
            "interval above 0",
            _gap(r, OURS, f"{OURS}, per question"),
            above=0.0,
        ),
    ]
    for rival in RIVALS:
        out.append(mark(f"R4 SFT + CMA less {rival}", "above 0 at equal rollouts", _gap(r, OURS, rival), least=1e-9))
    calls = sum(_get(r, way, "masked asked").sum() for way in WAYS)
    out += [
        Mark("R5 calls of workers that are left out", "none", f"{int(calls)}, in all ways", not calls),
        mark(
            "R5 share of the subset oracle, first attempts", "at least .90",
            by_seed(_get(r, OURS, "subset share")), least=0.9,
        ),
        mark(
            "R5 k-of-n-trained less untrained, over all parts of the pool", "at least .03",
            _gap(r, OURS, f"{OURS}, no masks", "subset success"), least=0.03,
        ),
        Mark("R5 k-of-n-trained less SFT", "no mark", _gap(r, OURS, "sft", "subset success"), None),
    ]  # fmt: skip
    return out


def _ways(r: Results) -> str:
    def column(head: str, field: str) -> tuple[Any, ...]:
        return head, lambda way: by_seed(_get(r, way, field)), ".3f"

    return table(
        WAYS,
        ("way", lambda way: way),
        column("success in several turns", "success"),
        column("first attempts", "single"),
        column("parts of the pool, success", "subset success"),
        column("parts, share of the oracle", "subset share"),
        column("calls", "calls"),
        column("price", "price"),
        ("rollouts", lambda way: int(_get(r, way, "rollouts").max()), ",d"),
    )


def _told(r: Results) -> str:
    room = r.of(kind="headroom")
    single = np.array([line["single"] for line in room]).mean(0)
    plain = by_seed(r.get("plain", kind="headroom"))
    exact = by_seed(np.array([line["oracle"] - max(line["single"]) for line in room]))
    named = ", ".join(f"{one:.3f}" for one in single)
    return (
        f"First attempts of lookup, math, code, generalist, expensive and debug: {named}. Exact headroom {exact}. The "
        f"plain maximum over workers at three samples, which no router can have, would say {plain}. n = {len(room)} "
        "seeds, each with programs, prompts, matrix, search and luck of its own; intervals are Student's."
    )


def figure(lines: Sequence[Line]) -> Any:
    """Success in several turns against first attempts, by way."""
    from papers.drawing import canvas, finish

    r = Results(lines)
    made, axis = canvas((6.4, 4.0))
    for n, way in enumerate(WAYS):
        x, y = by_seed(_get(r, way, "single")), by_seed(_get(r, way, "success"))
        axis.errorbar(
            [x.estimate], [y.estimate], xerr=[[x.estimate - x.low], [x.high - x.estimate]],
            yerr=[[y.estimate - y.low], [y.high - y.estimate]], fmt="os^vD"[n % 5], color=f"C{n}", label=way, ms=4,
        )  # fmt: skip
    axis.set_xlabel("first attempts: chance that the greedy choice is right")
    axis.set_ylabel("success within three turns")
    finish(axis, font=7)
    return made
