"""Tables, pass marks and figure of tier shadow, from its lines of results alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from papers.drawing import canvas, finish, whiskers
from papers.E168_metis.tier_shadow import CALLS, PLANTED
from papers.stats import Lines, Mark, document, markdown, minutes, pooled, select


class Tried(NamedTuple):
    """A tool: its flaw, whether an end state differed, whether it was admitted, how often it errs later."""

    flaw: str
    seen: bool
    admitted: bool
    later: int
    answered: int


def tools(lines: Lines, calls: int, condition: str = "planted") -> list[Tried]:
    def each() -> Iterator[Tried]:
        for line in select(lines, condition=condition, calls=calls):
            for one in zip(*(line[f] for f in ("flaws", "seen", "admitted", "later", "answered")), strict=True):
                yield Tried(*one)

    return list(each())


def pass_marks(lines: Lines) -> list[Mark]:
    """Improvement 3."""
    out = []
    for calls in sorted({line["calls"] for line in lines}):
        planted, honest = tools(lines, calls), tools(lines, calls, "honest")
        both = sum(one.seen and one.admitted for one in planted)
        kept = sum(one.admitted for one in honest)
        out += [
            Mark(f"8.3, {calls} calls", "no tool is admitted whose end state differed in a shadow run",
                 f"{both} of {len(planted)} planted tools, {sum(one.seen for one in planted)} of which differed",
                 both == 0),
        ]  # fmt: skip
        if honest:
            out.append(
                Mark(
                    f"8.3, {calls} calls, honest",
                    "tools without a flaw that are admitted",
                    pooled(kept, len(honest)),
                    None,
                )
            )
    return out


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    rows = []
    for calls in sorted({line["calls"] for line in lines}):
        for flaw in PLANTED[1:]:
            own = [one for one in tools(lines, calls) if one.flaw == flaw]
            admitted = [one for one in own if one.admitted]
            wrong = pooled(sum(one.later for one in own), sum(one.answered for one in own))
            left = (
                pooled(sum(one.later for one in admitted), sum(one.answered for one in admitted))
                if admitted
                else "none"
            )
            rows.append([f"{calls}", flaw, f"{len(own)}", wrong, pooled(len(admitted), len(own)), left])
    return document(
        "## Tier shadow: what a shadow run lets through",
        'Flaws: one page alone is read; "is not" is read as "is"; the second filter is left out; a tool from one '
        "trajectory. A flaw that no shadow call meets is admitted with the tool: the mark counts those that were met. "
        f"{minutes(lines):.1f} CPU-minutes.",
        pass_marks(lines),
        markdown(
            "calls | flaw | tools | end states that differ on 20 later tasks | admitted | of these, differ later",
            rows,
        ),
    )


def figure(lines: Lines) -> object:
    """Admitted by calls."""
    fig, axis = canvas((5, 2.8))
    known = [calls for calls in CALLS if select(lines, calls=calls)]
    for at, flaw in enumerate(PLANTED[1:]):
        own = [[one for one in tools(lines, calls) if one.flaw == flaw] for calls in known]
        found = [pooled(sum(one.admitted for one in of), len(of)) for of in own]
        whiskers(axis, [x + 0.08 * at for x in known], found, fmt="o-", color=f"C{at}", label=flaw)
    axis.set(xlabel="shadow calls", ylabel="admitted", xticks=known)
    finish(axis)
    return fig
