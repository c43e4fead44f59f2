"""Tables, pass marks and figure of tier streams, from its lines of results alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from papers.drawing import canvas, finish, whiskers
from papers.E168_metis.paired import Paired, paired, rates, small
from papers.E168_metis.stream import STREAMS, WAYS
from papers.E168_metis.tier_streams import BUGGED, BUGS, MORE
from papers.stats import Lines, Mark, Report, Results, by_seed, document, mark, markdown, minutes, select, times

BUILD = ("reflection", "building", "checking")  # what the pilot calls build tokens
PARTS = (*BUILD, "retrieval")
CODE, EAGER = "code, ungated, trajectories", "metis 0"
BAD, GATE = "metis 3, trajectory codifier", "metis 3"
PILOT = {
    40: {
        "none": ".686, 8.27 turns, 1679 tokens", "text": ".981, 5.28, 1147, build 32.0k", CODE: ".373, 4.07",
        "text + eager trajectory tools": ".388", BAD: ".418", "metis 1": ".981, build 45.1k, 21 tools, 19 % unused",
        "metis 2": "build 41.6k, 13 % unused", GATE: ".981, 4.15, 956, build 39.6k, 12.2 tools, 8 % unused",
        "metis 5": "build 37.3k, 8 % unused",
    },
    150: {
        "none": ".743", "text": ".983", CODE: ".659", BAD: ".739", EAGER: ".982, build 74.9k, 69 tools, 34 % unused",
        GATE: "build 39.0k, 11 tools, 9 % unused",
    },
}  # fmt: skip


def build(line: dict[str, Any], parts: tuple[str, ...] = PARTS) -> float:
    """What the memory cost beside the executor, in tokens."""
    return float(sum(line[part] for part in parts))


def field(lines: Lines, name: str, **setting: Any) -> np.ndarray:
    return Results(lines).get(name, **setting)


def against(lines: Lines, first: str, second: str, families: int = 40, **more: Any) -> Paired:
    """Success of one condition less that of another."""
    a, b = (select(lines, families=families, condition=c, **more) for c in (first, second))
    return paired(a, b)


def plain(lines: Lines) -> Lines:
    return [line for line in lines if "bug" not in line]


def pass_marks(lines: Lines) -> list[Mark]:
    """P1 to P5 and P9, head-heavy unless said."""
    of = plain(lines)

    def gap(name: str, promise: str, first: str, second: str, **limit: float) -> Mark:
        found = against(of, first, second)
        return mark(name, promise, found.gap, told=str(found), **limit)

    def by(what: str, first: str, second: str, families: int = 40) -> Report:
        a, b = (field(of, what, families=families, condition=c) for c in (first, second))
        return times(a, b)

    turns, tokens = by("turns", GATE, "text"), by("executor", GATE, "text")
    tail = [select(of, families=150, condition=c) for c in (EAGER, GATE)]
    parts = {what: times(*([build(line, of) for line in one] for one in tail)) for what, of in
             (("build", BUILD), ("tools", BUILD[1:]), ("whole", PARTS))}  # fmt: skip
    waste = [np.array([line["unused"] / max(line["tools"], 1) for line in one]) for one in tail]
    wasted = by_ratio(*waste)
    every = [line for line in lines if line["refused"]]
    through, refused = (sum(line[name] for line in lines) for name in ("through", "refused"))
    charged = sum(line["charged"] for line in lines)
    return [
        gap("P1", "code from trajectories at most none - .10 (pilot -.31)", CODE, "none", most=-0.10),
        gap("P2", "text at least none + .10 (pilot +.295)", "text", "none", least=0.10),
        gap("P3 success", "Metis at least text - .01 (pilot .000)", GATE, "text", least=-0.01),
        mark("P3 turns", "at most .85 of text (pilot .79)", turns, most=0.85),
        mark("P3 tokens", "at most .90 of text (pilot .83)", tokens, most=0.90),
        mark("P4 build", "long tail: eager's reflection, building and checking at least 1.4 of theta 3 (pilot 1.92)",
             parts["build"], least=1.4),
        Mark("P4, other sums", "building and checking alone; with retrieval",
             f"{parts['tools']}; {parts['whole']}", None),
        mark("P4 unused", "long tail: unused share at least 2 x (pilot 3.8)", wasted, least=2),
        gap("P5", "trajectory codifier at most Metis - .2 (pilot -.56)", BAD, GATE, most=-0.2),
        Mark("P9", "every None falls through and every turn is charged",
             f"{through} of {refused} tasks in {len(every)} streams; charges right in {charged} of {len(lines)}",
             through == refused and charged == len(lines)),
    ]  # fmt: skip


def by_ratio(x: np.ndarray, y: np.ndarray) -> Report:
    """The ratio of two shares by seed; infinite where the second is 0 throughout."""
    return times(x, y) if y.sum() else Report("", float("inf"), float("inf"), float("inf"), len(x), "no second")


def table_of(lines: Lines, families: int) -> str:
    """A stream's table."""
    rows = []
    for name in (*WAYS, *MORE):
        of = select(plain(lines), families=families, condition=name)
        if not of:
            continue
        share = [line["unused"] / line["tools"] for line in of if line["tools"]]
        rows.append([
            name,
            by_seed(rates(of)),
            f"{np.mean([line['turns'] for line in of]):.2f}",
            f"{np.mean([line['executor'] for line in of]) / len(of[0]['success']):.0f}",
            *(f"{np.mean([line[part] for line in of]) / 1000:.1f}k" for part in PARTS),
            f"{np.mean([line['tools'] for line in of]):.1f}",
            f"{np.mean(share):.2f}" if share else "",
            f"{np.mean([line['retired'] for line in of]):.1f}",
            f"{np.mean([line['none'] for line in of]):.1f}",
            PILOT[families].get(name, ""),
        ])  # fmt: skip
    head = (
        "condition | success | turns | executor tokens a task | reflection | building | checking | retrieval | tools | "
        "unused | taken back | Nones | pilot"
    )
    return markdown(head, rows)


def compared(lines: Lines, families: int) -> str:
    """Success against text and against Metis, paired by task."""
    rows = []
    of = plain(lines)
    for name in (*WAYS, *MORE):
        if select(of, families=families, condition=name):
            both = [against(of, name, other, families) for other in ("text", GATE)]
            rows.append([name, *(cell for one in both for cell in (one.gap, f"{one.up} / {one.down}", small(one.p)))])
    return markdown(
        "condition | less text | alone right / alone wrong | p | less metis 3 | alone right / alone wrong | p", rows
    )


def bugged(lines: Lines) -> str:
    """The codifier that errs."""
    rows = []
    for bug in BUGS:
        for name in BUGGED:
            of, text = (
                select(lines, families=40, condition=name, bug=bug),
                select(plain(lines), families=40, condition="text"),
            )
            found = paired(of, [line for line in text if line["seed"] in {one["seed"] for one in of}])
            means = [f"{np.mean([line[what] for line in of]):.1f}" for what in ("tools", "flawed", "retired")]
            rows.append(
                [f"{bug}", name, by_seed(rates(of)), found.gap, f"{found.up} / {found.down}", small(found.p), *means]
            )
    return markdown(
        "error rate | condition | success | less text | alone right / wrong | p | tools | with a flaw | taken back",
        rows,
    )


def payback(lines: Lines, families: int) -> str:
    """Tasks after which what the memory cost is back, in executor tokens."""
    out = []
    base = np.mean(field(lines, "executor", families=families, condition="none"))
    n = len(lines[0]["success"])
    for name in ("text", GATE, "ski", "ours"):
        of = select(plain(lines), families=families, condition=name)
        saved = (base - np.mean([line["executor"] for line in of])) / n
        spent = np.mean([build(line) for line in of])
        out.append(f"{name} {spent:,.0f} tokens, {saved:,.0f} saved a task, back after {spent / saved:,.0f} tasks")
    return "; ".join(out)


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    seeds = len(select(plain(lines), families=40, condition="none"))
    parts = [
        "## Tier streams: what text and tools are worth",
        f"{seeds} seeds of {len(lines[0]['success'])} tasks; marks have bootstrap or Student's intervals over seeds; p "
        f"is McNemar's exact over paired tasks. {minutes(lines):.1f} CPU-minutes.",
        pass_marks(lines),
    ]
    for families in STREAMS:
        parts += [
            f"### {families} families, exponent {STREAMS[families]}",
            table_of(lines, families),
            compared(lines, families),
            f"Break-even against none: {payback(plain(lines), families)}.",
        ]
    parts += ["### A codifier that errs (assumption: with chance rate / distinct queries)", bugged(lines)]
    return document(*parts)


def figure(lines: Lines) -> object:
    """Success and whole cost by condition."""
    names = [*WAYS, *MORE]
    fig, axes = canvas((8.5, 4.6), columns=2, sharey=True)
    for at, families in enumerate(STREAMS):
        own = {y: select(plain(lines), families=families, condition=name) for y, name in enumerate(names)}
        own = {y: of for y, of in own.items() if of}
        places, n = [y + 0.25 * at for y in own], len(own[0][0]["success"])
        how = {"fmt": "o", "ms": 3, "color": f"C{at}", "label": f"{families} families", "along": "x"}
        whiskers(axes[0], places, [by_seed(rates(of)) for of in own.values()], **how)
        whole = [by_seed([(line["executor"] + build(line)) / n for line in of]) for of in own.values()]
        whiskers(axes[1], places, whole, **how)
    axes[0].set(xlabel="success", xlim=(0.3, 1.02), yticks=range(len(names)), yticklabels=names)
    axes[0].invert_yaxis()
    axes[1].set(xlabel="tokens a task, the memory's own counted")
    finish(axes[0], loc="lower left")
    finish(axes[1], font=None)
    return fig
