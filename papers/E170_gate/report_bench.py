"""Tables and figure of the candidates: how many there are, and what the critics' rates are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clew.audit.design import clustered
from papers.drawing import canvas
from papers.E170_gate.tier_bench import CRITICS
from papers.stats import markdown, text

Line = dict[str, Any]
SOURCES = {"he": "HumanEval", "std": "Python's library"}


def bits(line: Line, name: str) -> np.ndarray:
    return np.array([int(c) for c in line[name]])


def usable(lines: Sequence[Line], kind: str) -> list[Line]:
    """Functions with candidates of both labels."""
    return [x for x in lines if x["kind"] == kind and "y" in x and {"0", "1"} <= set(x["y"])]


def rates(lines: Sequence[Line], critic: str, label: int) -> Any:
    """P(pass | label) with a bootstrap interval over functions."""
    values, clusters = [], []
    for line in lines:
        chosen = bits(line, critic)[bits(line, "y") == label]
        values += list(chosen)
        clusters += [line["program"]] * len(chosen)
    return clustered(f"{critic} passes {label}", values, clusters, unit="functions")


def report(lines: Sequence[Line]) -> str:
    parts = ["## Tier bench: candidates and critics"]
    for kind, name in SOURCES.items():
        all_of, ours = [x for x in lines if x["kind"] == kind], usable(lines, kind)
        if not ours:
            continue
        n, good = sum(len(x["y"]) for x in ours), sum(x["y"].count("1") for x in ours)
        rows = []
        for critic in CRITICS:
            high, low = rates(ours, critic, 1), rates(ours, critic, 0)
            rows.append([critic, text(high, 2), text(low, 2), f"{high.estimate - low.estimate:.2f}"])
        parts.append(
            f"**{name}**: {len(ours)} of {len(all_of)} functions usable, {n} candidates, {good} of them good. "
            f"{sum(x['cpu_s'] for x in all_of) / 60:.1f} CPU-minutes outside, "
            f"{sum(x.get('sandbox_s', 0) for x in all_of) / 60:.1f} minutes in the sandbox."
        )
        parts.append(markdown(["critic", "passes good", "passes broken", "gap"], rows))
    lost = [x for x in lines if "unusable" in x]
    parts.append("Not usable: " + ("; ".join(f"{x['program']} ({x['unusable'][:60]})" for x in lost) or "none") + ".")
    return "\n\n".join(parts) + "\n"


def figure(lines: Sequence[Line]) -> Any:
    """P(pass) of good and broken candidates, each function a dot."""
    fig, axes = canvas((8, 3), 1, 2, sharey=True)
    for axis, (kind, name) in zip(axes, SOURCES.items(), strict=True):
        for i, critic in enumerate(CRITICS):
            for label, colour in ((1, "#0072B2"), (0, "#D55E00")):
                shares = [bits(x, critic)[bits(x, "y") == label].mean() for x in usable(lines, kind)]
                jitter = np.random.default_rng(i).uniform(-0.12, 0.12, len(shares))
                axis.plot(i + jitter + (0.2 if label else -0.2), shares, ".", ms=3, alpha=0.5, color=colour)
        axis.set_xticks(range(len(CRITICS)), CRITICS)
        axis.set_title(name)
    axes[0].set_ylabel("share passed (blue: good, red: broken)")
    return fig
