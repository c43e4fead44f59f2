"""Tables, pass marks and figure of tier R, from its lines of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clew.audit.design import clustered
from clew.core.records import Report
from papers.drawing import canvas
from papers.stats import Mark, markdown

Line = dict[str, Any]
ORDER = (
    ("truncate", "none"),
    ("head-and-tail", "none"),
    *((how, who) for how in ("summarise", "hierarchical") for who in ("oracle", "extractive")),
)


def survival(line: Line, detector: str) -> Report:
    """Share of the rules that are still there, with a bootstrap over tasks: the four runs of a task are alike."""
    shares = (np.array(line[detector]) / line["rules"]).tolist()
    return clustered(f"rules that survive, by {detector}", shares, line["tasks"], unit="tasks")


def pick(lines: Sequence[Line], **wanted: Any) -> list[Line]:
    return [line for line in lines if all(line[k] == v for k, v in wanted.items())]


def pass_marks(lines: Sequence[Line]) -> list[Mark]:
    pinned, plain = pick(lines, pinned=True), [x for x in pick(lines, pinned=False) if x["delivery"] != "without"]
    kept = sum(sum(x["exact"]) for x in pinned)
    wanted = sum(x["rules"] * len(x["tasks"]) for x in pinned)
    torn = sum(x["torn"] for x in lines)
    runs = {len(x["tasks"]) for x in lines}
    marks = [
        Mark("runs in every cell", "all 100", str(sorted(runs)), runs == {100}),
        Mark("pinned, every cell", "every rule word for word", f"{kept} of {wanted}", kept == wanted),
        Mark("orphaned tool messages, every cell", "0", str(torn), torn == 0),
    ]
    for who in ("system", "user"):
        for line in pick(plain, delivery=who, strategy="head-and-tail"):
            name = f"{who}, head-and-tail, budget {line['budget']}: the head keeps the policy"
            marks.append(Mark(name, "1", survival(line, "exact"), min(line["exact"]) == line["rules"]))
    return marks


def report(lines: Sequence[Line]) -> str:
    """Markdown of the tier, pass marks first."""
    rows = []
    for delivery in ("system", "user", "tool", "without"):
        for how, who in ORDER:
            for line in pick(lines, delivery=delivery, strategy=how, summariser=who, pinned=False):
                rows.append([
                    delivery, how, who, f"{line['budget']:g}", str(survival(line, "exact")),
                    str(survival(line, "slots")), f"{line['over']}", f"{line['tokens']:,.0f}",
                ])  # fmt: skip
    block = max(line["block"] for line in lines)
    pinned = pick(lines, pinned=True)
    rules = lines[0]["rules"]
    parts = [
        "## Tier R: a real policy in 100 real runs",
        f"{rules} rules of the policy (`airline_rules.json`), 100 runs of 25 tasks, compacted once before the last "
        "reply; budget as a share of the history (leading system messages apart). Exact: the rule's sentence stands "
        "word for word in what the agent would see; slots: a sentence states it. Shares of the rules, 95 % bootstrap "
        "over tasks. Over: runs in which the strategy did not reach the budget. `without`: the control, no policy.",
        "\n".join(f"- {mark}" for mark in pass_marks(lines)),
        markdown(["policy told by", "strategy", "summariser", "budget", "exact", "slots", "over", "tokens sent"], rows),
        f"With all {rules} rules pinned, every rule is in every request of the {len(pinned)} cells, in one block of "
        f"{block} tokens.",
    ]
    return "\n\n".join(parts) + "\n"


def figure(lines: Sequence[Line]) -> Any:
    """Share of the rules that survive (slots), by budget, strategy and where the policy was told."""
    where = [d for d in ("system", "user", "tool", "without") if pick(lines, delivery=d)]
    fig, axes = canvas((2.6 * len(where), 3), 1, len(where), sharey=True, squeeze=False)
    colours = dict(zip(ORDER, ("#000000", "#E69F00", "#0072B2", "#56B4E9", "#D55E00", "#CC79A7"), strict=True))
    for axis, delivery in zip(axes[0], where, strict=True):
        for key, colour in colours.items():
            found = sorted(
                pick(lines, delivery=delivery, strategy=key[0], summariser=key[1], pinned=False),
                key=lambda x: x["budget"],
            )
            points = [survival(line, "slots") for line in found]
            label = key[0] + ("" if key[1] == "none" else f", {key[1]}")
            axis.plot(
                [x["budget"] for x in found],
                [p.estimate for p in points],
                "o-",
                markersize=3,
                color=colour,
                label=label,
            )
            axis.fill_between(
                [x["budget"] for x in found],
                [p.low for p in points],
                [p.high for p in points],
                color=colour,
                alpha=0.15,
                linewidth=0,
            )
        axis.set(title=delivery, xlabel="budget", ylim=(-0.03, 1.03))
        axis.grid(alpha=0.25)
    axes[0][0].set_ylabel("rules that survive")
    axes[0][-1].legend(frameon=False, fontsize=7)
    return fig
