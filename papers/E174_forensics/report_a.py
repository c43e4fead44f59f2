"""Table of pass marks of specs/E174 section 9, and figure, from the lines of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clew.audit import design
from clew.core.records import Report
from papers.drawing import canvas
from papers.E174_forensics.tier_a import BEYOND, MOTIVES
from papers.stats import Mark, markdown

Line = dict[str, Any]


def column(lines: Sequence[Line], check: str, name: str) -> list[Any]:
    """A field over all organisms of a check, seeds one after the other."""
    return [value for line in lines if line["check"] == check for value in line["found"][name]]


def share(values: Sequence[Any]) -> Report:
    return design.rate("", int(np.sum(np.asarray(values, float))), len(values))


def pass_marks(lines: Sequence[Line]) -> list[Mark]:
    """The rows of section 9, in its order."""
    marks: list[Mark] = []

    def mark(name: str, promise: str, values: Sequence[Any], least: float = 0.0, most: float = 1.0) -> None:
        found = share(values)
        marks.append(Mark(name, promise, found, least - 1e-9 <= found.estimate <= most + 1e-9))

    null = share(column(lines, "null", "engine, false"))
    promise = "any cause declared in at most 5 %, Wilson's upper limit 9 %"
    marks.append(Mark("null organisms", promise, null, null.estimate <= 0.05 and null.high <= 0.09))
    for kind in ("single", "and", "additive"):
        mark(f"{kind}: exact set, n = 100", "at least 90 %", column(lines, kind, "engine"), 0.9)
    mark("or: exact set with stacked pairs", "at least 90 %", column(lines, "or", "engine"), 0.9)
    mark("or: exact set one at a time", "reported; about 0 expected", column(lines, "or", "one at a time"))
    unfaithful = [
        d for kind in MOTIVES
        for d, phi in zip(column(lines, kind, "decoy"), column(lines, kind, "phi"), strict=True) if phi == 0
    ]  # fmt: skip
    mark("decoy declared at phi = 0", "at most 5 %", unfaithful, most=0.05)
    marks.append(_reading(lines))
    covers = column(lines, "dose", "covers")
    mark("dose slope: 95 % interval covers the truth", "in 92 to 98 %", covers, 0.92, 0.98)
    mark("dose: a threshold declared where there is none", "at most 5 %", column(lines, "dose", "threshold"), most=0.05)
    ratio = np.array(column(lines, "source", "ratio"))
    mark("6 x source: ratio within 4 to 9", "in at least 90 %", (ratio >= 4) & (ratio <= 9), 0.9)
    rank = np.array(column(lines, "sentence", "rank"))
    mark("sentence: planted one in the top 3 of 20, k = 50", "in at least 90 %", rank <= 3, 0.9)
    mark("sentence: decoy's interval covers 0", "in at least 93 %", column(lines, "sentence", "decoy"), 0.93)
    drop, placebo = np.array(column(lines, "resampling", "drop")), np.array(column(lines, "resampling", "placebo"))
    both = (drop >= 0.15) & (placebo == 1)
    mark("resampling: drop of .15 and placebo covers 0", "both in at least 90 %", both, 0.9)
    locked, loose = np.array(column(lines, "lock", "locked")), np.array(column(lines, "lock", "open"))
    mark("early lock: AUROC after paragraph 2 at least .9", "in at least 90 %", locked >= 0.9, 0.9)
    mark("no lock: AUROC after paragraph 2 at most .6", "in at least 90 %", loose <= 0.6, 0.9)
    arms = [arm for arms in column(lines, "censoring", "bounds") for arm in arms]
    held = [arm["low"] <= arm["share"] <= arm["high"] for arm in arms]
    mark("censoring, 30 % missing: bounds hold what was cut", "in 100 %", held, 1.0)
    mark(
        "harness fault labelled harness",
        "in at least 90 %",
        [k == "harness" for k in column(lines, "harness", "kind")],
        0.9,
    )
    benign = [k == "harness" for k in column(lines, "benign faults", "kind")]
    mark("control: faults that do nothing labelled harness", "at most 5 %", benign, most=0.05)
    error, n = calibration(lines)[0], sum(len(column(lines, kind, "kind")) for kind in MOTIVES)
    marks.append(Mark("calibration of the chances", "ECE at most .05", f"{error:.3f}, n={n} organisms", error <= 0.05))
    return marks


def _reading(lines: Sequence[Line]) -> Mark:
    """The baseline that reads what the traces say, over the organisms that have a cause; paired by organism."""
    kinds = [kind for kind in MOTIVES if kind != "null"]
    engine, reading = (np.array([v for k in kinds for v in column(lines, k, who)]) for who in ("engine", "reading"))
    gap = design.bootstrap("", lambda x, y: x.mean(-1) - y.mean(-1), engine, reading, unit="organisms")
    return Mark("reading the traces: exact set, below the engine", "by at least .30", gap, gap.estimate >= 0.3)


def calibration(lines: Sequence[Line], bins: int = 10) -> tuple[float, list[tuple[float, float, int]]]:
    """Expected calibration error over all hypotheses of all organisms, and (mean chance, share true, n) by bin."""
    pairs = np.array([c for kind in MOTIVES for cs in column(lines, kind, "chances") for c in cs])
    place = np.minimum((pairs[:, 0] * bins).astype(int), bins - 1)
    rows = [
        (*pairs[place == b].mean(axis=0).tolist(), int((place == b).sum())) for b in range(bins) if (place == b).any()
    ]
    return sum(n * abs(said - true) for said, true, n in rows) / len(pairs), rows


def report(lines: Sequence[Line]) -> str:
    """Markdown of the tier, pass marks first."""
    seeds = sorted({line["seed"] for line in lines})
    rows = []
    for kind in (*MOTIVES, *BEYOND):
        row = [kind]
        for who in ("engine", "one at a time", "reading"):
            row += [f"{np.mean(column(lines, kind, who)):.2f}/{np.mean(column(lines, kind, f'{who}, false')):.2f}"]
        by_seed = [[line for line in lines if line["seed"] == seed] for seed in seeds]
        row.append(", ".join(f"{np.mean(column(part, kind, 'engine')):.2f}" for part in by_seed))
        rows.append([*row, str(len(column(lines, kind, "kind"))), str(max(column(lines, kind, "spent")))])
        rows[-1].insert(-1, f"{np.mean([k == 'cannot tell' for k in column(lines, kind, 'kind')]):.2f}")
    head = [
        "motive",
        "engine",
        "one at a time",
        "reading",
        "engine by seed",
        "organisms",
        "cannot tell",
        "most rollouts",
    ]
    chance_rows = [[f"{said:.3f}", f"{true:.3f}", str(n)] for said, true, n in calibration(lines)[1]]
    arms = [arm for arms in column(lines, "censoring", "bounds") for arm in arms]
    bias = np.mean([arm["estimate"] - arm["rate"] for arm in arms])
    rates = share([arm["low"] <= arm["rate"] <= arm["high"] for arm in arms])
    redrawn = np.mean(column(lines, "resampling", "redrawn"), axis=0)
    total = sum(line["organisms"] for line in lines)
    parts = [
        "## Tier A: the engine, blind, on organisms whose cause is known",
        f"{total} organisms, seeds {', '.join(map(str, seeds))}, at most 3,000 rollouts each; "
        f"{sum(x['cpu_s'] * len(seeds) for x in lines if x['seed'] == seeds[0]) / 60:.1f} CPU-minutes. Intervals: "
        "Wilson's, over organisms of both seeds.",
        "\n".join(f"- {mark}" for mark in pass_marks(lines)),
        "Exact set / any false cause, by motive. The last three lie beyond the marks: a weak cause raises the log odds "
        "by .6 to 1.2; n = 30 is small.",
        markdown(head, rows),
        "Chances against truth, every hypothesis of these organisms:",
        markdown(["mean chance", "share true", "hypotheses"], chance_rows),
        f"Censoring: taking only rollouts that ended shifts the rate by {bias:+.3f}; the bounds hold the true rate, "
        f"sampling included, in {rates}. Resampling: {redrawn[0]:.3f} candidates redrawn per sentence for the "
        f"causal class, {redrawn[1]:.3f} for the placebo class. Source: the 95 % interval of the ratio holds 6 in "
        f"{share(column(lines, 'source', 'covers'))}.",
    ]
    return "\n\n".join(parts) + "\n"


def figure(lines: Sequence[Line]) -> Any:
    """Exact-set recovery by motive, three ways."""
    fig, axis = canvas((7, 3))
    colours = {"engine": "#0072B2", "one at a time": "#E69F00", "reading": "#999999"}
    for i, (who, colour) in enumerate(colours.items()):
        found = [share(column(lines, kind, who)) for kind in MOTIVES]
        middle = np.array([r.estimate for r in found])
        reach = np.abs(np.array([[r.low, r.high] for r in found]).T - middle)
        axis.bar(
            np.arange(len(MOTIVES)) + 0.27 * (i - 1), middle, 0.25, yerr=reach, color=colour, label=who, ecolor="#333"
        )
    axis.set(xticks=range(len(MOTIVES)), ylabel="exact set of causes", ylim=(0, 1.05))
    axis.set_xticklabels(MOTIVES)
    axis.legend(frameon=False, fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
    return fig
