"""Tables and figure of the candidates: how many there are, and what the critics' rates are."""

import numpy as np

from clew.methods.compare.design import clustered
from papers.drawing import canvas
from papers.E170_gate.tier_bench import CRITICS
from papers.stats import Line, Lines, Report, document, minutes, table

SOURCES = {"he": "HumanEval", "std": "Python's library"}


def bits(line: Line, name: str) -> np.ndarray:
    return np.array([int(c) for c in line[name]])


def passes(line: Line, critic: str, label: int) -> np.ndarray:
    """What a critic says of the candidates with this label."""
    return bits(line, critic)[bits(line, "y") == label]


def usable(lines: Lines, kind: str) -> list[Line]:
    """Functions with candidates of both labels."""
    return [x for x in lines if x["kind"] == kind and "y" in x and {"0", "1"} <= set(x["y"])]


def rates(lines: Lines, critic: str, label: int) -> Report:
    """P(pass | label) with a bootstrap interval over functions."""
    pairs = [(said, line["program"]) for line in lines for said in passes(line, critic, label)]
    return clustered(f"{critic} passes {label}", *zip(*pairs, strict=True), unit="functions")


def report(lines: Lines) -> str:
    parts = []
    for kind, name in SOURCES.items():
        all_of, ours = [x for x in lines if x["kind"] == kind], usable(lines, kind)
        if ours:
            n, good = sum(len(x["y"]) for x in ours), sum(x["y"].count("1") for x in ours)
            found = {critic: [rates(ours, critic, label) for label in (1, 0)] for critic in CRITICS}
            parts += [
                f"**{name}**: {len(ours)} of {len(all_of)} functions usable, {n} candidates, {good} of them good. "
                f"{minutes(all_of):.1f} CPU-minutes outside, "
                f"{sum(x.get('sandbox_s', 0) for x in all_of) / 60:.1f} minutes in the sandbox.",
                table(
                    CRITICS,
                    ("critic", str),
                    ("passes good", lambda critic, found=found: found[critic][0], ".2f"),
                    ("passes broken", lambda critic, found=found: found[critic][1], ".2f"),
                    ("gap", lambda critic, found=found: found[critic][0].estimate - found[critic][1].estimate, ".2f"),
                ),
            ]
    lost = "; ".join(f"{x['program']} ({x['unusable'][:60]})" for x in lines if "unusable" in x)
    return document("## Tier bench: candidates and critics", *parts, f"Not usable: {lost or 'none'}.")


def figure(lines: Lines) -> object:
    """P(pass) of good and broken candidates, each function a dot."""
    fig, axes = canvas((8, 3), 1, 2, sharey=True)
    for axis, (kind, name) in zip(axes, SOURCES.items(), strict=True):
        for i, critic in enumerate(CRITICS):
            for label, colour, beside in ((1, "#0072B2", 0.2), (0, "#D55E00", -0.2)):
                shares = [passes(x, critic, label).mean() for x in usable(lines, kind)]
                jitter = np.random.default_rng(i).uniform(-0.12, 0.12, len(shares))
                axis.plot(i + jitter + beside, shares, ".", ms=3, alpha=0.5, color=colour)
        axis.set_xticks(range(len(CRITICS)), CRITICS)
        axis.set_title(name)
    axes[0].set_ylabel("share passed (blue: good, red: broken)")
    return fig
