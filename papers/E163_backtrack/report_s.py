"""Tables, pass marks and figure of tier S, from its lines of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.drawing import canvas
from papers.E163_backtrack.tier_s import ARMS
from papers.stats import Mark, interval, markdown, mean, values

Line = dict[str, Any]
LABELS = {
    "S1": "(3, 3, 2), reward to go, Adam",
    "S2": "(5, 5, 3), reward to go, Adam",
    "S2 per state": "(5, 5, 3), the same, advantage scaled per state",
    "S3": "(5, 5, 3), whole-run return, sign steps",
    "S3 to go": "(5, 5, 3), reward to go, sign steps",
    "S4": "(3, 3, 2), reward 0 or 1, horizon 5 H*",
}


def pass_marks(lines: Sequence[Line]) -> list[Mark]:
    out = []
    for arm, within in (("S1", 1.1), ("S2", 1.4), ("S2 per state", 1.4)):
        final = values(lines, "final", kind=arm)
        if len(final):
            bound = within * next(x["best"] for x in lines if x["kind"] == arm)
            reached = int((final <= bound).sum())
            promise = f"H <= {within} H* = {bound:g} after {ARMS[arm]['iterations']} iterations, every seed"
            found = f"{reached} of {len(final)} seeds; mean {interval('', mean, final)}, worst {final.max():.1f}"
            out.append(Mark(arm, promise, found, reached == len(final)))
    whole, to_go = values(lines, "final", kind="S3"), values(lines, "final", kind="S3 to go")
    found = f"{interval('', mean, whole)} against {interval('', mean, to_go)} of reward to go"
    promise = "control: whole-run returns end at 820 to 990 after 150 steps"
    return [*out, Mark("S3", promise, found, bool(820 <= whole.mean() <= 990))]


def report(lines: Sequence[Line]) -> str:
    """Markdown of the tier, pass marks first."""
    rows = []
    for arm, label in LABELS.items():
        final = values(lines, "final", kind=arm)
        if len(final):
            near = values(lines, "within a tenth at", kind=arm)
            near = near[np.isfinite(near)]
            reached = f"{len(near)} seeds, median {np.median(near):.0f}" if len(near) else "none"
            steps = f"{values(lines, 'steps', kind=arm).mean() / 1e6:.1f} M"
            silent = [f"{values(lines, field, kind=arm).mean():.1%}" for field in ("silent", "late silent")]
            rows.append([arm, label, str(interval("", mean, final)), reached, steps, *silent])
    head = ["arm", "setting", "final H", "within 1.1 H* at iteration", "steps walked", "all agree", "of the last 100"]
    parts = [
        "## Tier S: learning from rollouts alone",
        f"{len(lines)} cells, {sum(x['cpu_s'] for x in lines) / 60:.1f} CPU-minutes. H of the policy is exact; means "
        "over seeds with 95 % bootstrap intervals. All agree: share of iterations in which every walk of the batch "
        "arrived, or none did, where a bare reward teaches nothing.",
        "\n".join(f"- {mark}" for mark in pass_marks(lines)),
        markdown(head, rows),
    ]
    return "\n\n".join(parts) + "\n"


COLOURS = {"S1": "#0072B2", "S2": "#0072B2", "S2 per state": "#56B4E9", "S3": "#D55E00", "S3 to go": "#009E73"}


def figure(lines: Sequence[Line]) -> Any:
    """H over iterations, every seed: left (3, 3, 2), right (5, 5, 3)."""
    fig, axes = canvas((9, 3.2), 1, 2)
    for axis, arms, best in ((axes[0], ("S1", "S4"), 36), (axes[1], ("S2", "S2 per state", "S3", "S3 to go"), 100)):
        for arm in arms:
            for i, line in enumerate(x for x in lines if x["kind"] == arm):
                label, style = (LABELS[arm].split(", ", 3)[-1], "--") if arm == "S4" else (LABELS[arm][11:], "-")
                axis.plot(
                    10 * np.arange(len(line["h"])),
                    line["h"],
                    style,
                    color=COLOURS.get(arm, "#E69F00"),
                    linewidth=0.8,
                    label="" if i else label,
                )
        axis.axhline(best, color="#000000", linestyle=":", linewidth=1, label="optimum")
        axis.set(yscale="log", xlabel="iteration", ylabel="exact H", title=LABELS[arms[0]][:9])
        axis.grid(alpha=0.25)
        axis.legend(frameon=False, fontsize=8)
    return fig
