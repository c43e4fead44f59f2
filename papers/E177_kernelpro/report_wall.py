"""Table and pass marks of tier wall, from its lines of results alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.drawing import canvas
from papers.stats import Line, Mark, document, share, table


def report(lines: Sequence[Line]) -> str:
    cheats, honest, equal = ([x for x in lines if x["kind"] == kind] for kind in ("cheat", "honest", "equal"))
    caught, kept = (sum(bool(x["refused"]) for x in some) for some in (cheats, honest))
    gains, few = sum(x["gain"] for x in equal), 0.02 * len(equal)
    low, middle, high = np.quantile([x["ratio"] for x in equal], [0.025, 0.5, 0.975])
    return document(
        "## Tier wall: what is refused, and what equal times look like",
        [
            Mark("K5", "every cheat refused", share(caught, len(cheats)), caught == len(cheats)),
            Mark("K5", "at most 1 of 30 honest builds refused", share(kept, len(honest)), kept <= 1),
            Mark("K10", "at most 2 % of equal builds look faster", share(gains, len(equal)), gains <= few),
        ],
        f"{len(equal)} timings of a build against itself, beside other work on the machine: ratios {middle:.3f} "
        f"[{low:.3f}, {high:.3f}] (median and 95 % of them).",
        table(
            cheats,
            ("kernel", "name"),
            ("cheat", "arm"),
            ("why it was refused", lambda x: x["refused"] or "LET THROUGH"),
        ),
    )


def figure(lines: Sequence[Line]) -> Any:
    """Ratios of the times of a build and itself."""
    fig, axes = canvas((6, 3), font=10, layout=None)
    axes.hist([x["ratio"] for x in lines if x["kind"] == "equal"], bins=40)
    axes.axvline(1.02, color="tab:red", linewidth=0.8)
    axes.set(xlabel="ratio of the times of one build and itself", ylabel="timings")
    return fig
