"""Tables, marks and figure of the tier on `sums`, from its lines of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Any

import numpy as np

from clew.core.records import Report
from papers.drawing import canvas
from papers.E162_uucb.tier_sums import ARMS, LEAVES, ROUNDS, SPARE, TASKS
from papers.stats import Mark, markdown, select, t_interval, text

Line = dict[str, Any]
COLOURS = ("#000000", "#BBBBBB", "#777777", "#009E73", "#E69F00", "#D55E00", "#0072B2", "#CC79A7")


class Lines:
    """Results by budget and arm, over seeds in order."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.all = lines

    def of(self, kind: str, arm: str) -> list[Line]:
        return select(self.all, kind=kind, arm=arm)

    def get(self, kind: str, arm: str, field: str) -> np.ndarray:
        """Mean of a field by seed; its median for the repeated times."""
        middle = np.median if field.endswith("_cpu") else np.mean
        return np.array([middle(x[field]) for x in self.of(kind, arm)], dtype=float)

    def ratios(self, kind: str, arm: str) -> np.ndarray:
        """CPU time over that of eight flat rollouts measured just before, every seed and round."""
        found = [np.array(x["collect_cpu"]) / np.array(x["flat_cpu"]) for x in self.of(kind, arm)]
        return np.concatenate(found)


def over(x: np.ndarray) -> Report:
    return t_interval("", x)


def spread(x: np.ndarray) -> str:
    return f"{np.median(x):.2f} [{x.min():.2f}, {x.max():.2f}]"


def report(lines: Sequence[Line]) -> str:
    """Markdown, pass marks first."""
    table = Lines(lines)
    seeds = len(table.of("leaves", "flat"))
    parts = [
        "# E162 in a real model: trees on `sums`",
        f"{len(lines)} cells, {seeds} seeds (each its own model, {TASKS} tasks and sampling), "
        f"{sum(x['cpu_s'] for x in lines) / 60:.1f} CPU-minutes. 95 % t intervals over seeds, paired. A group is dead "
        "where the judge's raw rewards are all equal.",
        "\n".join(f"- {mark}" for mark in marks(table)),
        f"## At equal tokens (as many as {LEAVES} flat rollouts take on average)",
        _table(table, "tokens"),
        "No budget is overdrawn knowingly: flat rollouts at equal tokens stop short of it, since a whole one no longer "
        f"fits, and trees fill it. The marks therefore compare with the {LEAVES} flat rollouts that set the budget.",
        "## Dead share at equal tokens, selector minus UUCB, paired",
        _against(table),
        f"## At equal leaves ({LEAVES})",
        _table(table, "leaves"),
        f"## Budget moved: {SPARE:.1%} of all tokens kept for trees whose outcomes are all alike (UUCB)",
        _moves(table),
        "## At equal CPU time: flat rollouts given what UUCB took for its tokens",
        _table(table, "time", ("flat",)),
        "## What it costs",
        _costs(table),
    ]
    return "\n\n".join(parts) + "\n"


def marks(table: Lines) -> list[Mark]:
    flat = over(table.get("leaves", "flat", "dead"))
    drop = over(table.get("leaves", "flat", "dead") - table.get("tokens", "uucb", "dead"))
    spent = over(table.get("tokens", "uucb", "tokens") / table.get("leaves", "flat", "tokens"))
    saving = over(table.get("leaves", "uucb", "tokens") / table.get("leaves", "flat", "tokens"))
    return [
        Mark("mix", f"{LEAVES} flat rollouts leave .50 to .80 of groups dead", flat, 0.5 <= flat.estimate <= 0.8),
        Mark("equal tokens", "UUCB decodes at most 1.01 of their tokens", spent, spent.estimate <= 1.01),
        Mark("dead groups", "UUCB at least .10 below flat, above 0", drop, drop.estimate >= 0.1 and drop.low > 0),
        Mark("saving", f"tokens of {LEAVES} tree leaves at most .6 of flat's", saving, saving.estimate <= 0.6),
    ]


def _table(table: Lines, kind: str, arms: Sequence[str] = tuple(ARMS)) -> str:
    rows = []
    for arm in arms:
        if table.of(kind, arm):
            fields = ("dead", "std", "success", "place")
            cells = [text(over(table.get(kind, arm, field))) for field in fields]
            tokens, leaves = (float(table.get(kind, arm, field).mean()) for field in ("tokens", "leaves"))
            rows.append([arm, *cells, f"{tokens:.0f}", f"{leaves:.1f}", spread(table.ratios(kind, arm))])
    head = ["selector", "dead groups", "group std", "mean reward of leaves", "where forks lie"]
    return markdown([*head, "tokens a task", "leaves a task", f"CPU time over that of {LEAVES} flat"], rows)


def _against(table: Lines) -> str:
    rows = []
    for arm in ARMS:
        if arm != "uucb" and table.of("tokens", arm):
            gap = table.get("tokens", arm, "dead") - table.get("tokens", "uucb", "dead")
            rows.append([arm, text(over(gap)), " ".join(f"{x:+.2f}" for x in gap)])
    return markdown(["selector", "gap", "by seed"], rows)


def _moves(table: Lines) -> str:
    rows = []
    for kind, arm, told in (("tokens", "uucb", "none"), ("moved", "even", "even"), ("moved", "learned", "learned")):
        if table.of(kind, arm):
            gap = table.get(kind, arm, "dead") - table.get("tokens", "uucb", "dead")
            tokens, leaves = (float(table.get(kind, arm, field).mean()) for field in ("tokens", "leaves"))
            cells = [text(over(table.get(kind, arm, "dead"))), text(over(gap)), " ".join(f"{x:+.2f}" for x in gap)]
            rows.append([told, *cells, text(over(table.get(kind, arm, "std"))), f"{tokens:.0f}", f"{leaves:.1f}"])
    head = ["allocator", "dead groups", "minus not moved, paired", "by seed", "group std"]
    told = f"The learned one has seen {TASKS} other tasks collected with even shares."
    return markdown([*head, "tokens a task", "leaves a task"], rows) + f"\n\n{told}"


def chance_dead(line: Line, leaves: int) -> float:
    """Expected share of dead groups had only ``leaves`` of each group's flat rollouts been made; exact."""
    n = round(line["leaves"])
    alike = [(comb(n - won, leaves) + comb(won, leaves)) / comb(n, leaves) for won in line["won"]]
    return float(np.mean(alike))


def needed(line: Line, dead: float) -> int:
    """The fewest flat rollouts a task that leave at most this share of groups dead; all of the line's, if none do."""
    n = round(line["leaves"])
    return next((k for k in range(2, n + 1) if chance_dead(line, k) <= dead), n)


def _costs(table: Lines) -> str:
    price = over(table.get("leaves", "uucb", "dead") - table.get("leaves", "flat", "dead"))
    timed = over(table.get("time", "flat", "dead") - table.get("tokens", "uucb", "dead"))
    flat, trees = table.of("time", "flat"), table.of("tokens", "uucb")
    fewest = np.array([needed(a, float(np.mean(b["dead"]))) for a, b in zip(flat, trees, strict=True)], dtype=float)
    leaves, tokens = table.get("time", "flat", "leaves"), table.get("tokens", "uucb", "tokens")
    same = fewest * table.get("time", "flat", "tokens") / leaves  # tokens of that many flat rollouts
    seconds = fewest * table.get("time", "flat", "collect_cpu") / leaves
    extra = (table.get("tokens", "uucb", "collect_cpu") - seconds) / TASKS
    found = [
        f"Dead share at equal leaves, UUCB minus flat: {text(price)}.",
        f"Dead share at equal CPU time, flat minus UUCB: {text(timed)}.",
        f"Flat rollouts a task that leave as few groups dead as UUCB at equal tokens: {text(over(fewest), 1)}, which "
        f"take {text(over(same / tokens), 2)} times its tokens (expected over subsets of those at equal CPU time).",
        f"CPU time that a decoded token must cost beyond what it costs here for a tree to break even: "
        f"{text(over(1e6 * extra / (same - tokens)), 0)} microseconds.",
    ]
    rounds = f"CPU times are of collecting, with choosing, forking and storing; medians of {ROUNDS} rounds in turn."
    ratios = "Their ratio in the tables is the median over seeds and rounds, with the least and the greatest."
    return "\n".join(f"- {line}" for line in found) + f"\n\n{rounds} {ratios}"


def figure(lines: Sequence[Line]) -> Any:
    """Dead share against decoded tokens: flat sampling as a curve, a point per selector and budget."""
    table = Lines(lines)
    fig, axis = canvas((6.5, 3.6))
    flat = table.of("time", "flat")
    counts = range(2, min(round(line["leaves"]) for line in flat) + 1)
    each = float(np.mean([line["tokens"] / line["leaves"] for line in flat]))
    curve = [np.mean([chance_dead(line, k) for line in flat]) for k in counts]
    axis.plot([k * each for k in counts], curve, color=COLOURS[0], linewidth=1, label="flat, any number")
    for i, (arm, colour) in enumerate(zip(ARMS, COLOURS, strict=True)):
        for kind, marker in (("tokens", "o"), ("leaves", "s")):
            dead = table.get(kind, arm, "dead")
            if len(dead):
                found, label = over(dead), arm if kind == "tokens" else None
                error = [[found.estimate - found.low], [found.high - found.estimate]]
                tokens = table.get(kind, arm, "tokens").mean()
                beside = tokens + 5 * (i - len(ARMS) / 2)  # so that none hides another
                axis.errorbar(beside, found.estimate, error, fmt=marker, color=colour, label=label, capsize=2, ms=4)
    axis.set_xlabel("tokens decoded per task (circles: equal tokens, squares: equal leaves; set apart sideways)")
    axis.set_ylabel("share of dead groups")
    axis.set_xlim(0, 2.5 * LEAVES * each)
    axis.set_ylim(0, 1)
    axis.legend(frameon=False, fontsize=8, loc="upper right")
    return fig
