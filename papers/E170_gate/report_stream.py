"""The gate's oracle runs against the best one-line rule's, order by order."""

import numpy as np

from clew.core.records import Report
from papers.drawing import canvas
from papers.E170_gate.tier_fresh import SEEDS
from papers.E170_gate.tier_stream import SETTINGS
from papers.stats import Line, Lines, Mark, by_seed, document, minutes, select, table, text, values

MOST, LOST, NOTHING = 1.05, 0.01, 0.01
NAMES = {
    "all": "all five critics",
    "half": "`half` alone",
    "weak": "without the asserts",
    "noise": "verdicts dealt anew",
}


def row(ours: list[Line]) -> Line:
    """One set and setting over its orders."""
    runs, rule, n, good, lost = (values(ours, f) for f in ("oracle", "rule_oracle", "n", "good", "lost"))
    rules, ones = [x["rule"] for x in ours], [x["one"] for x in ours]
    return {
        "kind": ours[0]["kind"],
        "setting": NAMES[ours[0]["program"]],
        "orders": len(ours),
        "n": int(n[0]),
        "runs": runs.mean(),
        "rule": max(set(rules), key=rules.count),
        "rule_runs": rule.mean(),
        "total": by_seed(runs / rule),
        "after": by_seed(values(ours, "after") / values(ours, "rule_after")),
        "one": max(set(ones), key=ones.count),
        "one_total": by_seed(runs / values(ours, "one_oracle")),
        "one_after": by_seed(values(ours, "after") / values(ours, "one_after")),
        "saved": by_seed(1 - runs / n),
        "lost": by_seed(lost / good),
    }


def marks(x: Line, program: str) -> list[Mark]:
    where = f"{x['kind']} set, {x['setting']}"
    if program in ("weak", "noise"):
        told = f"{text(x['saved'])} saved, right ones lost {text(x['lost'])}, {x['orders']} orders of {x['n']}"
        return [Mark(f"control ({where})", "saves under 1 %", told, x["saved"].high < NOTHING)]

    def within(found: Report) -> bool:
        return found.high <= MOST and x["lost"].high <= LOST

    return [
        Mark(
            f"{name} ({where})",
            "at most 1.05 times the best rule's oracle runs at equal quality",
            f"{text(found)} ({x['orders']} orders of {x['n']} candidates), right ones lost {text(x['lost'])}",
            within(found),
        )
        for name, found in (("cold start included", x["total"]), ("after 100 labels", x["after"]))
    ]


def report(lines: Lines) -> str:
    rows = [(row(ours), s) for kind in SEEDS for s in SETTINGS if (ours := select(lines, kind=kind, program=s))]
    return document(
        "## Tier stream: the gate from its cold start",
        f"{len(lines)} streams, {minutes(lines):.1f} CPU-minutes. The gate's defaults; the best rule of one or two "
        "critics is picked in hindsight, of those that lose no more right candidates than the gate lost on the same "
        "stream. Nothing ships unverified, so that neither accepts a wrong candidate. The second set is the one that "
        "counts. Intervals are Student's over orders of the same candidates.",
        [mark for x, program in rows for mark in marks(x, program)],
        table(
            [x for x, _ in rows],
            ("set", "kind"),
            ("critics", "setting"),
            ("candidates", "n"),
            ("gate's oracle runs", "runs", ".1f"),
            ("best rule", "rule"),
            ("its runs", "rule_runs", ".1f"),
            ("ratio", "total", ".3f"),
            ("ratio after 100 labels", "after", ".3f"),
            ("best of one critic", "one"),
            ("ratio to that", "one_total", ".3f"),
            ("after 100 labels", "one_after", ".3f"),
            ("saved of verify always", "saved", ".3f"),
            ("right ones lost", "lost", ".4f"),
        ),
    )


def figure(lines: Lines) -> object:
    """Ratio of oracle runs to the best rule's, each order a dot."""
    fig, axis = canvas((5, 2.4))
    for i, kind in enumerate(SEEDS):
        for j, program in enumerate(("all", "half")):
            ours = select(lines, kind=kind, program=program)
            for k, (top, bottom) in enumerate((("oracle", "rule_oracle"), ("after", "rule_after"))):
                x = 4 * i + 2 * j + k
                axis.plot(np.full(len(ours), x), values(ours, top) / values(ours, bottom), ".", alpha=0.6)
    axis.axhline(MOST, color="grey", lw=0.8)
    axis.set_xticks(range(8), [f"{k}\n{p}\n{w}" for k in SEEDS for p in ("all", "half") for w in ("total", ">100")])
    axis.set_ylabel("oracle runs / best rule's")
    return fig
