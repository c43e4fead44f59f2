"""Table, pass marks and figure of tier toy, from its lines of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.drawing import canvas
from papers.E179_dspark.tier_toy import BIASED, POLICIES
from papers.stats import Mark, interval, markdown, mean, values

Line = dict[str, Any]
EXACT, SEEN = 1e-12, 0.05
NAMES = ("anticipating", "scheduler", "Algorithm 1")


def pass_marks(lines: Sequence[Line]) -> list[Mark]:
    paper = next(x for x in lines if x["kind"] == "paper")
    found = ", ".join(f"{name} {paper[name]:.12f}" for name in NAMES)
    met = all(abs(paper[n] - (0.85 if n in BIASED else 0.7)) <= EXACT for n in NAMES)
    out = [Mark("T1, the paper's counter-example", "chance of A .85 if anticipating, else .70, to 1e-12", found, met)]
    sanctioned = [x["tv"] for x in lines if x["kind"] != "paper" and x["policy"] not in BIASED]
    worst = max(sanctioned)
    promise = "total variation distance to the target at most 1e-12 under every sanctioned policy"
    out.append(Mark("T1, exactness", promise, f"at most {worst:.1e} in {len(sanctioned)} enumerations", worst <= EXACT))
    for name in BIASED:
        tv = values(lines, "tv", policy=name)
        told = f"{tv.max():.3f} at most, {int((tv >= SEEN).sum())} of {len(tv)} games at {SEEN} or more"
        out.append(
            Mark(f"T1, power, {name}", "the same test shows a bias of at least .05", told, bool(tv.max() >= SEEN))
        )
    return out


def report(lines: Sequence[Line]) -> str:
    """Markdown of the tier, pass marks first."""
    rows = []
    for name in [*POLICIES, "scheduler, 1 back", "scheduler, 2 back"]:
        tv = values(lines, "tv", policy=name)
        if len(tv):
            many = "3" if "back" in name and name[11].isdigit() else "1"
            shown = str(interval("", mean, tv)) if name in BIASED else f"{tv.max():.1e} at most"
            rows.append([name, many, str(len(tv)), shown])
    parts = [
        "## Tier toy: exact laws by enumeration",
        f"{len(lines)} cells, {sum(x['cpu_s'] for x in lines) / 60:.1f} CPU-minutes. Two requests, three words, blocks "
        "of three (three rounds: two words, blocks of two), steps per second that fall in jags, a perfect head; no "
        "sampling. Distance of the joint law of the first tokens of both requests to the target's; of the biased "
        "policies the mean over games with its 95 % bootstrap interval.",
        "\n".join(f"- {mark}" for mark in pass_marks(lines)),
        markdown(["policy", "rounds enumerated", "games", "total variation distance"], rows),
    ]
    return "\n\n".join(parts) + "\n"


def figure(lines: Sequence[Line]) -> Any:
    """Distance of every game by policy, logarithmic."""
    fig, axis = canvas((7, 3))
    for i, name in enumerate(POLICIES):
        tv = np.maximum(values(lines, "tv", policy=name), 1e-18)
        axis.plot(
            tv, np.full(len(tv), i), "o", color="#D55E00" if name in BIASED else "#0072B2", alpha=0.5, markersize=4
        )
    axis.axvline(EXACT, color="#000000", linestyle=":", linewidth=1)
    axis.set(xscale="log", xlabel="total variation distance to the target", yticks=range(len(POLICIES)))
    axis.set_yticklabels(POLICIES)
    axis.invert_yaxis()
    axis.grid(alpha=0.25)
    return fig
