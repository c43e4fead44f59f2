"""The report of the tier conductor: R6 and a control of R7 of specs/E166 section 7.2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.E166_route.conductor_pool import NAMES
from papers.experiment import Line
from papers.stats import Mark, Report, Results, by_seed, document, mark, pooled, table

LOOKS = ("cold greedy", "cold sampled", "cold held", "trained greedy", "trained sampled", "trained held")


def report(lines: Sequence[Line]) -> str:
    r = Results(lines)
    return document(
        "# E166, tier conductor: plans as text, trained by GRPO", marks(r), "## Held out", _looks(r), _told(r)
    )


def _best(r: Results) -> np.ndarray:
    return np.array([max(line["single"]) for line in r.all])


def _failed(r: Results, look: str) -> Report:
    return pooled(r.get(look, "failures").sum(), r.get(look, "n").sum())


def marks(r: Results) -> list[Mark]:
    """Met or not by the point estimate, except where a promise names the interval."""
    done, cold = r.get("trained greedy", "success"), r.get("cold greedy", "success")
    return [
        mark("R6 trained less cold start", "interval above 0", by_seed(done - cold), above=0.0),
        mark("R6 less the best single worker", "at least .10", by_seed(done - _best(r)), least=0.10),
        mark(
            "R6 less the same plans forced to the best worker", "at least .08",
            by_seed(done - r.get("trained greedy", "forced")), least=0.08,
        ),
        mark("R6 share of the oracle", "at least .75", by_seed(done / r.get("oracle")), least=0.75),
        mark("R6 parse failures, sampled", "below .01", _failed(r, "trained sampled"), under=0.01),
        mark("R6 parse failures, sampled under the grammar", "below .01", _failed(r, "trained held"), under=0.01),
        Mark("R6 parse failures of the cold start, sampled", "no mark", _failed(r, "cold sampled"), None),
        Mark("R6 the same under the grammar", "no mark", _failed(r, "cold held"), None),
        mark(
            "R6 calls for programs of one operation", "at most 1.3", by_seed(r.get("trained greedy", "calls of one")),
            most=1.3,
        ),
        mark("R7 less a vote of all workers", "interval above 0", by_seed(done - r.get("voted")), above=0.0),
    ]  # fmt: skip


def _looks(r: Results) -> str:
    def column(head: str, field: str) -> tuple[Any, ...]:
        return head, lambda look: by_seed(r.get(look, field)), ".3f"

    return table(
        LOOKS,
        ("weights and way", lambda look: look),
        column("success", "success"),
        ("no plan", lambda look: _failed(r, look), ".3f"),
        column("calls of workers", "calls"),
        column("the same plans, best worker alone", "forced"),
        column("parts at their specialist", "specialists"),
    )


def _told(r: Results) -> str:
    single = np.array([line["single"] for line in r.all]).mean(0)
    named = ", ".join(f"{name} {one:.3f}" for name, one in zip(NAMES, single, strict=True))
    oracle, voted = by_seed(r.get("oracle")), by_seed(r.get("voted"))
    rollouts = int(r.get("rollouts").max())
    return (
        f"Alone: {named}; a vote of all, in as many calls, {voted.estimate:.3f}; each operation at its specialist "
        f"{oracle.estimate:.3f}. {rollouts:,} rollouts of training a seed, n = {len(r.all)} seeds, "
        f"{int(r.get('trained greedy', 'n').max())} held-out programs, the same for all; intervals are Student's over "
        "seeds, of parse failures Wilson's over all that was sampled. Parts at their specialist: of plans with as many "
        "parts as the program has operations."
    )


def figure(lines: Sequence[Line]) -> Any:
    """Success of the rollouts by iteration, a line for each seed."""
    from papers.drawing import canvas, finish

    r = Results(lines)
    made, axis = canvas((6.4, 3.6))
    for n, line in enumerate(r.all):
        at = [point["iteration"] for point in line["curve"]]
        axis.plot(at, [point["success"] for point in line["curve"]], "o-", color=f"C{n}", label=f"seed {line['seed']}")
    axis.axhline(float(_best(r).mean()), color="0.5", ls=":", label="best worker alone")
    axis.axhline(float(r.get("oracle").mean()), color="0.5", ls="--", label="specialists")
    axis.set_xlabel("iteration")
    axis.set_ylabel("success of the rollouts")
    finish(axis, font=7)
    return made
