"""Tables, pass marks and figure of tier N, from its lines of results alone."""

import numpy as np

from papers.drawing import canvas, finish
from papers.E163_backtrack.tier_n import BEST, CAP, ITERATIONS, KEPT, SETTLED
from papers.stats import Lines, Mark, document, mark, minutes, over, table, times

LABELS = {
    "pretrained": "pre-trained on uniform walks",
    "golden": "golden SFT",
    "rl": "RL from rollouts",
    "full": "SFT on its traces",
    "erased": "SFT on its traces, loops erased",
}


def values(lines: Lines, who: str, field: str) -> np.ndarray:
    return np.array([line[who][field] for line in lines], dtype=np.float64)


def pass_marks(lines: Lines) -> list[Mark]:
    before, after = (values(lines, who, "keeps")[:, 2:].mean(axis=1) for who in ("pretrained", "golden"))
    drift, rl = over(after - before), over(values(lines, "rl", "median"))
    gap = times(values(lines, "erased", "median"), values(lines, "full", "median"))
    return [
        Mark("N1", "golden SFT leaves b and d unchanged (drift of their mean)", drift, drift.low <= 0 <= drift.high),
        mark("N2", f"RL: median steps <= 2 H* = {2 * BEST}", rl, most=2 * BEST),
        mark("N3", f"median erased / full >= 5 (walks are cut at {CAP})", gap, least=5),
    ]


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    told = ", ".join(str(10 * (len(line["curve"]) - 1)) for line in lines)
    walked = float(np.mean([line["walked"] for line in lines])) / 1e6
    steps = {"median steps": "median", "mean steps": "mean", "arrived": "success"}
    return document(
        "## Tier N: a small transformer with shared parameters",
        f"{len(lines)} seeds, {minutes(lines):.1f} CPU-minutes; (4, 4, 3), uniform walker 754.7, "
        f"H* = {BEST} where the fork forgets, {KEPT} where no branch is entered twice; 500 walks a model, cut at 20 H* "
        f"= {CAP}; means over seeds with 95 % bootstrap intervals. c, a, b, d: mean chance of the desired move.",
        pass_marks(lines),
        table(
            LABELS,
            ("model", LABELS.get),
            ("exact H (median seed)", lambda who: np.median(values(lines, who, "h")), ".3g"),
            *((head, lambda who, field=field: str(over(values(lines, who, field)))) for head, field in steps.items()),
            *((f, lambda who, i=i: values(lines, who, "keeps").mean(axis=0)[i], ".3f") for i, f in enumerate("cabd")),
        ),
        f"RL ended after {told} iterations, {walked:.0f} M steps walked in the mean: at the latest after {ITERATIONS}, "
        f"before that once the mean exact H of 200 iterations was within {SETTLED:.0%} of that of the 200 before.",
    )


def figure(lines: Lines) -> object:
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
    finish(left, right)
    return fig
