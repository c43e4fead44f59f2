"""Table and pass marks of tier search, from its lines of results alone."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.drawing import canvas
from papers.E177_kernelpro.tier_search import searched
from papers.stats import Line, Mark, document, markdown, share

SEEDS = 60
ARMS = ("random", "greedy", "one by one", "everything", "guided", "shuffled", "mcts")
REACHED = 0.9  # of the best log speed-up of the table


def top(line: Line) -> float:
    return max(row["speed"] for row in line["rows"])


def evaluations(line: Line, arm: str) -> np.ndarray:
    """Tries [seeds] until 90 % of the best log speed-up; the size of the table where it is not reached."""
    wanted, most = math.exp(REACHED * math.log(top(line))), len(line["rows"])
    ends = [next((i for i, speed in enumerate(path, 1) if speed >= wanted), most) for path in paths(line, arm)]
    return np.array(ends, float)


def paths(line: Line, arm: str) -> list[list[float]]:
    """Best so far along the searches of every seed; kept with the line, as table and figure both want them."""
    kept: dict[str, list[list[float]]] = line.setdefault("paths", {})
    if arm not in kept:
        kept[arm] = [searched(line, arm, seed) for seed in range(SEEDS)]
    return kept[arm]


def marks(kind: str, medians: Sequence[dict[str, float]]) -> list[Mark]:
    """Of one set of kernels, from each arm's median tries on each."""
    n = len(medians)
    if not n:
        return []
    saves = sum(m["guided"] <= 0.7 * m["random"] for m in medians)
    beats = sum(m["guided"] <= m["greedy"] for m in medians)
    worse = sum(m["shuffled"] > m["random"] for m in medians)
    ahead, behind = (sum(sign * (m["guided"] - m["everything"]) < 0 for m in medians) for sign in (1, -1))
    everything = "advice in fewer tries than every option at its last value at once"
    return [
        Mark(f"K3, {kind}", "guided median <= .7 x random on 4 of 5", share(saves, n), saves >= 0.8 * n),
        Mark(f"K3, {kind}", "guided median tries <= greedy's on every kernel", share(beats, n), beats == n),
        Mark(f"K4, {kind}", "shuffled advice slower than random on 3 of 5", share(worse, n), worse >= 0.6 * n),
        Mark(f"control, {kind}", everything, f"fewer on {ahead} of {n}, more on {behind}", ahead > behind),
    ]


def report(lines: Sequence[Line]) -> str:
    tries = [{arm: evaluations(line, arm) for arm in ARMS} for line in lines]
    rows, medians = [], []
    for line, found in zip(lines, tries, strict=True):
        medians.append((line["kind"], {arm: float(np.median(found[arm])) for arm in ARMS}))
        failed = sum(not row["speed"] for row in line["rows"])
        cells = [f"{np.median(found[arm]):g} ({found[arm].mean():.1f})" for arm in ARMS]
        rows.append([line["kind"], line["name"], len(line["rows"]), failed, f"{top(line):.1f}", *cells])
    sets = ("fresh", "held out", "looked at")
    return document(
        "## Tier search: does advice shorten the search?",
        f"{len(lines)} kernels, every build measured once, {SEEDS} seeds an arm: median (mean) tries until "
        f"{REACHED:.0%} of the best log speed-up. Greedy is hill climbing with restarts; one by "
        "one is greedy with the advised changes first; guided follows all advice of a build in one step before that; "
        "everything begins with all options at their last values whatever is advised; shuffled is guided by advice "
        "whose moves have changed places. `held out` and `fresh` kernels were written by people who had not seen the "
        "rules; guided was settled on the tables of the others before any fresh kernel was built.",
        [mark for kind in sets for mark in marks(kind, [m for k, m in medians if k == kind])],
        markdown(["set", "kernel", "builds", "failed", "best speed-up", *ARMS], rows),
    )


def figure(lines: Sequence[Line]) -> Any:
    """Geometric mean of the best speed-up so far by tries, a panel for each kernel."""
    columns = min(4, len(lines))
    rows = -(-len(lines) // columns)
    fig, grid = canvas((3 * columns, 2.4 * rows), rows, columns, squeeze=False, font=10, layout=None)
    for axes in grid.flat[len(lines) :]:
        axes.set_axis_off()
    for axes, line in zip(grid.flat, lines, strict=False):
        for arm in ("random", "greedy", "guided", "shuffled"):
            found = [path[:30] for path in paths(line, arm)]
            shortest = min(map(len, found))
            axes.plot(range(1, shortest + 1), np.exp(np.mean([np.log(p[:shortest]) for p in found], axis=0)), label=arm)
        axes.set_title(f"{line['name']} ({line['kind']})", fontsize=8)
        axes.set(xlabel="tries", yscale="log")
    grid.flat[0].legend(fontsize=6)
    grid.flat[0].set_ylabel("geometric mean speed-up")
    return fig
