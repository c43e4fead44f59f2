"""Tables, pass marks (R9, bar 3) and figure of tier equal, from its lines of results alone."""

from __future__ import annotations

from papers.drawing import canvas, finish, whiskers
from papers.E178_redqueen.tier_equal import CHECKPOINTS, GATES, SEARCHES
from papers.stats import Lines, Mark, document, markdown, minutes, pooled, select, text, values

PUBLISHED = {100: {1: 0.46, 5: 0.81, 20: 0.93, 100: 0.98}, 400: {1: 0.48, 5: 0.83, 20: 0.94, 100: 0.99}}


def axes(lines: Lines) -> tuple[list[int], list[int]]:
    own = select(lines, errors="independent")
    return sorted({line["anchor"] for line in own}), sorted({line["challengers"] for line in own})


def totals(lines: Lines, gate: str, anchor: int, m: int) -> tuple[int, int, int, float]:
    """Checkpoints that replaced, searches that did, searches in all, and the mean optimism of a winner."""
    at = {"errors": "independent", "gate": gate, "anchor": anchor, "challengers": m}
    times, hit = int(values(lines, "checkpoints", **at).sum()), int(values(lines, "searches", **at).sum())
    optimism = float(values(lines, "optimism", **at).sum()) / max(times, 1)
    return times, hit, SEARCHES * len(select(lines, **at)), optimism


def pass_marks(lines: Lines) -> list[Mark]:
    anchors, many = axes(lines)
    found = []
    for gate in GATES:
        own = select(lines, errors="twins", gate=gate)
        replaced, erased = sum(line["replaced"] for line in own), sum(line["erased"] for line in own)
        compared = sum(line["comparisons"] for line in own)
        told = f"{replaced} replacements and {erased} erased in {compared:,} comparisons of {len(own)} searches"
        found.append(Mark("R9", f"twins of the judge under {gate}: none", told, replaced == erased == 0 < compared))
    for n in (n for n in PUBLISHED if n in anchors):
        for m in many:
            times, _, searches, _ = totals(lines, "bb", n, m)
            rate = pooled(times, searches * CHECKPOINTS)
            wanted = PUBLISHED[n][m]
            said = f"bb, anchor {n}, {m} equal challengers: within .03 of the pilot's {wanted:.2f}"
            found.append(Mark("R9", said, rate, abs(rate.estimate - wanted) <= 0.03))
    for gate in ("confirm", "half confirm"):
        rates = {(n, m): totals(lines, gate, n, m)[1:3] for n in anchors for m in many}
        worst = max(rates, key=lambda key: rates[key][0] / rates[key][1])
        rate = pooled(*rates[worst])
        said = f"{gate}: a search of equal judges replaces one in <= 5 %, the worst of {len(rates)} settings {worst}"
        found.append(Mark("bar 3", said, rate, rate.estimate <= 0.05))
    return found


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    anchors, many = axes(lines)
    rows = []
    for gate in GATES:
        for n in anchors:
            for m in many:
                times, hit, searches, optimism = totals(lines, gate, n, m)
                each, whole = pooled(times, searches * CHECKPOINTS), pooled(hit, searches)
                rows.append([gate, f"{n}", f"{m}", text(each), text(whole), f"{optimism:+.3f}" if times else "none"])
    return document(
        "## Tier equal: judges of one quality",
        f"Incumbent and challengers are right on an item with chance .75, independently; {CHECKPOINTS} checkpoints a "
        "search, fresh challengers at each. Optimism: by how much a winner's share of the anchor exceeds .75. "
        f"{minutes(lines):.1f} CPU-minutes.",
        pass_marks(lines),
        markdown("gate | anchor | challengers | checkpoints that replace | searches that replace | optimism", rows),
    )


def figure(lines: Lines) -> object:
    """Searches that replace an equal judge, by challengers, at an anchor of 100."""
    fig, axis = canvas((5, 2.8))
    _, many = axes(lines)
    for at, gate in enumerate(GATES):
        found = [pooled(*totals(lines, gate, 100, m)[1:3]) for m in many]
        places = [i + 0.08 * (at - 1.5) for i in range(len(many))]
        whiskers(axis, places, found, fmt="o-", color=f"C{at}", label=gate)
    axis.axhline(0.05, color="grey", lw=0.8)
    axis.set(xlabel="challengers at a checkpoint", ylabel="searches that replace", xticks=range(len(many)))
    axis.set_xticklabels([str(m) for m in many])
    finish(axis)
    return fig
