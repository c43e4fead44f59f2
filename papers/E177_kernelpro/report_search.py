"""Tables and pass marks of the tiers search and tree, from their lines of results alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from papers.E177_kernelpro.report_rules import Sheet, keep, share
from papers.E177_kernelpro.tier_search import searched
from papers.stats import Mark, interval, markdown, mean

Line = dict[str, Any]
SEEDS = 60
ARMS = ("random", "greedy", "one by one", "everything", "guided", "shuffled", "mcts")
REACHED = 0.9  # of the best log speed-up of the table


def top(line: Line) -> float:
    return max(row["speed"] for row in line["rows"])


def evaluations(line: Line, arm: str) -> np.ndarray:
    """Tries [seeds] until 90 % of the best log speed-up; the size of the table where it is not reached."""
    wanted = math.exp(REACHED * math.log(top(line)))
    ends = (
        next((i for i, speed in enumerate(path, 1) if speed >= wanted), len(line["rows"])) for path in paths(line, arm)
    )
    return np.array(list(ends), float)


def paths(line: Line, arm: str) -> list[list[float]]:
    """Best so far along the searches of every seed; kept with the line, as table and figure both want them."""
    kept: dict[str, list[list[float]]] = line.setdefault("paths", {})
    if arm not in kept:
        kept[arm] = [searched(line, arm, seed) for seed in range(SEEDS)]
    return kept[arm]


def search(lines: Sequence[Line]) -> str:
    rows, counts = [], {}
    for line in lines:
        counts[line["kind"], line["name"]] = {arm: evaluations(line, arm) for arm in ARMS}
    for (kind, name), found in counts.items():
        line = next(x for x in lines if (x["kind"], x["name"]) == (kind, name))
        failed = sum(not row["speed"] for row in line["rows"])
        cells = [f"{np.median(found[arm]):g} ({interval('', mean, found[arm]).estimate:.1f})" for arm in ARMS]
        rows.append([kind, name, str(len(line["rows"])), str(failed), f"{top(line):.1f}", *cells])
    marks = []
    for kind in ("fresh", "held out", "looked at"):
        some = [found for (k, _), found in counts.items() if k == kind]
        n = len(some)
        if n:
            medians = [{arm: float(np.median(found[arm])) for arm in ARMS} for found in some]
            saves = sum(m["guided"] <= 0.7 * m["random"] for m in medians)
            beats = sum(m["guided"] <= m["greedy"] for m in medians)
            worse = sum(m["shuffled"] > m["random"] for m in medians)
            ahead = sum(m["guided"] < m["everything"] for m in medians)
            behind = sum(m["guided"] > m["everything"] for m in medians)
            marks += [
                Mark(f"K3, {kind}", "guided median <= .7 x random on 4 of 5", share(saves, n), saves >= 0.8 * n),
                Mark(f"K3, {kind}", "guided median tries <= greedy's on every kernel", share(beats, n), beats == n),
                Mark(f"K4, {kind}", "shuffled advice slower than random on 3 of 5", share(worse, n), worse >= 0.6 * n),
                Mark(f"control, {kind}", "advice in fewer tries than every option at its last value at once",
                     f"fewer on {ahead} of {n}, more on {behind}", ahead > behind),
            ]  # fmt: skip
    table = ["set", "kernel", "builds", "failed", "best speed-up", *ARMS]
    parts = [
        "## Tier search: does advice shorten the search?",
        f"{len(lines)} kernels, every build measured once, {SEEDS} seeds an arm: median (mean) tries until "
        f"{REACHED:.0%} of the best log speed-up. Greedy is hill climbing with restarts; one by "
        "one is greedy with the advised changes first; guided follows all advice of a build in one step before that; "
        "everything begins with all options at their last values whatever is advised; shuffled is guided by advice "
        "whose moves have changed places. `held out` and `fresh` kernels were written by people who had not seen the "
        "rules; guided was settled on the tables of the others before any fresh kernel was built.",
        "\n".join(f"- {mark}" for mark in marks),
        markdown(table, rows),
    ]
    return "\n\n".join(parts) + "\n"


def search_figure(lines: Sequence[Line], path: Path) -> None:
    import matplotlib.pyplot as plt

    columns = min(4, len(lines))
    rows = -(-len(lines) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(3 * columns, 2.4 * rows), squeeze=False)
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
    keep(figure, path)


def tree(lines: Sequence[Line]) -> str:
    parts = ["## Tier tree: the reward of the tree search, and whether a tree is needed"]
    six = {arm: [x for x in lines if x["kind"] == "K6" and x["name"] == arm] for arm in ("log", "linear")}
    share_of = {arm: interval("", mean, np.array([x["share"] for x in found])) for arm, found in six.items()}
    best = {arm: interval("", mean, np.array([x["best"] for x in found])) for arm, found in six.items()}
    marks = [
        Mark("K6", "linear reward spends >= 60 % of visits on the lucky branch", str(share_of["linear"]),
             share_of["linear"].estimate >= 0.6),
        Mark("K6", "log reward <= 45 %", str(share_of["log"]), share_of["log"].estimate <= 0.45),
        Mark("K6", "final best not worse with log reward", f"{best['log']} against {best['linear']}",
             best["log"].estimate >= best["linear"].estimate),
    ]  # fmt: skip
    rows = []
    for line in (x for x in lines if x["kind"] == "K7"):
        reached = {arm: sum(b >= REACHED * line["top"] for b in found) for arm, found in line["bests"].items()}
        ratio = reached["mcts"] / max(1, reached["greedy"])
        found = f"{share(reached['mcts'], SEEDS)} against {share(reached['greedy'], SEEDS)}"
        marks.append(
            Mark("K7", "tree search reaches .9 of the best in 1.3 x as many seeds as greedy", found, ratio >= 1.3)
        )
        for arm, bests in line["bests"].items():
            rows.append([arm, str(interval("", mean, np.array(bests))), share(reached[arm], SEEDS)])
        alone = ", ".join(f"{name} {speed:.2f}" for name, speed in line["alone"].items())
        parts.append(f"Packed product: {line['size']} builds, best {line['top']:.2f}; each change alone: {alone}.")
    parts[1:1] = ["\n".join(f"- {mark}" for mark in marks)]
    return (
        "\n\n".join([*parts, markdown(["search", "best after 60 tries", "seeds that reach .9 of the best"], rows)])
        + "\n"
    )


def tree_figure(lines: Sequence[Line], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3))
    for place, arm in enumerate(("log", "linear")):
        left.boxplot([x["share"] for x in lines if x["name"] == arm], positions=[place])
    left.set_xticks([0, 1], ["log", "linear"])
    left.set_ylabel("share of visits on the lucky branch")
    for line in (x for x in lines if x["kind"] == "K7"):
        right.boxplot(list(line["bests"].values()))
        right.set_xticks(range(1, len(line["bests"]) + 1), list(line["bests"]))
        right.axhline(REACHED * line["top"], color="0.6", linewidth=0.8)
    right.set_ylabel("best speed-up after 60 tries")
    keep(figure, path)


SEARCH, TREE = Sheet(search, search_figure), Sheet(tree, tree_figure)
