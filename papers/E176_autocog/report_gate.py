"""Table and pass marks (V5) of tier gate, from its lines of results alone."""

from __future__ import annotations

from clew.core.records import Report
from papers.drawing import canvas, finish, whiskers
from papers.E176_autocog.tier_gate import LEVELS
from papers.stats import Lines, Mark, document, mark, markdown, minutes, pooled, text, values

ROWS = [(rule, "same") for rule in LEVELS] + [("clew", "different")]


def rate(lines: Lines, rule: str, pair: str) -> Report:
    accepted, searches = (values(lines, field, rule=rule, pair=pair).sum() for field in ("accepted", "searches"))
    return pooled(float(accepted), float(searches))


def pass_marks(lines: Lines) -> list[Mark]:
    same, different = rate(lines, "clew", "same"), rate(lines, "clew", "different")
    published = rate(lines, "published", "same")
    return [
        mark("V5", "a theory is called different from itself in <= .02 of searches", same, most=0.02),
        mark("V5", "the published setting does so in .35 or more (the pilot: about .50)", published, 0.35),
        mark("control", "theories that differ are told apart in .9 of searches or more", different, 0.9),
    ]


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    rows = []
    for rule, pair in ROWS:
        searches = values(lines, "searches", rule=rule, pair=pair).sum()
        attempts = values(lines, "attempts", rule=rule, pair=pair).sum() / searches
        rows.append([rule, pair, f"{int(searches)}", text(rate(lines, rule, pair)), f"{attempts:.1f}"])
    return document(
        "## Tier gate: how often the gate is fooled",
        "Welch's test on 25 against 25 simulated people, up to twelve attempts; the same theory under a metric drawn "
        f"by lot, or two theories under a metric that tells them apart. {minutes(lines):.1f} CPU-minutes.",
        pass_marks(lines),
        markdown("rule | theories | searches | called different | attempts, mean", rows),
    )


def figure(lines: Lines) -> object:
    """Searches in which a theory is called different from itself, by rule."""
    fig, axis = canvas((4, 2.4))
    found = [rate(lines, rule, "same") for rule in LEVELS]
    whiskers(axis, range(len(found)), found, along="x", fmt="o", color="C0")
    axis.axvline(0.02, color="grey", lw=0.8)
    axis.set(xlabel="called different from itself", yticks=range(len(found)), xlim=(0, 1))
    axis.set_yticklabels(list(LEVELS))
    finish(axis, font=None)
    return fig
