"""Prefill probes: how likely a phrase is after each part of a trace, and how early that predicts the outcome. The
causal audit and papers call it. A probe must never change the run it reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clew.core.errors import BadInput
from clew.core.protocols import Model, Scores
from clew.core.records import Report
from clew.core.stats import auroc
from clew.store import Run

RESAMPLES = 1000


def prefill(model: Model | None, run: Run, phrase: str) -> list[tuple[int, float]]:
    """(Call, log p of ``phrase`` as the beginning of its reply, in nats) at every ask of a run.

    Raises:
        BadInput: the model scores no tokens, or the run was recorded without them.
    """
    renderer = getattr(model, "renderer", None)
    if not isinstance(model, Scores) or renderer is None:
        raise BadInput("a prefill probe needs a model that scores given tokens", remedy="Name local weights.")
    asks = [call for call in run.calls if call.kind == "ask"]
    said = tuple(renderer.encode(phrase))
    rows = []
    for call in asks:
        path = run.store.thread(call.node_in)
        if any(node.ids is None for node in path):
            raise BadInput(f"run {run.id} was recorded without tokens", at=f"{run.id}@{call.seq}")
        rows.append([*(i for node in path for i in node.ids or ()), *renderer.head(), *said])
    scores = model.score(rows) if rows else []
    return [(call.seq, float(np.sum(s[-len(said) :]))) for call, s in zip(asks, scores, strict=True)]


def lock(claim: str, scores: Sequence[float], outcomes: Sequence[float], *, seed: int = 0) -> Report:
    """AUROC of a probe's scores for the outcome, with a percentile bootstrap over traces; .5 tells nothing.

    Raises:
        BadInput: all outcomes are alike.
    """
    x, hit = np.asarray(scores, float), np.asarray(outcomes, float) > 0.5
    if len(x) != len(hit) or hit.all() or not hit.any():
        raise BadInput(f"{claim}: the outcome was the same in all {len(hit)} traces", remedy="Probe more traces.")
    rng, drawn = np.random.default_rng(seed), np.empty(RESAMPLES)
    yes, no = np.flatnonzero(hit), np.flatnonzero(~hit)
    for i in range(RESAMPLES):  # within each outcome, so that both are always there
        picks = np.concatenate([rng.choice(yes, len(yes)), rng.choice(no, len(no))])
        drawn[i] = auroc(x[picks], hit[picks])
    estimate, (low, high) = auroc(x, hit), np.percentile(drawn, [2.5, 97.5])
    design = f"AUROC over {len(yes)} traces with and {len(no)} without it, bootstrap within each"
    low, high = min(float(low), estimate), max(float(high), estimate)
    return Report(claim=claim, estimate=estimate, low=low, high=high, n=len(x), design=design)
