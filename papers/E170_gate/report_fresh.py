"""Tables of the fresh candidates: how many, and what each critic says of the right and the wrong ones."""

import numpy as np

from papers.drawing import canvas
from papers.E170_gate.report_bench import rates
from papers.E170_gate.tier_fresh import CRITICS, SEEDS
from papers.stats import Lines, document, minutes, table


def report(lines: Lines) -> str:
    parts = []
    for kind in SEEDS:
        ours = [x for x in lines if x["kind"] == kind and "y" in x]
        if ours:
            n, good = sum(len(x["y"]) for x in ours), sum(x["y"].count("1") for x in ours)
            found = {critic: [rates(ours, critic, label) for label in (1, 0)] for critic in CRITICS}
            parts += [
                f"**{kind} set**: {n} candidates of {len(ours)} problems, {good} of them right; {minutes(ours):.1f} "
                "CPU-minutes.",
                table(
                    CRITICS,
                    ("critic", str),
                    ("passes right", lambda critic, found=found: found[critic][0], ".2f"),
                    ("passes wrong", lambda critic, found=found: found[critic][1], ".2f"),
                ),
            ]
    lost = "; ".join(f"{x['program']} ({x['unusable'][:60]})" for x in lines if "unusable" in x)
    return document("## Tier fresh: candidates by a rule written down before", *parts, f"Not usable: {lost or 'none'}.")


def figure(lines: Lines) -> object:
    """The share of wrong candidates that each critic passes, by set."""
    fig, axis = canvas((5, 2.4))
    for i, kind in enumerate(SEEDS):
        ours = [x for x in lines if x["kind"] == kind and "y" in x]
        shares = [
            np.mean([x[c][j] == "1" for x in ours for j in range(len(x["y"])) if x["y"][j] == "0"]) for c in CRITICS
        ]
        axis.plot(range(len(CRITICS)), shares, "os"[i], label=f"{kind} set")
    axis.set_xticks(range(len(CRITICS)), CRITICS)
    axis.set(ylabel="wrong ones passed", ylim=(-0.05, 1.05))
    axis.legend()
    return fig
