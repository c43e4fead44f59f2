"""Tables, pass marks and figure of tier flaw, from its lines of results alone."""

from __future__ import annotations

import numpy as np

from papers.drawing import canvas, finish, whiskers
from papers.E168_metis.paired import Paired, paired, rates, small
from papers.E168_metis.tier_flaw import CARRIERS, FLAWS
from papers.stats import Lines, Mark, by_seed, document, gap, mark, markdown, minutes, select

SPEC = {"pages": (0.30, 0.45), "all": (0.55, 1.0)}  # failure of the tool that counts as met


def failed(lines: Lines, flaw: str, carrier: str, override: float = 0.0) -> np.ndarray:
    """The share of tasks that failed, by seed."""
    return 1 - rates(lines, flaw=flaw, condition=carrier, override=override)


def control(lines: Lines, flaw: str) -> Paired:
    """Text at override 0 less the tool."""
    a, b = (select(lines, flaw=flaw, condition=c, override=0.0) for c in ("text", "tool"))
    return paired(a, b)


def pass_marks(lines: Lines) -> list[Mark]:
    """P7."""
    out = []
    for flaw in FLAWS:
        tool, low, high = by_seed(failed(lines, flaw, "tool")), *SPEC[flaw]
        promise = f"{low:.2f} to {high:.2f} (.376)" if flaw == "pages" else f"at least {low:.2f} (pilot .63)"
        out.append(mark(f"P7 {flaw}: tool fails", promise, tool, least=low, most=high))
        half, seen = (failed(lines, flaw, "text", r) for r in (0.5, 1.0))
        share = gap(half, 0.5 * failed(lines, flaw, "tool"))
        out.append(
            mark(
                f"P7 {flaw}: text at override .5",
                "fails half as often as the tool, to .05",
                share,
                least=-0.05,
                most=0.05,
            )
        )
        out.append(mark(f"P7 {flaw}: text at override 1", "fails at most .05", by_seed(seen), most=0.05))
        same = control(lines, flaw)
        out.append(
            mark(
                f"P7 {flaw}: control, override 0",
                "text and tool within .02",
                same.gap,
                least=-0.02,
                most=0.02,
                told=str(same),
            )
        )
    short = by_seed(rates(lines, "short", flaw="pages", condition="tool", override=0.0))
    differ = by_seed(rates(lines, "differ", flaw="all", condition="tool", override=0.0))
    out += [
        mark("P7 pages needed > pages of the source", ".376 by the ranges", short, least=0.30, most=0.45),
        Mark("P7 a literal differs", "pilot .91", differ, None),
    ]
    return out


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    rows = []
    for flaw in FLAWS:
        for carrier, overrides in CARRIERS.items():
            for override in overrides:
                own = select(lines, flaw=flaw, condition=carrier, override=override)
                tool = select(lines, flaw=flaw, condition="tool", override=0.0)
                found = paired(own, tool)
                rows.append([flaw, carrier, f"{override:g}" if carrier == "text" else "", by_seed(1 - rates(own)),
                             found.gap, f"{found.up} / {found.down}", small(found.p)])  # fmt: skip
    seeds = len(select(lines, flaw="pages", condition="tool"))
    return document(
        "## Tier flaw: the same flaw as text and as a tool",
        f"{seeds} seeds of {len(lines[0]['success'])} tasks, 40 families, all facts told. "
        f"{minutes(lines):.1f} CPU-minutes.",
        pass_marks(lines),
        markdown("flaw | carrier | override | failed | success less the tool's | alone right / wrong | p", rows),
    )


def figure(lines: Lines) -> object:
    """Failure by override."""
    fig, axis = canvas((5, 2.8))
    for at, flaw in enumerate(FLAWS):
        found = [by_seed(failed(lines, flaw, "text", r)) for r in CARRIERS["text"]]
        whiskers(axis, CARRIERS["text"], found, fmt="o-", color=f"C{at}", label=f"{flaw}, as text")
        axis.axhline(failed(lines, flaw, "tool").mean(), color=f"C{at}", linestyle=":", label=f"{flaw}, as a tool")
    axis.set(xlabel="chance that the player does what the query asks instead", ylabel="failed", ylim=(0, 1))
    finish(axis)
    return fig
