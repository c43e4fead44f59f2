"""Tables, pass marks and figure of tier S, from its lines of results alone."""

import numpy as np

from papers.drawing import canvas, finish
from papers.E163_backtrack.tier_s import ARMS
from papers.stats import Lines, Mark, document, minutes, over, table, values

LABELS = {
    "S1": "(3, 3, 2), reward to go, Adam",
    "S2": "(5, 5, 3), reward to go, Adam",
    "S2 per state": "(5, 5, 3), the same, advantage scaled per state",
    "S3": "(5, 5, 3), whole-run return, sign steps",
    "S3 to go": "(5, 5, 3), reward to go, sign steps",
    "S4": "(3, 3, 2), reward 0 or 1, horizon 5 H*",
}
COLOURS = {"S1": "#0072B2", "S2": "#0072B2", "S2 per state": "#56B4E9", "S3": "#D55E00", "S3 to go": "#009E73"}


def pass_marks(lines: Lines) -> list[Mark]:
    out = []
    for arm, within in (("S1", 1.1), ("S2", 1.4), ("S2 per state", 1.4)):
        final = values(lines, "final", kind=arm)
        if len(final):
            bound = within * next(x["best"] for x in lines if x["kind"] == arm)
            reached = int((final <= bound).sum())
            promise = f"H <= {within} H* = {bound:g} after {ARMS[arm]['iterations']} iterations, every seed"
            found = f"{reached} of {len(final)} seeds; mean {over(final)}, worst {final.max():.1f}"
            out.append(Mark(arm, promise, found, reached == len(final)))
    whole, to_go = values(lines, "final", kind="S3"), values(lines, "final", kind="S3 to go")
    promise = "control: whole-run returns end at 820 to 990 after 150 steps"
    found = f"{over(whole)} against {over(to_go)} of reward to go"
    return [*out, Mark("S3", promise, found, bool(820 <= whole.mean() <= 990))]


def _near(lines: Lines, arm: str) -> str:
    near = values(lines, "within a tenth at", kind=arm)
    near = near[np.isfinite(near)]
    return f"{len(near)} seeds, median {np.median(near):.0f}" if len(near) else "none"


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    return document(
        "## Tier S: learning from rollouts alone",
        f"{len(lines)} cells, {minutes(lines):.1f} CPU-minutes. H of the policy is exact; means "
        "over seeds with 95 % bootstrap intervals. All agree: share of iterations in which every walk of the batch "
        "arrived, or none did, where a bare reward teaches nothing.",
        pass_marks(lines),
        table(
            [arm for arm in LABELS if len(values(lines, "final", kind=arm))],
            ("arm", str),
            ("setting", LABELS.get),
            ("final H", lambda arm: str(over(values(lines, "final", kind=arm)))),
            ("within 1.1 H* at iteration", lambda arm: _near(lines, arm)),
            ("steps walked", lambda arm: f"{values(lines, 'steps', kind=arm).mean() / 1e6:.1f} M"),
            ("all agree", lambda arm: values(lines, "silent", kind=arm).mean(), ".1%"),
            ("of the last 100", lambda arm: values(lines, "late silent", kind=arm).mean(), ".1%"),
        ),
    )


def figure(lines: Lines) -> object:
    """H over iterations, every seed: left (3, 3, 2), right (5, 5, 3)."""
    fig, axes = canvas((9, 3.2), 1, 2)
    for axis, arms, best in ((axes[0], ("S1", "S4"), 36), (axes[1], ("S2", "S2 per state", "S3", "S3 to go"), 100)):
        for arm in arms:
            label, style = (LABELS[arm].split(", ", 3)[-1], "--") if arm == "S4" else (LABELS[arm][11:], "-")
            how = {"color": COLOURS.get(arm, "#E69F00"), "linewidth": 0.8}
            for i, line in enumerate(x for x in lines if x["kind"] == arm):
                axis.plot(10 * np.arange(len(line["h"])), line["h"], style, label="" if i else label, **how)
        axis.axhline(best, color="#000000", linestyle=":", linewidth=1, label="optimum")
        axis.set(yscale="log", xlabel="iteration", ylabel="exact H", title=LABELS[arms[0]][:9])
    finish(*axes)
    return fig
