"""Tables, pass marks and figure of tier N, from its lines of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.drawing import canvas
from papers.E163_backtrack.tier_n import BEST, CAP, ITERATIONS, KEPT, SETTLED
from papers.stats import Mark, interval, markdown, mean, ratio

Line = dict[str, Any]
LABELS = {
    "pretrained": "pre-trained on uniform walks",
    "golden": "golden SFT",
    "rl": "RL from rollouts",
    "full": "SFT on its traces",
    "erased": "SFT on its traces, loops erased",
}


def values(lines: Sequence[Line], who: str, field: str) -> np.ndarray:
    return np.array([line[who][field] for line in lines], dtype=np.float64)


def pass_marks(lines: Sequence[Line]) -> list[Mark]:
    before, after = (values(lines, who, "keeps")[:, 2:].mean(axis=1) for who in ("pretrained", "golden"))
    drift, rl = interval("", mean, after - before), interval("", mean, values(lines, "rl", "median"))
    gap = interval("", ratio, values(lines, "erased", "median"), values(lines, "full", "median"))
    return [
        Mark("N1", "golden SFT leaves b and d unchanged (drift of their mean)", drift, drift.low <= 0 <= drift.high),
        Mark("N2", f"RL: median steps <= 2 H* = {2 * BEST}", rl, rl.estimate <= 2 * BEST),
        Mark("N3", f"median erased / full >= 5 (walks are cut at {CAP})", gap, gap.estimate >= 5),
    ]


def report(lines: Sequence[Line]) -> str:
    """Markdown of the tier, pass marks first."""
    rows = []
    for who, label in LABELS.items():
        keeps = [f"{x:.3f}" for x in values(lines, who, "keeps").mean(axis=0)]
        steps = [str(interval("", mean, values(lines, who, field))) for field in ("median", "mean", "success")]
        rows.append([label, f"{np.median(values(lines, who, 'h')):.3g}", *steps, *keeps])
    told = ", ".join(str(10 * (len(line["curve"]) - 1)) for line in lines)
    walked = float(np.mean([line["walked"] for line in lines])) / 1e6
    head = ["model", "exact H (median seed)", "median steps", "mean steps", "arrived", "c", "a", "b", "d"]
    parts = [
        "## Tier N: a small transformer with shared parameters",
        f"{len(lines)} seeds, {sum(x['cpu_s'] for x in lines) / 60:.1f} CPU-minutes; (4, 4, 3), uniform walker 754.7, "
        f"H* = {BEST} where the fork forgets, {KEPT} where no branch is entered twice; 500 walks a model, cut at 20 H* "
        f"= {CAP}; means over seeds with 95 % bootstrap intervals. c, a, b, d: mean chance of the desired move.",
        "\n".join(f"- {mark}" for mark in pass_marks(lines)),
        markdown(head, rows),
        f"RL ended after {told} iterations, {walked:.0f} M steps walked in the mean: at the latest after {ITERATIONS}, "
        f"before that once the mean exact H of 200 iterations was within {SETTLED:.0%} of that of the 200 before.",
    ]
    return "\n\n".join(parts) + "\n"


def figure(lines: Sequence[Line]) -> Any:
    """Left: chances of the four families along golden SFT. Right: exact H along RL. Every seed."""
    fig, (left, right) = canvas((9, 3.2), 1, 2)
    colours = {"c": "#56B4E9", "a": "#0072B2", "b": "#E69F00", "d": "#D55E00"}
    for i, line in enumerate(lines):
        drift = np.array(line["drift"])
        for place, (family, colour) in enumerate(colours.items(), 1):
            left.plot(drift[:, 0], drift[:, place], color=colour, linewidth=1, label="" if i else family)
        right.plot(10 * np.arange(len(line["curve"])), line["curve"], color="#0072B2", linewidth=1)
    left.set(xlabel="step of golden SFT", ylabel="mean chance of the desired move")
    right.axhline(BEST, color="#000000", linestyle=":", linewidth=1, label="optimum where the fork forgets")
    right.axhline(KEPT, color="#000000", linestyle="--", linewidth=1, label="optimum where it does not")
    right.set(yscale="log", xlabel="iteration of RL", ylabel="exact H")
    for axis in (left, right):
        axis.grid(alpha=0.25)
        axis.legend(frameon=False, fontsize=8)
    return fig
