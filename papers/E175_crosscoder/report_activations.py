"""Tables and marks of layer 0, from its lines of results alone. The marks are those of specs/E175, section 9."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clew.core.records import Report
from papers.drawing import canvas, finish
from papers.E175_crosscoder.activations import OWN, SHARED
from papers.E175_crosscoder.tier_activations import METHODS
from papers.stats import Line, Mark, Results, by_seed, document, mark, markdown, minutes, show


def _over(lines: Results, field: str, **setting: Any) -> Report | None:
    found = lines.get(field, **setting)
    if not len(found):
        return None
    if len(found) > 1:
        return by_seed(found)
    value = float(found[0])
    return Report(claim=field, estimate=value, low=value, high=value, n=1, design="one seed, no interval")


def report(lines: Sequence[Line]) -> str:
    """Markdown, pass marks first."""
    t = Results(lines)
    return document(
        "# E175 on states whose features are known",
        f"{SHARED} shared features, {OWN} of A alone and {OWN} of B alone, width 48, 256 latents, k = 8; "
        f"{len(t.all)} cells, {minutes(t.all):.1f} CPU-minutes. Mean over seeds with Student's interval; "
        "recall counts planted directions that a latent called exclusive has a cosine of .8 with, false is the share "
        "of latents called exclusive that have none.",
        marks(t),
        *[
            _table(t, often, cosine)
            for often, cosine in sorted({(x["often"], x["cosine"]) for x in t.all}, reverse=True)
        ],
    )


def marks(t: Results) -> list[Mark]:
    at = {"often": 0.03, "cosine": 0.97}
    out = []
    leak = max(x["leak"] for x in t.all)
    out.append(Mark("masks", "weights across a mask exactly 0", f"{leak:g} at most, {len(t.all)} fits", leak == 0))
    for method, field, least, most, name in (
        ("plain, TopK", "recall", 0.9, 1.0, "plain crosscoder, recall at least .9"),
        ("plain, TopK", "false", 0.0, 0.1, "plain crosscoder, false at most .1"),
        ("reseated, TopK", "recall", 0.8, 1.0, "re-seated, recall at least .8"),
        ("reseated, TopK", "false", 0.0, 0.35, "re-seated, false at most .35"),
        ("dedicated, TopK", "recall", 0.0, 0.2, "dedicated as released, recall at most .2"),
    ):
        if (found := _over(t, field, method=method, **at)) is not None:
            out.append(mark("layer 0, 3 %", name, found, least=least, most=most))
    return out


def _table(t: Results, often: float, cosine: float) -> str:
    rows = []
    for method in METHODS:
        setting = {"method": method, "often": often, "cosine": cosine}
        if not t.of(**setting):
            continue
        cells: list[str] = []
        for field in ("recall", "false", "anywhere"):
            found = _over(t, field, **setting)
            assert found is not None
            cells.append(show(found, ".2f"))
        left = np.mean([x["unexplained"] for x in t.of(**setting)])
        rows.append(
            [method, *cells, f"{left:.3f}", f"{t.get('called', **setting).mean():.1f}", str(len(t.of(**setting)))]
        )
    head = "method | recall | false | planted found anywhere | unexplained | called exclusive | seeds"
    return (
        f"## Planted features there at {often:.1%} of the rows, shared ones turned to a cosine of {cosine}\n\n"
        + markdown(head, rows)
    )


def figure(lines: Sequence[Line]) -> Any:
    """Recall against false positives, a point a fit, by method."""
    t = Results(lines)
    fig, axis = canvas((5, 3.4), 1, 1)
    colours = {"plain": "#0072B2", "dedicated": "#D55E00", "handicap": "#E69F00", "reseated": "#009E73"}
    done = set()
    for line in t.all:
        kind = line["method"].replace(",", "").split()[0]
        label = None if kind in done else kind
        done.add(kind)
        axis.plot(line["false"], line["recall"], "o", color=colours[kind], alpha=0.6, label=label)
    axis.set(
        xlabel="false among those called exclusive",
        ylabel="recall of planted features",
        xlim=(-0.05, 1.05),
        ylim=(-0.05, 1.05),
    )
    finish(axis, font=7, grid=False)
    return fig
