"""Tables, pass marks and figure of tier drift, from its lines of results alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from papers.drawing import band, canvas, finish
from papers.E168_metis.paired import digits, paired, small
from papers.E168_metis.tier_drift import DRIFT, WAYS
from papers.stats import Lines, Mark, Report, by_seed, document, gap, mark, markdown, minutes, select

ROW, WINDOW = 3, 20  # tasks right in a row that count as recovered; tasks of a point of the figure


def recovery(line: dict[str, Any]) -> int:
    """Tasks of the changed app after the drift until so many in a row are right; all of them where that never was."""
    right = [r for r, hit in zip(digits(line)[DRIFT:], digits(line, "hit")[DRIFT:], strict=True) if hit]
    for at in range(len(right) - ROW + 1):
        if all(right[at : at + ROW]):
            return at
    return len(right)


def share(lines: Lines, name: str, first: int, last: int) -> np.ndarray:
    """Success on the changed app's tasks of a part of the stream, by seed; NaN where there are none."""
    out = []
    for line in select(lines, condition=name):
        right = digits(line)[first:last][digits(line, "hit")[first:last] == 1]
        out.append(right.mean() if len(right) else np.nan)
    return np.array(out)


def held(x: np.ndarray) -> Report:
    return by_seed(x[~np.isnan(x)])


def less(a: np.ndarray, b: np.ndarray) -> Report:
    known = ~(np.isnan(a) | np.isnan(b))
    return gap(a[known], b[known])


def late(lines: Lines, name: str) -> list[dict[str, Any]]:
    """Lines of the changed app's tasks after the drift alone, for McNemar's test."""
    return [
        {"success": "".join(s for s, h in zip(x["success"][DRIFT:], x["hit"][DRIFT:], strict=True) if h == "1") or "0"}
        for x in select(lines, condition=name)
    ]


def pass_marks(lines: Lines) -> list[Mark]:
    """P8 and improvement 2."""
    end = len(lines[0]["success"])
    last = {name: share(lines, name, end - 50, end) for name in WAYS}
    times = {name: by_seed([recovery(line) for line in select(lines, condition=name)]) for name in WAYS}
    broken = paired(late(lines, "tool"), late(lines, "text"))
    mended = paired(late(lines, "tool, demotion"), late(lines, "tool"))
    return [
        mark("P8 text", "recovers within 3 tasks of the app", times["text"], most=3),
        mark("P8 tool, the paper's way", "stays broken: at least .10 below text in the last 50 tasks",
             less(last["tool"], last["text"]), most=-0.10),
        Mark("P8 tool after the drift", "less text", str(broken), None),
        mark("P8 demotion", "in the last 50 tasks within .05 of text", less(last["tool, demotion"], last["text"]),
             least=-0.05),
        Mark("P8 demotion, last 25", "the same, less text",
             less(share(lines, "tool, demotion", end - 25, end), share(lines, "text", end - 25, end)), None),
        Mark("P8 demotion after the drift", "less the tool without", str(mended), None),
        mark("8.4 invalidation", "in the last 50 tasks within .05 of text",
             less(last["tool, invalidation"], last["text"]), least=-0.05),
        mark("a tool that reads facts", "in the last 50 tasks within .05 of text",
             less(last["tool that reads facts"], last["text"]), least=-0.05),
    ]  # fmt: skip


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    rows, end = [], len(lines[0]["success"])
    for name in WAYS:
        own = select(lines, condition=name)
        found = paired(late(lines, name), late(lines, "text"))
        turns = [
            np.mean(np.array(line["each"])[DRIFT:][digits(line, "hit")[DRIFT:] == 1])
            for line in own
            if "1" in line["hit"][DRIFT:]
        ]
        rows.append([
            name, held(share(lines, name, DRIFT // 2, DRIFT)), held(share(lines, name, DRIFT, DRIFT + 50)),
            held(share(lines, name, end - 50, end)), by_seed([recovery(line) for line in own]), f"{np.mean(turns):.2f}",
            f"{np.mean([line['retired'] for line in own]):.1f}", f"{found.up} / {found.down}", small(found.p),
        ])  # fmt: skip
    head = (
        "condition | success before (50 to 99) | 100 to 149 | last 50 | tasks to recovery | turns after | taken back | "
        "alone right / wrong against text | p"
    )
    seeds = len(select(lines, condition="text"))
    return document(
        "## Tier drift: an endpoint is renamed at task 100",
        f"{seeds} seeds, 40 families; all figures are of the tasks of the app that changes. Recovery counts its tasks "
        f"until {ROW} in a row are right; one that never recovers counts all. {minutes(lines):.1f} CPU-minutes.",
        pass_marks(lines),
        markdown(head, rows),
    )


def figure(lines: Lines) -> object:
    """Success on the changed app over the stream."""
    fig, axis = canvas((6.5, 3))
    end = len(lines[0]["success"])
    places = list(range(0, end, WINDOW))
    for at, name in enumerate(WAYS):
        found = [held(share(lines, name, place, place + WINDOW)) for place in places]
        band(axis, [place + WINDOW / 2 for place in places], found, label=name, color=f"C{at}", alpha=0.12)
    axis.axvline(DRIFT, color="grey", linewidth=1)
    axis.set(xlabel="task", ylabel="success, the changed app", ylim=(0, 1.02))
    finish(axis, loc="lower left")
    return fig
