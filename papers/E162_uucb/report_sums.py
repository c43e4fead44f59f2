"""Tables, marks and figure of the tier on `sums`, from its lines of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clew.core.records import Report
from papers.E162_uucb.tier_sums import ARMS, LEAVES, TASKS
from papers.stats import Mark, markdown, t_interval

Line = dict[str, Any]


class Lines:
    """Results by budget and arm, over seeds in order."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.all = sorted(lines, key=lambda line: line["seed"])

    def get(self, kind: str, arm: str, field: str) -> np.ndarray:
        return np.array([np.mean(x[field]) for x in self.all if x["kind"] == kind and x["arm"] == arm], dtype=float)


def over(x: np.ndarray) -> Report:
    """Mean over seeds; with one seed the interval is the value alone."""
    if len(x) > 1:
        return t_interval("", x)
    value = float(x[0])
    return Report(claim="", estimate=value, low=value, high=value, n=1, design="one seed, no interval")


def text(found: Report) -> str:
    return f"{found.estimate:.3f} [{found.low:.3f}, {found.high:.3f}]"


def report(lines: Sequence[Line]) -> str:
    """Markdown, pass marks first."""
    table = Lines(lines)
    seeds = len(table.get("leaves", "flat", "dead"))
    parts = [
        "# E162 in a real model: trees on `sums`",
        f"{len(lines)} cells, {seeds} seeds (each its own model, {TASKS} tasks and sampling), "
        f"{sum(x['cpu_s'] for x in lines) / 60:.1f} CPU-minutes. 95 % t intervals over seeds, paired. A group is dead "
        "where the judge's raw rewards are all equal.",
        "\n".join(f"- {mark}" for mark in marks(table)),
        f"## At equal tokens (as many as {LEAVES} flat rollouts take on average)",
        _table(table, "tokens"),
        f"## At equal leaves ({LEAVES})",
        _table(table, "leaves"),
        "CPU seconds are of collecting, with choosing, forking and storing; where a fork lies is a share of its "
        "reply. (In the committed lines the CPU time of flat rollouts at equal leaves holds the making of the model.) "
        "A budget is not overdrawn knowingly, so flat rollouts at equal tokens stop a little short of it; the "
        "marks compare with the flat rollouts at equal leaves, whose tokens set the budget.",
    ]
    return "\n\n".join(parts) + "\n"


def marks(table: Lines) -> list[Mark]:
    flat = over(table.get("leaves", "flat", "dead"))
    drop = over(table.get("leaves", "flat", "dead") - table.get("tokens", "uucb", "dead"))
    spent = over(table.get("tokens", "uucb", "tokens") / table.get("leaves", "flat", "tokens"))
    saving = over(table.get("leaves", "uucb", "tokens") / table.get("leaves", "flat", "tokens"))
    price = over(table.get("leaves", "uucb", "dead") - table.get("leaves", "flat", "dead"))
    time = over(table.get("leaves", "uucb", "collect_cpu") / table.get("tokens", "flat", "collect_cpu"))
    return [
        Mark("mix", "flat leaves .50 to .80 of groups dead", flat, 0.5 <= flat.estimate <= 0.8),
        Mark("equal tokens", "UUCB's tokens within 1 % of flat's", spent, abs(spent.estimate - 1) <= 0.01),
        Mark("dead groups", "UUCB at least .10 below flat, above 0", drop, drop.estimate >= 0.1 and drop.low > 0),
        Mark("saving", "tokens of 8 tree leaves at most .6 of flat's", saving, saving.estimate <= 0.6),
        Mark("its price", "dead share at that saving, tree minus flat (no mark)", price, True),
        Mark("CPU time", "of 8 tree leaves over flat's at equal tokens (no mark)", time, True),
    ]


def _table(table: Lines, kind: str) -> str:
    rows = []
    for arm in ARMS:
        if len(table.get(kind, arm, "dead")):
            fields = ("dead", "std", "success", "place")
            cells = [text(over(table.get(kind, arm, field))) for field in fields]
            numbers = [float(table.get(kind, arm, field).mean()) for field in ("tokens", "leaves", "collect_cpu")]
            rows.append([arm, *cells, f"{numbers[0]:.0f}", f"{numbers[1]:.1f}", f"{numbers[2]:.2f}"])
    head = ["selector", "dead groups", "group std", "mean reward of leaves", "where forks lie"]
    return markdown([*head, "tokens a task", "leaves a task", "CPU s"], rows)


def figure(lines: Sequence[Line], path: Path) -> None:
    """Dead share against decoded tokens, a point per arm and budget."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "E162", "font.size": 9})
    table = Lines(lines)
    fig, axis = plt.subplots(figsize=(5, 3.2), layout="constrained")
    colours = ("#000000", "#0072B2", "#009E73", "#D55E00", "#999999")
    for arm, colour in zip(ARMS, colours, strict=True):
        for kind, marker in (("tokens", "o"), ("leaves", "s")):
            dead = table.get(kind, arm, "dead")
            if len(dead):
                found, label = over(dead), arm if kind == "tokens" else None
                error = [[found.estimate - found.low], [found.high - found.estimate]]
                tokens = table.get(kind, arm, "tokens").mean()
                axis.errorbar(tokens, found.estimate, error, fmt=marker, color=colour, label=label, capsize=2)
    axis.set_xlabel("decoded tokens a task (circles: equal tokens, squares: equal leaves)")
    axis.set_ylabel("share of dead groups")
    axis.set_ylim(0, 1)
    axis.legend(frameon=False, fontsize=8)
    fig.savefig(path, metadata={"Date": None})
    plt.close(fig)
