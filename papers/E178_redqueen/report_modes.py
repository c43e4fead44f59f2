"""Tables, pass marks R1 to R7 and figure of tier modes, from its lines of results alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from clew.core.records import Report
from papers.drawing import canvas, finish, whiskers
from papers.E178_redqueen.tier_modes import MODES
from papers.stats import Lines, Mark, Results, document, gap, mark, markdown, minutes, over, text


def rho(results: Results, mode: str) -> Report | None:
    """Rank correlation of writers before and after a replacement, the mean of each seed that had one."""
    means = [float(np.mean(line["rho"])) for line in results.of(mode=mode) if line["rho"]]
    return over(means) if means else None


def marks(results: Results) -> Iterable[Mark]:
    def of(mode: str, field: str) -> np.ndarray:
        return results.get(field, mode=mode)

    yield mark("R1", "skill of rqgm less the fixed judge's >= 1.0", gap(of("rqgm", "skill"), of("fixed", "skill")), 1.0)
    with_, without = of("rqgm", "skill"), of("no erasure", "skill")
    yield mark("R2", "rqgm less no erasure >= .2, interval above 0", gap(with_, without), 0.2, above=0.0)
    for name, mode, least, most in (("R3", "no erasure", 0.9, 1.0), ("R3", "rqgm", -1.0, 0.8)):
        found = rho(results, mode)
        if found is not None:
            said = f"rank correlation of writers over a replacement, {mode}, from {least:g} to {most:g}"
            yield mark(name, said, found, least, most)
    yield mark("R4", "the fixed judge accepts >= .98 of the writer", over(of("fixed", "validation")), 0.98)
    yield mark("R4", "and is right on <= .70", over(of("fixed", "judge")), most=0.70)
    yield mark("R5", "the judge gains >= .08", gap(of("rqgm", "judge"), of("rqgm", "judge_before")), 0.08)
    yield mark("R6", "matched-quality ratio under the fixed judge >= 2", over(of("fixed", "ratio")), 2.0)
    lowest = min(("rqgm", "adversarial"), key=lambda mode: float(of(mode, "ratio").mean()))
    yield mark("R6", f"under {lowest} <= 1.25", over(of(lowest, "ratio")), most=1.25)
    strict = [of("strict", name) for name in ("judge", "judge_before", "accepts", "accepts_before")]
    yield mark("R7", "an over-strict judge gains >= .15", gap(strict[0], strict[1]), 0.15)
    nearer = abs(strict[3] - 0.5) - abs(strict[2] - 0.5)
    yield mark("R7", "and accepts a share nearer to people's .5", over(nearer), above=0.0)


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    results, rows = Results(lines), []
    for mode in (*MODES, "strict, fixed", "strict"):
        fields = ("skill", "validation", "judge", "on_anchor", "ratio", "replaced", "erased", "gloss")
        cells = [text(over(results.get(field, mode=mode)), 2) for field in fields]
        found = rho(results, mode)
        rows.append([mode, *cells, "" if found is None else text(found, 2)])
    n = len(results.of(mode="rqgm"))
    return document(
        "## Tier modes: what replacing, erasing and the pool do",
        f"{n} worlds, the same in each mode; gate bb, anchor of 100; {results.of(mode='rqgm')[0]['budget']:,} outcomes "
        f"(strict {results.of(mode='strict')[0]['budget']:,}). Intervals over seeds. {minutes(lines):.1f} CPU-minutes.",
        list(marks(results)),
        markdown(
            "mode | true skill | validation acceptance | judge right | judge on its anchor | matched ratio | "
            "replacements | erased | gloss | rank correlation",
            rows,
        ),
    )


def figure(lines: Lines) -> object:
    """True skill by mode."""
    fig, axis = canvas((5, 2.8))
    results = Results(lines)
    whiskers(
        axis,
        list(range(len(MODES))),
        [over(results.get("skill", mode=m)) for m in MODES],
        fmt="o",
        color="C0",
        label="95 %",
    )
    axis.axhline(0, color="grey", lw=0.8)
    axis.set(ylabel="true skill of the writer", xticks=range(len(MODES)))
    axis.set_xticklabels(MODES)
    finish(axis)
    return fig
