"""Table, pass marks (R10) and figure of tier cost, from its lines of results alone."""

from __future__ import annotations

import math

import numpy as np

from papers.drawing import canvas, finish, whiskers
from papers.E178_redqueen.tier_cost import REACH, SCHEDULES
from papers.stats import Lines, Mark, Results, document, mark, markdown, minutes, over, pooled, text


def budgets(results: Results) -> list[int]:
    return sorted({line["budget"] for line in results.all})


def slopes(results: Results, schedule: str) -> np.ndarray:
    """Exponent of the outcomes that re-judging at each checkpoint would look at, in the budget; one for each seed."""
    known = budgets(results)
    worst = np.array([results.get("worst", schedule=schedule, budget=b) for b in known])
    span = math.log(known[-1] / known[0])
    found: np.ndarray = np.log(np.maximum(worst[-1], 1) / np.maximum(worst[0], 1)) / span
    return found


def pass_marks(results: Results) -> list[Mark]:
    said = "outcomes re-judged grow with the budget to the power"
    return [
        mark("R10", f"doubling: {said} <= 1.3", over(slopes(results, "doubling")), most=1.3),
        mark("R10", f"every: {said} >= 1.7", over(slopes(results, "every")), 1.7),
    ]


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    results, rows = Results(lines), []
    for schedule in SCHEDULES:
        for budget in budgets(results):
            at = {"schedule": schedule, "budget": budget}
            own = results.of(**at)
            reached = [line["reached"] for line in own if line["reached"]]
            cells = [text(over(results.get(f, **at)), 1) for f in ("worst", "rescored", "checkpoints", "comparisons")]
            spent = [n + again for n, again in reached]
            median = f"{np.median(spent):,.0f}" if 2 * len(spent) > len(own) else "not in half of them"
            skill = text(over(results.get("skill", **at)), 2)
            rows.append([schedule, f"{budget}", *cells, text(pooled(len(reached), len(own)), 2), median, skill])
    return document(
        "## Tier cost: checkpoints at doubling outcomes, or after each",
        "Re-judged: what a transition at every checkpoint would look at, the outcomes that then depend on a judge. "
        f"Re-scored: what was, by a new judge. Cost to skill +{REACH}: outcomes and re-scored ones, the median "
        f"of the seeds that got there. {minutes(lines):.1f} CPU-minutes.",
        pass_marks(results),
        markdown(
            f"schedule | outcomes | re-judged | re-scored | checkpoints | comparisons | reached +{REACH} | "
            "cost to it | true skill",
            rows,
        ),
    )


def figure(lines: Lines) -> object:
    """Outcomes re-judged over the budget."""
    fig, axis = canvas((5, 2.8))
    results = Results(lines)
    known = budgets(results)
    for at, schedule in enumerate(SCHEDULES):
        found = [over(results.get("worst", schedule=schedule, budget=b)) for b in known]
        whiskers(axis, known, found, fmt="o-", color=f"C{at}", label=schedule)
    axis.set(xlabel="outcomes", ylabel="re-judged", xscale="log", yscale="log")
    finish(axis)
    return fig
