"""Table, pass marks and figure of tier replay, from its lines of results alone."""

from __future__ import annotations

import numpy as np

from clew.core.records import Report
from papers.drawing import canvas, finish, whiskers
from papers.E167_agentworld.counting import share
from papers.stats import Lines, Mark, by_seed, document, mark, markdown, minutes, select

SHARES = (-1.0, 0.0, 0.1, 0.25)
NAMES = {-1.0: "not fitted to the shell", 0.0: "none", 0.1: "a tenth", 0.25: "a quarter"}


def forgot(lines: Lines, replay: float) -> np.ndarray:
    """By seed: nats for a token that the loss on what it knew has risen."""
    return np.array([line["after"] - line["before"] for line in select(lines, share=replay)])


def recovered(lines: Lines, replay: float) -> Report:
    """The share of the rise without replay that a share of replay takes away, by seed."""
    return by_seed(1 - forgot(lines, replay) / forgot(lines, 0.0))


def pass_marks(lines: Lines) -> list[Mark]:
    """The threshold of specs/E167, E9, as it stood before anything was run."""
    if len(forgot(lines, 0.0)) == 0 or len(forgot(lines, 0.0)) != len(forgot(lines, 0.1)):
        return []
    promise = "a tenth of replay takes away at least half of the rise"
    out = [mark("E9", promise, recovered(lines, 0.1), least=0.5)]
    return [*out, Mark("control", "not fitted, the loss rises", by_seed(forgot(lines, -1.0)), None)]


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    rows = []
    for replay in SHARES:
        own = select(lines, share=replay)
        if own:
            after = by_seed([line["after"] for line in own])
            told = recovered(lines, replay) if replay > 0 and len(forgot(lines, 0.0)) == len(own) else ""
            rows.append([NAMES[replay], len(own), after, by_seed(forgot(lines, replay)), told, share(own, bool)])
    return document(
        "## Tier replay: what is forgotten",
        f"A model that knows `clerk` is fitted to the shell. {minutes(lines):.1f} CPU-minutes.",
        pass_marks(lines),
        markdown("replay | seeds | nats a token of `clerk` | rise | taken away | exact in the shell", rows),
    )


def figure(lines: Lines) -> object:
    """The rise of the loss on what it knew, by replay."""
    fig, axis = canvas((5, 2.0))
    some = [replay for replay in SHARES if len(forgot(lines, replay))]
    whiskers(axis, range(len(some)), [by_seed(forgot(lines, replay)) for replay in some], fmt="o", along="x")
    axis.set(xlabel="rise of the loss, nats a token", yticks=range(len(some)), yticklabels=[NAMES[r] for r in some])
    axis.invert_yaxis()
    finish(axis, font=None)
    return fig
