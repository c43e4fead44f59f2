"""Tables, pass marks and figure of tier worth, from its lines of results alone."""

from __future__ import annotations

from collections import Counter

import numpy as np

from papers.drawing import canvas, finish, whiskers
from papers.E168_metis.tier_worth import KINDS, RIGHT, SEEN, TOLD_AT, sizes, wrong
from papers.stats import Lines, Mark, document, mark, markdown, minutes, pooled, show

AUDITED = ("planted", "noisy", "idle")


def of(lines: Lines, *kinds: str) -> Lines:
    return [line for line in lines if line["kind"] in kinds]


def new(lines: Lines) -> Lines:
    """Memories that nobody had looked at when the rule for cost was made; ``--quick`` has none, and shows another."""
    return [line for line in lines if line["seed"] not in SEEN] or lines


def called(lines: Lines, what: str, n: int) -> Counter[str]:
    """The verdicts on items that were planted as something, at a number of pairs."""
    calls: Counter[str] = Counter()
    for line in lines:
        calls.update(line["verdicts"][str(n)].get(what, {}))
    return calls


def right(lines: Lines, kind: str, what: str, n: int) -> tuple[int, int]:
    """Items that were called what they are, and all of them."""
    calls = called(of(lines, kind), what, n)
    return calls[RIGHT[what]], sum(calls.values())


def pass_marks(lines: Lines) -> list[Mark]:
    """Bar 3: calls harmful and helpful right with the stated error, and says "cannot tell" where n is too small."""
    fresh, ns = new(lines), sizes(lines[0])
    most = ns[-1]
    out = []
    for kind in AUDITED:
        mine = of(fresh, kind)
        bad = [sum(line["wrong"][str(n)] > 0 for line in mine) for n in ns]
        worst = pooled(max(bad), len(mine))
        told = f"{', '.join(f'{b} at {n}' for n, b in zip(ns, bad, strict=True))}, of {len(mine)}; worst {show(worst)}"
        promise = "audits, by pairs, that call an item helpful or harmful that is not: at most .05"
        out.append(mark(f"error, {kind}", promise, worst, most=0.05, told=told))
    few: Counter[str] = Counter()
    for what in KINDS:
        few += called(of(fresh, *AUDITED), what, ns[0])
    told = ", ".join(f"{count} {verdict}" for verdict, count in few.items())
    out.append(Mark("few pairs", f"at {ns[0]} pairs all is `cannot tell`", told, set(few) == {"cannot tell"}))
    for kind in ("planted", "noisy"):
        for what in KINDS:
            hits, n = right(fresh, kind, what, most)
            if n:
                found = pooled(hits, n)
                out.append(Mark(f"{what}, {kind}", f"called {RIGHT[what]!r} at {most} pairs", show(found), None))
    noise = np.sum([line["noise"][str(most)] for line in of(lines, "simulated")], 0).tolist()
    found = pooled(noise[2], noise[3])
    out.append(mark("error, simulated", f"audits with a false call at {most} pairs: at most .05", found, most=0.05))
    return out


def verdicts(lines: Lines, kind: str) -> str:
    """A row for each plant: how often it was called right, by pairs."""
    mine, ns, rows = of(lines, kind), sizes(lines[0]), []
    for what in KINDS:
        known = [line["worth"][what] for line in mine if line["worth"].get(what)]
        if not known:
            continue
        success, turns = np.mean(known, 0)
        cells = []
        for n in ns:
            calls = called(mine, what, n)
            odd = wrong(what, calls)
            cells.append(f"{calls[RIGHT[what]]}{f' ({odd} wrong)' if odd else ''}")
        every = sum(called(mine, what, ns[-1]).values())
        last = show(pooled(*right(lines, kind, what, ns[-1])), ".2f")
        rows.append([what, f"{every}", f"{success:+.2f}, {turns:+.1f}", *cells, last])
    return markdown(["planted", "n", "success, turns", *map(str, ns), f"at {ns[-1]} [95 %]"], rows)


def foretold(lines: Lines) -> str:
    """Whether the number of runs that would decide was told well."""
    told = np.sum([line["foreseen"] for line in of(lines, "planted", "noisy")], 0).tolist()
    soon, then, late, after = told
    most = sizes(lines[0])[-1]
    return (
        f"Undecided at {TOLD_AT} pairs and said to take up to {most}: {then} of {soon} are decided there; said to take "
        f"more: {after} of {late}."
    )


def false_calls(lines: Lines) -> str:
    """Calls of what does nothing, by pairs."""
    rows = []
    for n in sizes(lines[0]):
        idle = [line["wrong"][str(n)] for line in of(lines, "idle")]
        items = sum(sum(line["items"].values()) for line in of(lines, "idle"))
        noise = np.sum([line["noise"][str(n)] for line in of(lines, "simulated")], 0).tolist()
        hits, odd, every = np.sum([line["effect"][str(n)] for line in of(lines, "simulated")], 0).tolist()
        rows.append([f"{n}", f"{sum(idle)} of {items}", show(pooled(sum(x > 0 for x in idle), len(idle)), ".2f"),
                     f"{noise[0]} of {noise[1]}", show(pooled(noise[2], noise[3]), ".3f"),
                     show(pooled(hits, every), ".2f"), f"{odd}"])  # fmt: skip
    head = (
        "pairs | idle: false calls | memories with one | simulated: false calls | audits with one | "
        "effects of .3 called right | called the wrong way"
    )
    return markdown(head, rows)


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first; the memories that the rule for cost was made by stand apart."""
    fresh, seen = new(lines), [line for line in lines if line["seed"] in SEEN]
    which = "made after the rule for cost was" if len(fresh) < len(lines) else "that the rule for cost was made by"
    parts = [
        "## Tier worth: what `clew memory audit` says of planted memories",
        f"{len(of(fresh, 'planted'))} memories {which}, {lines[0]['errands']} runs for each of three apps. Verdicts "
        f"hold over all items of an audit; n: items. {minutes(lines):.1f} CPU-minutes.",
        pass_marks(lines),
    ]
    for kind in ("planted", "noisy"):
        parts += [f"### {kind}: called right, by pairs of forks", verdicts(fresh, kind)]
    parts += [foretold(fresh), "### Items that do nothing, and effects of known size", false_calls(fresh)]
    if seen and len(seen) < len(lines):
        parts.append(f"### The {len(of(seen, 'planted'))} memories that the rule for cost was made by")
        for kind in ("planted", "noisy"):
            parts += [f"{kind}:", verdicts(seen, kind)]
        parts.append(foretold(seen))
    return document(*parts)


def figure(lines: Lines) -> object:
    """Called right by pairs of forks, a panel for each kind of player."""
    fresh, ns = new(lines), sizes(lines[0])
    fig, axes = canvas((8, 3), columns=2, sharey=True)
    for axis, kind in zip(axes, ("planted", "noisy"), strict=True):
        for at, what in enumerate(KINDS):
            counts = [right(fresh, kind, what, n) for n in ns]
            if counts[-1][1]:
                found = [pooled(*one) for one in counts]
                places = [x + 0.07 * at for x in range(len(ns))]
                whiskers(axis, places, found, fmt="o-", ms=3, color=f"C{at}", label=what)
        axis.set(title=kind, xlabel="pairs of forks", xticks=range(len(ns)), xticklabels=ns)
    axes[0].set(ylabel="called right", ylim=(-0.03, 1.03))
    finish(axes[0])
    finish(axes[1], font=None)
    return fig
