"""Table, pass marks D1 to D5 and figure of tier desk, from its lines of results alone."""

from __future__ import annotations

from papers.drawing import canvas, finish, whiskers
from papers.E178_redqueen.desk import GATES
from papers.stats import Lines, Mark, Results, document, gap, mark, markdown, minutes, over, text


def marks(results: Results) -> list[Mark]:
    def of(mode: str, field: str) -> object:
        return results.get(field, mode=mode)

    def gain(mode: str) -> object:
        return results.get("after", mode=mode) - results.get("before", mode=mode)

    promise = "rqgm: held-out reward rises by >= .15, interval above 0"
    return [
        mark("D1", promise, over(gain("rqgm")), 0.15, above=0.0),
        mark("D2", "fixed judge by style: held-out reward rises by < .10", over(gain("fixed")), under=0.1),
        mark("D3", "and it accepts >= .95 of the best agent's work", over(of("fixed", "accepted")), 0.95),
        mark("D4", "rqgm less fixed >= .15, interval above 0", gap(gain("rqgm"), gain("fixed")), 0.15, above=0.0),
        mark(
            "D5",
            "rqgm: the judge gains >= .15 on fresh work, interval above 0",
            gap(of("rqgm", "judge"), of("rqgm", "judge_before")),
            0.15,
            above=0.0,
        ),
    ]


FIELDS = ("before", "after", "accepted", "judge_before", "judge", "on_anchor", "replaced", "erased")


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    results = Results(lines)
    rows = [[mode, *(text(over(results.get(field, mode=mode)), 2) for field in FIELDS)] for mode in GATES]
    first = results.of(mode="rqgm")
    return document(
        "## Tier desk: an agent's policy and its judge on a world with tools",
        f"{len(first)} seeds, the same tasks in each mode; two rules of the desk, {first[0]['budget']:,} outcomes, "
        "a symbolic proposer, agents' runs in a store. before, after: the world's reward at 200 held-out tasks of the "
        f"first and the best agent. Intervals over seeds. {minutes(lines):.1f} CPU-minutes.",
        marks(results),
        markdown(
            "mode | before | after | accepted in the search | first judge right on fresh work | last judge | "
            "on its anchor | replacements | erased",
            rows,
        ),
    )


def figure(lines: Lines) -> object:
    """Held-out reward of the best agent by mode."""
    fig, axis = canvas((5, 2.8))
    results = Results(lines)
    found = [over(results.get("after", mode=mode)) for mode in GATES]
    whiskers(axis, list(range(len(GATES))), found, fmt="o", color="C0", label="95 %")
    axis.axhline(over(results.get("before", mode="rqgm")).estimate, color="grey", lw=0.8)
    axis.set(ylabel="held-out reward", xticks=range(len(GATES)))
    axis.set_xticklabels(list(GATES))
    finish(axis)
    return fig
