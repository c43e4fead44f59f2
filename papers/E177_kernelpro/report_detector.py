"""Tables and pass marks of tier detector, from its lines of results alone."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from papers.drawing import canvas
from papers.E177_kernelpro.tier_detector import DETECTOR
from papers.stats import Line, Mark, document, markdown, share, table


def found(build: Line) -> bool:
    return any(rule in DETECTOR for rule in build["fired"])


def against(pair: Line) -> tuple[float, float]:
    """Seconds, and instructions a second, of the slow path over those of the fast one."""
    slow, fast = pair["slow"], pair["fast"]
    busy = (slow["instructions"] / slow["seconds"]) / (fast["instructions"] / fast["seconds"])
    return slow["seconds"] / fast["seconds"], busy


def marks(builds: Sequence[Line], pairs: Sequence[Line]) -> list[Mark]:
    counts = Counter((x["label"] != "none", found(x)) for x in builds)
    hit, slow, fired = counts[True, True], counts[True, True] + counts[True, False], sum(map(found, builds))
    ratios = [against(x) for x in pairs]
    twice = sum(x["slow"]["seconds"] >= 2 * x["fast"]["seconds"] for x in pairs)
    blind = sum(ratio >= 2 and abs(busy - 1) < 0.15 for ratio, busy in ratios)
    promise = "pairs twice as slow or more whose instructions a second differ by less than 15 %"
    told = f"{share(blind, twice)} of the pairs that are twice as slow"
    return [
        Mark("K1 recall", ">= .9 on 20 or more fall-backs", share(hit, slow), hit >= 0.9 * slow),
        Mark("K1 precision", ">= .9 of 40 or more builds", share(hit, fired), hit >= 0.9 * fired),
        Mark("K2", promise, told, twice > 0 and blind == twice),
    ]


def report(lines: Sequence[Line]) -> str:
    builds, pairs = ([x for x in lines if x["kind"] == kind] for kind in ("build", "pair"))
    wrong = [
        f"{x['name']} ({x['label']}): {', '.join(x['fired']) or 'nothing fired'}"
        for x in builds
        if (x["label"] != "none") != found(x)
    ]
    rows = []
    for kind in sorted({x["label"] for x in builds}):
        some = [x for x in builds if x["label"] == kind]
        fired = Counter(rule for x in some for rule in x["fired"])
        rows.append([kind, len(some), ", ".join(f"{rule} {n}" for rule, n in fired.most_common())])
    return document(
        "## Tier detector: slow paths that no utilisation figure shows",
        f"{len(builds)} labelled builds, {len(pairs)} pairs; 95 % Wilson intervals. A build counts as found where one "
        f"of {', '.join(DETECTOR)} fires.",
        marks(builds, pairs),
        markdown("slow path | builds | rules that fire", rows),
        "Misjudged: " + ("; ".join(wrong) or "none") + ".",
        table(
            pairs,
            ("slow", "name"),
            ("fast", "against"),
            ("seconds, slow over fast", lambda x: against(x)[0], ".2f"),
            ("instructions a second, slow over fast", lambda x: against(x)[1], ".2f"),
        ),
    )


def figure(lines: Sequence[Line]) -> Any:
    """Seconds against instructions a second of every pair, slow path over fast."""
    fig, axes = canvas((6, 4), font=10, layout=None)
    for x in lines:
        if x["kind"] == "pair":
            ratio, busy = against(x)
            axes.plot(busy, ratio, "o", color="tab:blue")
            axes.annotate(x["name"], (busy, ratio), fontsize=7, xytext=(4, 2), textcoords="offset points")
    axes.axvspan(0.85, 1.15, color="0.9")
    axes.axhline(2, color="0.6", linewidth=0.8)
    axes.set(xlabel="instructions a second, slow path over fast", ylabel="seconds, slow path over fast", yscale="log")
    return fig
