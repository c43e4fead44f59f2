"""Tables, pass mark R8 and figure of tier sweep, from its lines of results alone."""

from __future__ import annotations

from papers.drawing import canvas, finish, whiskers
from papers.E178_redqueen.tier_sweep import GATES
from papers.stats import Lines, Mark, Results, document, gap, mark, markdown, minutes, over, text


def anchors(results: Results) -> list[int]:
    return sorted({line["anchor"] for line in results.of(labels=0.0)})


def pass_marks(results: Results) -> list[Mark]:
    """R8 for the gate ``confirm``, and what it costs beside the published gate."""
    found = []
    for n in anchors(results):
        at = {"gate": "confirm", "anchor": n, "labels": 0.0}
        optimism = gap(results.get("on_anchor", **at), results.get("judge", **at))
        found.append(mark("R8", f"confirm, anchor {n}: optimism <= .04", optimism, most=0.04))
        published = results.get("skill", **{**at, "gate": "bb"})
        cost = gap(results.get("skill", **at), published)
        found.append(Mark("bar 3", f"final skill of confirm less bb, anchor {n}", cost, None))
    return found


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    results = Results(lines)
    settings = [(n, gate, 0.0) for n in anchors(results) for gate in GATES]
    settings += [(100, gate, driven) for driven in (0.5, 0.8) for gate in ("bb", "confirm")]
    rows = []
    n_seeds = len(results.of(gate="bb", anchor=100, labels=0.0))
    for n, gate, driven in settings:
        at = {"gate": gate, "anchor": n, "labels": driven}
        if not results.of(**at):
            continue
        skill = results.get("skill", **at)
        fields = ("judge", "on_anchor", "ratio", "replaced", "comparisons")
        cells = [text(over(results.get(field, **at)), 2) for field in fields]
        optimism = text(gap(results.get("on_anchor", **at), results.get("judge", **at)), 2)
        rows.append(
            [f"{n}", gate, f"{driven:.1f}", f"{text(over(skill), 2)} (min {skill.min():.2f})", *cells, optimism]
        )
    return document(
        "## Tier sweep: anchors and gates",
        "Gates: bb (published), paired (McNemar p < .05 at each checkpoint), confirm (nominated on open validation "
        "items, tested on the whole anchor by a wealth of .05 a search), half confirm (nominated on one half, tested "
        f"on the other). Labels: share of the anchor's labels that say gloss. {n_seeds} "
        f"seeds, the worlds of tier modes. {minutes(lines):.1f} CPU-minutes.",
        pass_marks(results),
        markdown(
            "anchor | gate | labels by gloss | true skill | judge right | on its anchor | matched ratio | replaced | "
            "comparisons | optimism",
            rows,
        ),
    )


def figure(lines: Lines) -> object:
    """True skill over the size of the anchor, by gate."""
    fig, axis = canvas((5, 2.8))
    results = Results(lines)
    known = anchors(results)
    for at, gate in enumerate(GATES):
        found = [over(results.get("skill", gate=gate, anchor=n, labels=0.0)) for n in known]
        places = [i + 0.1 * (at - 1.5) for i in range(len(known))]
        whiskers(axis, places, found, fmt="o-", color=f"C{at}", label=gate)
    axis.set(xlabel="items of the anchor", ylabel="true skill", xticks=range(len(known)))
    axis.set_xticklabels([str(n) for n in known])
    finish(axis)
    return fig
