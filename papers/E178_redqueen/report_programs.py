"""Table, pass marks and figure of tier programs, from its lines of results alone."""

from __future__ import annotations

from papers.drawing import canvas, finish, whiskers
from papers.E178_redqueen.tier_programs import MODES
from papers.stats import Lines, Mark, Results, document, gap, mark, markdown, minutes, over, text


def pass_marks(results: Results) -> list[Mark]:
    def of(mode: str, field: str) -> object:
        return results.get(field, mode=mode)

    gained = gap(of("rqgm", "skill"), of("fixed", "skill"))
    return [
        mark("R1", "skill of rqgm less the fixed judge's >= .3, interval above 0", gained, 0.3, above=0.0),
        mark(
            "R2",
            "rqgm less no erasure, interval above 0",
            gap(of("rqgm", "skill"), of("no erasure", "skill")),
            above=0.0,
        ),
        mark("R4", "the fixed judge accepts >= .98 of the solver", over(of("fixed", "validation")), 0.98),
        mark("R4", "and is right on <= .80", over(of("fixed", "judge")), most=0.80),
        mark("R5", "the judge gains >= .08", gap(of("rqgm", "judge"), of("rqgm", "judge_before")), 0.08),
    ]


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    results, rows = Results(lines), []
    fields = ("skill", "validation", "judge", "copied", "terms", "suite", "replaced", "erased")
    for mode in MODES:
        rows.append([mode, *(text(over(results.get(field, mode=mode)), 2) for field in fields)])
    first = results.of(mode="rqgm")
    return document(
        "## Tier programs: solvers against test suites",
        f"{len(first)} worlds, the same in each mode; bb, anchor of 100 programs; {first[0]['budget']:,} outcomes. "
        f"Skill: share of 1,000 new tasks that are solved on every input. Intervals over seeds. {minutes(lines):.1f} "
        "CPU-minutes.",
        pass_marks(results),
        markdown(
            "mode | true skill | validation acceptance | suite right | cases copied | terms of 8 | suite's inputs | "
            "replacements | erased",
            rows,
        ),
    )


def figure(lines: Lines) -> object:
    """True skill by mode."""
    fig, axis = canvas((5, 2.8))
    results = Results(lines)
    found = [over(results.get("skill", mode=mode)) for mode in MODES]
    whiskers(axis, range(len(MODES)), found, fmt="o", color="C0", label="95 %")
    axis.set(ylabel="tasks solved on every input", xticks=range(len(MODES)))
    axis.set_xticklabels(MODES)
    finish(axis)
    return fig
