"""Tables, pass marks and figure of tier R, from its lines of results alone."""

from typing import Any

import numpy as np

from clew.methods.compare.design import clustered
from papers.drawing import band, canvas, finish
from papers.stats import Line, Lines, Mark, Report, document, table

DELIVERIES = ("system", "user", "tool", "without")
ORDER = (
    ("truncate", "none"),
    ("head-and-tail", "none"),
    *((how, who) for how in ("summarise", "hierarchical") for who in ("oracle", "extractive")),
)


def survival(line: Line, detector: str) -> Report:
    """Share of the rules that are still there, with a bootstrap over tasks: the four runs of a task are alike."""
    shares = (np.array(line[detector]) / line["rules"]).tolist()
    return clustered(f"rules that survive, by {detector}", shares, line["tasks"], unit="tasks")


def pick(lines: Lines, **wanted: Any) -> list[Line]:
    return [line for line in lines if all(line[k] == v for k, v in wanted.items())]


def pass_marks(lines: Lines) -> list[Mark]:
    pinned, torn = pick(lines, pinned=True), sum(x["torn"] for x in lines)
    kept, wanted = sum(sum(x["exact"]) for x in pinned), sum(x["rules"] * len(x["tasks"]) for x in pinned)
    runs = {len(x["tasks"]) for x in lines}
    heads = [x for who in ("system", "user") for x in pick(lines, pinned=False, delivery=who, strategy="head-and-tail")]
    return [
        Mark("runs in every cell", "all 100", str(sorted(runs)), runs == {100}),
        Mark("pinned, every cell", "every rule word for word", f"{kept} of {wanted}", kept == wanted),
        Mark("orphaned tool messages, every cell", "0", str(torn), torn == 0),
        *(
            Mark(f"{x['delivery']}, head-and-tail, budget {x['budget']}: the head keeps the policy", "1",
                 survival(x, "exact"), min(x["exact"]) == x["rules"])
            for x in heads
        ),
    ]  # fmt: skip


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    rules, block, pinned = lines[0]["rules"], max(line["block"] for line in lines), pick(lines, pinned=True)
    return document(
        "## Tier R: a real policy in 100 real runs",
        f"{rules} rules of the policy (`airline_rules.json`), 100 runs of 25 tasks, compacted once before the last "
        "reply; budget as a share of the history (leading system messages apart). Exact: the rule's sentence stands "
        "word for word in what the agent would see; slots: a sentence states it. Shares of the rules, 95 % bootstrap "
        "over tasks. Over: runs in which the strategy did not reach the budget. `without`: the control, no policy.",
        pass_marks(lines),
        table(
            [
                line
                for delivery in DELIVERIES
                for how, who in ORDER
                for line in pick(lines, delivery=delivery, strategy=how, summariser=who, pinned=False)
            ],
            ("policy told by", "delivery"),
            ("strategy", "strategy"),
            ("summariser", "summariser"),
            ("budget", "budget", "g"),
            ("exact", lambda x: str(survival(x, "exact"))),
            ("slots", lambda x: str(survival(x, "slots"))),
            ("over", "over"),
            ("tokens sent", "tokens", ",.0f"),
        ),
        f"With all {rules} rules pinned, every rule is in every request of the {len(pinned)} cells, in one block of "
        f"{block} tokens.",
    )


def figure(lines: Lines) -> object:
    """Share of the rules that survive (slots), by budget, strategy and where the policy was told."""
    where = [d for d in DELIVERIES if pick(lines, delivery=d)]
    fig, axes = canvas((2.6 * len(where), 3), 1, len(where), sharey=True, squeeze=False)
    colours = dict(zip(ORDER, ("#000000", "#E69F00", "#0072B2", "#56B4E9", "#D55E00", "#CC79A7"), strict=True))
    for axis, delivery in zip(axes[0], where, strict=True):
        for (how, who), colour in colours.items():
            found = pick(lines, delivery=delivery, strategy=how, summariser=who, pinned=False)
            found.sort(key=lambda x: x["budget"])
            label = how + ("" if who == "none" else f", {who}")
            points = [survival(line, "slots") for line in found]
            band(axis, [x["budget"] for x in found], points, "o-", alpha=0.15, markersize=3, color=colour, label=label)
        axis.set(title=delivery, xlabel="budget", ylim=(-0.03, 1.03))
    axes[0][0].set_ylabel("rules that survive")
    finish(*axes[0], font=None)
    finish(axes[0][-1], font=7, grid=False)
    return fig
