"""A store with features and a commitment curve as the audits file them, made by hand: no model is read for it."""

from __future__ import annotations

import numpy as np

from clew.core.records import Annotation, Report
from clew.methods.early import curves
from clew.methods.features.feature.feature_facts import Arm, Asked, Facts, Place, name_of, row_of
from clew.store import Keeper, Run
from tests.view.conftest import fill

LABEL, CURVE, LATENT = "0a1b2c3d", "1c2d3e4f", 17
HOSTILE = '<script>window.hit = 1</script><img src="https://example.invalid/x.png"> \u202eevil'
NAME = name_of(LABEL, LATENT)
QUESTION = "does /<b>up</b>/"


def facts(places: list[Place], **more: object) -> Facts:
    told = {
        "latent": LATENT,
        "a": "./child <i>",
        "b": "./base",
        "layer": 1,
        "whose": "A",
        "share": 0.97,
        "fitted": 0.91,
    }
    told |= {"tokens": 400, "active": 12, "calls": 9, "high": 2.5, "top": 3.0, "counts": (0, 4, 0, 8), "label": HOSTILE}
    return Facts(**(told | {"places": tuple(places), "labeller": "nobody"} | more))


def report(claim: str, estimate: float, **more: object) -> Report:
    told = {"low": estimate - 0.1, "high": estimate + 0.1, "n": 30, "design": "30 prompts, percentile bootstrap"}
    return Report(claim=claim, estimate=estimate, **(told | more))


def features(store: Keeper) -> tuple[Run, list[Place]]:
    """Two features of one comparison, the first with its values on a run and what came of writing it."""
    run = fill(store).runs[0]
    asks = [call for call in run.calls if call.kind == "ask"]
    rows, places = [], []
    for number, call in enumerate(asks[:3]):
        ids, before = store.node(call.node_out).ids, sum(len(node.ids) for node in store.thread(call.node_in))
        values = np.zeros(len(ids), np.float32)
        values[call.head] = 3.0 - number
        rows.append(Annotation("tokens", NAME, None, call.run, call.seq, values=values))
        places.append(Place(run.id, call.seq, before + call.head, 0, 3.0 - number))
    places.append(Place(run.id, asks[0].seq, 0, -2, 0.5))
    store.annotate(rows)
    arms = {
        "rate": report("rate of A", 0.4),
        "selection": report("selection: feature 17 x 1", 0.3),
        "test": report("exclusive: feature 17 x 1", 0.25),
        "control": report("random, norm of feature 17", 0.01),
    }
    ids_ = {stage: store.put_report(it, f"diff-{LABEL}-{i:08x}") for i, (stage, it) in enumerate(arms.items())}
    told = tuple(Arm(stage, arms[stage].claim, id, None if stage == "rate" else 0.004) for stage, id in ids_.items())
    gone = Arm("control", "a report that is gone", "diff-none", 0.5)
    asked = Asked(
        behaviour=QUESTION, kind="exclusive", text="feature 17 moves it", part="exclusive", arms=(*told, gone)
    )
    store.annotate([row_of(NAME, run.id, facts(places)), row_of(NAME, run.id, asked, "abc")])
    store.put_report(report("feature 17 is active", 0.2, runs=(run.id,)), NAME)
    other = name_of(LABEL, 5)
    store.annotate([row_of(other, run.id, facts(places[:1], latent=5, whose="both", label="", labeller=""))])
    store.put_report(report("feature 5 is active", 0.2, runs=(run.id,)), other)
    store.commit()
    return run, places


def commitment(store: Keeper, runs: tuple[str, ...] = ()) -> None:
    """A curve at three places, its verdict, and one report beside it."""
    for at, settled, flip in ((0.0, 0.0, 0.5), (0.5, 0.4, 0.3), (1.0, 1.0, 0.0)):
        for kind, value in (("settled", settled), ("flip", flip)):
            id = f"early-{CURVE}-{kind}-{at:g}"
            assert curves.FILED.fullmatch(id)
            store.put_report(report(f"{kind} after {at:.0%}", value), id)
    store.put_report(report(f"open until then: {HOSTILE}", 0.1, runs=runs), f"early-{CURVE}-verdict")
    store.put_report(report("trace dependence", 0.9, high=1.0), f"early-{CURVE}-12345678")
    store.commit()
