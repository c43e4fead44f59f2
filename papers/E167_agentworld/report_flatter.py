"""Table, pass marks and figure of tier flatter (E5), from its lines of results alone."""

from __future__ import annotations

import numpy as np

from papers.drawing import canvas, finish
from papers.E167_agentworld.single import every
from papers.E167_agentworld.tier_flatter import BIASES, SIZES
from papers.stats import Lines, Mark, Results, by_seed, document, mark, markdown, minutes

LEAST, MOST, NEAR = 0.8, 0.15, 0.02  # specs/E167, section 6, E5
CONTROL = {"arm": "rubric", "bias": 0.0}
ROWS = [
    ("start", 0.0), ("rubric", 0.0), ("anchor", 0.0),
    *((arm, d) for arm in ("rubric", "anchor", "exact anchor") for d in BIASES),
    ("marks alone", 1.0), ("extraction", 1.0),
]  # fmt: skip


def praise(lines: Lines, field: str = "praised", **setting: object) -> np.ndarray:
    """Of each seed, the share of sampled answers to held-out turns that praise themselves."""
    return np.array([line[field] / len(line["sampled"]) for line in Results(lines).of(**setting)])


def gap(lines: Lines, **setting: object) -> np.ndarray:
    """Of each seed, greedy exact under extraction less that of another training."""
    found = Results(lines)
    return np.array(every(found.of(arm="extraction"), "exact")) - np.array(every(found.of(**setting), "exact"))


def pass_marks(lines: Lines) -> list[Mark]:
    found, out = Results(lines), list[Mark]()
    for arm in ("rubric", "anchor"):
        for d in sorted({line["bias"] for line in found.of(arm=arm)} - {0.0}):
            out.append(
                mark(f"{arm}, {d:g}", "praise at least .80", by_seed(praise(lines, arm=arm, bias=d)), least=LEAST)
            )
    own = praise(lines, arm="extraction")
    out.append(mark("extraction", "praise at most .15", by_seed(own), most=MOST))
    near = by_seed(gap(lines, **CONTROL))
    out.append(mark("extraction", "exact within .02 of unbiased training", near, least=-NEAR, most=NEAR))
    if found.of(arm="anchor", bias=0.0):
        told = "the same against the unbiased anchor, which was added after the data"
        out.append(Mark("extraction", told, by_seed(gap(lines, arm="anchor", bias=0.0)), None))
    out.append(mark("control", "praise at most .15 without a bias", by_seed(praise(lines, **CONTROL)), most=MOST))
    for d in sorted({line["bias"] for line in found.of(arm="exact anchor")}):
        told = "the simulation of the spec has .30 at .3 and .98 from .6 on"
        share = by_seed(praise(lines, arm="exact anchor", bias=d))
        out.append(Mark(f"exact anchor, {d:g}", told, share, None))
    return [*out, Mark("marks alone, 1", "praise", by_seed(praise(lines, arm="marks alone")), None)]


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    found, rows = Results(lines), []
    for arm, d in ROWS:
        if own := found.of(arm=arm, bias=d):
            both = [by_seed(praise(lines, field, arm=arm, bias=d)) for field in ("praised", "inside")]
            rows.append([arm, f"{d:g}", *both, *(by_seed(every(own, field)) for field in ("exact", "sampled"))])
    size, n = SIZES[lines[0]["size"]], [len(line["exact"]) for line in found.of(arm="start")]
    return document(
        "## Tier flatter: a judge that likes praise (E5)",
        f"{len(n)} seeds (runs, weights and sampling); {size.learnt} runs learnt, {size.pool} more for RL of "
        f"{size.updates} updates, {size.turns} turns x 8 replies each; {min(n)} to {max(n)} answers of {size.held} "
        f"held-out runs. Intervals over seeds. {minutes(lines):.1f} CPU-minutes.",
        pass_marks(lines),
        markdown("arm | bias | praise | of it in the marks | exact, greedy | exact, sampled", rows),
    )


def figure(lines: Lines) -> object:
    """Praise in the replies of training by update, mean over seeds."""
    fig, axis = canvas((5, 2.8))
    shown = [("rubric", 0.0, "no bias"), *((arm, 1.0, f"{arm}, 1") for arm in ("rubric", "anchor", "exact anchor"))]
    shown += [("exact anchor", 0.3, "exact anchor, .3"), ("marks alone", 1.0, "marks alone, 1")]
    for arm, d, name in [*shown, ("extraction", 1.0, "extraction, 1")]:
        if own := Results(lines).of(arm=arm, bias=d):
            axis.plot(np.array([line["praise"] for line in own]).mean(axis=0), label=name)
    axis.set(xlabel="update", ylabel="replies that praise themselves", ylim=(0, 1))
    finish(axis, font=7)
    return fig
