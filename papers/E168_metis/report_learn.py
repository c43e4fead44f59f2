"""Table, pass marks and figure of tier learn, from its lines of results alone."""

from __future__ import annotations

from collections import Counter

from papers.drawing import canvas, finish, whiskers
from papers.E168_metis.paired import paired, rates, small
from papers.E168_metis.tier_learn import SCREENS
from papers.stats import Lines, Mark, by_seed, document, markdown, minutes, select

BASE = "no screen"


def pass_marks(lines: Lines) -> list[Mark]:
    out = []
    for name in SCREENS:
        if name != BASE:
            found = paired(select(lines, condition=name), select(lines, condition=BASE))
            out.append(Mark(name, "success less that without a screen", str(found), None))
    failed = sum(line["failed"] for line in lines)
    n = sum(len(line["success"]) for line in lines)
    return [*out, Mark("learn", "no reflection fails", f"{failed} of {n}", failed == 0)]


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    rows, reasons = [], []
    for name in SCREENS:
        own = select(lines, condition=name)
        ruled = sum((Counter(line["ruled"]) for line in own), Counter[str]())
        told = "; ".join(f"{what} {count}" for what, count in sorted(ruled.items()))
        found = paired(own, select(lines, condition=BASE))
        turns, items = (by_seed([line[field] for line in own]) for field in ("turns", "items"))
        rows.append([name, by_seed(rates(own)), f"{found.up} / {found.down}", small(found.p), turns, items, told])
        why = Counter[str]()
        for line in own:
            why.update(dict(line["dropped"]))
        reasons += [f"{name}: {count} x {reason}." for reason, count in why.most_common(3)]
    n = len(select(lines, condition=BASE))
    return document(
        "## Tier learn: the same text memory by Clew's own learn and recall",
        f"{n} seeds of {len(lines[0]['success'])} tasks, 40 families, every run recorded; facts and pitfalls are "
        f"given. {minutes(lines):.1f} CPU-minutes.",
        pass_marks(lines),
        markdown("screen | success | alone right / wrong against none | p | turns | items in use | rulings", rows),
        "What was dropped, and why. " + " ".join(reasons) if reasons else "",
    )


def figure(lines: Lines) -> object:
    """Success by screen."""
    fig, axis = canvas((5, 2.2))
    found = [by_seed(rates(lines, condition=name)) for name in SCREENS]
    whiskers(axis, range(len(SCREENS)), found, fmt="o", along="x")
    axis.set(xlabel="success", yticks=range(len(SCREENS)), yticklabels=list(SCREENS))
    axis.invert_yaxis()
    finish(axis, font=None)
    return fig
