"""Table, pass marks and figure of tier store, from its lines of results alone."""

from __future__ import annotations

import numpy as np

from papers.drawing import canvas, finish
from papers.E168_metis.tier_store import WAYS
from papers.stats import Lines, Mark, by_seed, document, markdown, minutes, select


def pass_marks(lines: Lines) -> list[Mark]:
    same = sum(line["same"] for line in lines)
    n = sum(len(line["success"]) for line in lines)
    promise = "recorded and bare come to the same: every step, every count, every token"
    return [Mark("store", promise, f"{same} of {len(lines)} streams, {n} tasks", same == len(lines))]


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    rows = []
    for name in WAYS:
        own = select(lines, condition=name)
        each = [[1000 * s / len(line["success"]) for s in line["seconds"]] for line in own]
        found = [by_seed([one[at] for one in each]) for at in (0, 1)]
        rows.append([name, f"{len(own)}", *(f"{one.estimate:.1f} [{one.low:.1f}, {one.high:.1f}]" for one in found)])
    return document(
        "## Tier store: the loop with everything recorded",
        f"CPU-milliseconds a task, on the machine that made the lines; {minutes(lines):.1f} CPU-minutes.",
        pass_marks(lines),
        markdown("condition | streams | recorded, memory in a store | bare", rows),
    )


def figure(lines: Lines) -> object:
    """Milliseconds a task, both ways."""
    fig, axis = canvas((5, 2.6))
    for at, label in enumerate(("recorded", "bare")):
        means = [
            np.mean([1000 * line["seconds"][at] / len(line["success"]) for line in select(lines, condition=name)])
            for name in WAYS
        ]
        axis.bar([x + 0.35 * at for x in range(len(WAYS))], means, width=0.35, label=label)
    axis.set(ylabel="CPU-milliseconds a task", xticks=range(len(WAYS)), xticklabels=list(WAYS), yscale="log")
    finish(axis)
    return fig
