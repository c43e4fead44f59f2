"""Tables, pass marks and figure of tier D, from its lines of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from papers.drawing import canvas
from papers.E163_backtrack.tier_d import SEARCHES, SHARES, TRACES
from papers.stats import Mark, difference, interval, markdown, mean, ratio, values

Line = dict[str, Any]


def pass_marks(lines: Sequence[Line]) -> list[Mark]:
    full = {n: values(lines, "h", kind="full", n=n) for n in (10, 50, TRACES)}
    erased, base = (values(lines, field, kind="erased") for field in ("h", "base"))
    teacher = values(lines, "teacher", kind="full", n=50)
    dose = [values(lines, "h", kind="dose", share=share) for share in SHARES]
    d1, d2 = interval("", ratio, full[50], teacher), interval("", ratio, erased, base)
    falls = [interval("", difference, a, b) for a, b in pairwise(dose)]
    smallest = next((s for s, h in zip(SHARES, dose, strict=True) if h.mean() < base[0]), None)
    gap = {cell: values(lines, "sft", kind="search", k=cell[0], l=cell[1]) for cell in SEARCHES}
    ideal = {cell: values(lines, "rl", kind="search", k=cell[0], l=cell[1]) for cell in SEARCHES}

    def slope(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
        return (a.mean(axis=-1) / b.mean(axis=-1) - c.mean(axis=-1) / d.mean(axis=-1)) / 12

    def twice(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
        return (a.mean(axis=-1) / b.mean(axis=-1)) / (c.mean(axis=-1) / d.mean(axis=-1))

    per_l = interval("", slope, gap[5, 16], ideal[5, 16], gap[5, 4], ideal[5, 4])
    per_k = [interval("", twice, gap[10, x], ideal[10, x], gap[5, x], ideal[5, x]) for x in (2, 4, 8)]
    steps = ", ".join(f"{x.estimate:.1f} [{x.low:.1f}, {x.high:.1f}]" for x in falls)
    worst = max(abs(x.estimate - 1) for x in per_k)
    lengthened = "; ".join(f"L = {x}: {r}" for x, r in zip((2, 4, 8), per_k, strict=True))
    return [
        Mark("D1", "50 full traces: H <= 1.1 x the teacher's", d1, d1.estimate <= 1.1),
        Mark("D2", f"{TRACES} erased traces: H >= 2.5 x the uniform walker's", d2, d2.estimate >= 2.5),
        Mark("D3", "H falls with every larger share of full traces", f"by {steps}", all(x.low > 0 for x in falls)),
        Mark("D3 dose", "smallest share at which H is below the uniform walker's", str(smallest), smallest is not None),
        Mark("D4a", "SFT / RL grows by more than .15 per L, 4 to 16", per_l, per_l.estimate > 0.15),
        Mark("D4b", "SFT / RL at K = 10 within 15 % of K = 5", f"{lengthened}; {worst:.0%} at worst", worst <= 0.15),
    ]


def report(lines: Sequence[Line]) -> str:
    """Markdown of the tier, pass marks first."""
    rows = [
        [f"{n} full traces", str(interval("", mean, values(lines, "h", kind="full", n=n))), spec]
        for n, spec in ((10, "42.1"), (50, "39.0"), (TRACES, "38.3"))
    ]
    rows.append([f"{TRACES} erased traces", str(interval("", mean, values(lines, "h", kind="erased"))), "781.8"])
    rows += [
        [f"{share:.0%} of {TRACES} full", str(interval("", mean, values(lines, "h", kind="dose", share=share))), ""]
        for share in SHARES
    ]
    searches = []
    printed = dict(zip(SEARCHES, ("1.11", "1.56", "2.34", "3.89", "1.16", "1.49", "2.42"), strict=True))
    for k, many in SEARCHES:
        sft, rl = (values(lines, field, kind="search", k=k, l=many) for field in ("sft", "rl"))
        found = [str(interval("", mean, x)) for x in (sft, rl)]
        searches.append([str(k), str(many), *found, str(interval("", ratio, sft, rl)), printed[k, many]])
    parts = [
        "## Tier D: supervised learning from a trained walker's traces",
        f"{len(lines)} cells, {sum(x['cpu_s'] for x in lines):.0f} CPU-seconds. (3, 3, 2), H exact, teacher "
        f"{lines[0]['teacher']:.1f}, uniform walker {lines[0]['base']:.0f}; means over seeds with 95 % "
        "bootstrap intervals.",
        "\n".join(f"- {mark}" for mark in pass_marks(lines)),
        markdown(["data", "H of the student", "specs/E163"], rows),
        "### The agent that refuses used edges, W = 5 (150 mazes per seed)",
        markdown(["K", "L", "steps, golden SFT", "steps, perfect", "ratio", "specs/E163"], searches),
    ]
    return "\n\n".join(parts) + "\n"


def figure(lines: Sequence[Line]) -> Any:
    """Left: H of the student against the share of full traces. Right: ratio of the search agents against L."""
    fig, (left, right) = canvas((9, 3.2), 1, 2)
    found = [interval("", mean, values(lines, "h", kind="dose", share=share)) for share in SHARES]
    spread = [[x.estimate - x.low for x in found], [x.high - x.estimate for x in found]]
    places = range(len(SHARES))
    left.errorbar(places, [x.estimate for x in found], yerr=spread, color="#0072B2", marker="o", markersize=3)
    left.axhline(lines[0]["base"], color="#000000", linestyle="--", linewidth=1, label="uniform walker")
    left.axhline(lines[0]["teacher"], color="#009E73", linestyle=":", linewidth=1, label="teacher")
    left.set_xticks(places, [f"{share:.0%}" for share in SHARES])
    left.set(yscale="log", xlabel=f"share of {TRACES} traces with their retreats", ylabel="exact H of the student")
    for k, colour in ((5, "#0072B2"), (10, "#D55E00")):
        sizes = [many for depth, many in SEARCHES if depth == k]
        pairs = [[values(lines, field, kind="search", k=k, l=x) for field in ("sft", "rl")] for x in sizes]
        ratios = [interval("", ratio, *pair) for pair in pairs]
        spread = [[x.estimate - x.low for x in ratios], [x.high - x.estimate for x in ratios]]
        right.errorbar(
            sizes, [x.estimate for x in ratios], yerr=spread, color=colour, marker="o", markersize=3, label=f"K = {k}"
        )
    right.set(xlabel="parallel edges L", ylabel="steps, golden SFT / perfect")
    for axis in (left, right):
        axis.grid(alpha=0.25)
        axis.legend(frameon=False, fontsize=8)
    return fig
