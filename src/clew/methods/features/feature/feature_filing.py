"""Features kept in the store: their activation on every token that was read, their figures, what came of writing them.

``clew audit diff`` calls it when a comparison is done. Values are filed once: a line that is typed again adds nothing,
and one that was interrupted goes on with the feature it was at. It must never change a run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from clew.core.keys import value_digest
from clew.core.records import Annotation
from clew.core.values import F32
from clew.methods.early.curves import share_of
from clew.methods.features.comparison import Comparison, Feature
from clew.methods.features.crosscoder import Crosscoder
from clew.methods.features.diff_verdict import Finding, at_dose
from clew.methods.features.feature.feature_facts import Arm, Asked, Facts, name_of, read, row_of
from clew.methods.features.mixture import Mixture
from clew.methods.features.subjects import I64
from clew.store import Keeper, Run

MOST = 32  # features of one comparison whose values are kept
BINS = 20  # of the histogram


class Marked(NamedTuple):
    """A model call whose reply was read: the run that issued it, tokens of the reply's node, and of those that were
    read their places in it and the rows of the mixture."""

    run: str
    seq: int
    size: int
    at: I64
    rows: I64


def file_features(
    store: Keeper,
    job: Comparison,
    mixed: Mixture | None,
    module: Crosscoder,
    features: Sequence[Feature],
    labels: Mapping[int, tuple[str, str]] | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> list[str]:
    """Keep some features, at most ``MOST``; what is kept already is not written again.

    Args:
        mixed: the states of both models; None where nothing is ``missing``.
        labels: by latent its label and the run that wrote it; an earlier label stays where there is none now.
        advance: told how much of ``cost`` is done.

    Returns:
        Their names, as the methods of their token values.
    """
    chosen = _chosen(features)
    kept = {f.latent: _kept(store, name_of(job.label, f.latent)) for f in chosen}
    lacking = [f for f in chosen if kept[f.latent] is None]
    if lacking:
        assert mixed is not None
        calls = marked(mixed, job.runs)
        values = activations(mixed, module, [f.latent for f in lacking], advance)
        for column, f in enumerate(lacking):
            kept[f.latent] = _write(store, job, mixed, f, values[:, column], calls)
            advance(len(mixed.a))
    for f in chosen:
        facts = kept[f.latent]
        assert facts is not None
        label, labeller = (labels or {}).get(f.latent, ("", ""))
        if label and label != facts.label:
            told = replace(facts, label=label, labeller=labeller)
            store.annotate([row_of(name_of(job.label, f.latent), f.places[0].run, told)])
    store.commit()
    return [name_of(job.label, f.latent) for f in chosen]


def missing(store: Keeper, label: str, features: Sequence[Feature]) -> list[Feature]:
    """The features whose values are still to be written, for which the states are needed."""
    return [f for f in _chosen(features) if _kept(store, name_of(label, f.latent)) is None]


def cost(tokens: int, lacking: Sequence[Feature]) -> int:
    """What ``file_features`` tells of: tokens, once for all and once for each feature that is ``missing``."""
    return tokens * (1 + len(lacking)) if lacking else 0


def file_effects(
    store: Keeper, label: str, found: Finding, ids: Mapping[str, str], features: Sequence[Feature]
) -> None:
    """Keep beside each feature that was written while the model answered what came of it.

    Args:
        ids: of the Reports, by what they are about, as ``diff_verdict.filed`` gives them.
    """
    params = value_digest(["asked", found.behaviour]).hex()
    for f in features:
        asked = effects(found, ids, f.latent)
        if asked is not None and f.places:
            store.annotate([row_of(name_of(label, f.latent), f.places[0].run, asked, params)])
    store.commit()


def effects(found: Finding, ids: Mapping[str, str], latent: int) -> Asked | None:
    """The arms of a finding that are of one latent; None where it was not tried."""
    mine = re.compile(rf"\bfeature {latent}\b")
    cells = [cell for cell in found.cells if cell.direction.latent == latent]
    arms = [Arm("selection", at_dose(cell), ids[at_dose(cell)], cell.effect.p) for cell in cells]
    if not arms:
        return None
    part = next((name for name, one in found.tried.items() if one.cell.direction.latent == latent), "")
    arms = [*(Arm("rate", x.about, ids[x.about], x.p) for x in found.rates), *arms]
    arms += [Arm("test", x.about, ids[x.about], x.p) for x in found.claims if mine.search(x.about)]
    arms += [Arm("control", x.about, ids[x.about], x.p) for x in found.lines if mine.search(x.about)]
    return Asked(behaviour=found.behaviour, kind=found.kind, text=found.text, part=part, arms=tuple(arms))


def marked(mixed: Mixture, runs: Sequence[Run]) -> list[Marked]:
    """The model calls with the tokens of their replies that were read; a call that runs share stands once."""
    index, sources = mixed.a.index, mixed.a.sources
    order = np.argsort(index["source"], kind="stable")
    cuts = np.searchsorted(index["source"][order], np.arange(len(sources) + 1))
    by_id = {run.id: run for run in runs}
    found: dict[tuple[str, int], Marked] = {}
    for number, (name, seq) in enumerate(sources):
        if name not in by_id:
            continue  # a row of ids that is of no run
        rows, run = order[cuts[number] : cuts[number + 1]], by_id[name]
        call = run.call(seq)
        at = index["token"][rows].astype(np.int64) + call.head
        new = Marked(call.run, seq, len(run.store.node(call.node_out).ids or ()), at[at >= 0], rows[at >= 0])
        old = found.get((call.run, seq))
        if old is not None:
            new = new._replace(at=np.append(old.at, new.at), rows=np.append(old.rows, new.rows))
        if len(new.at):
            found[call.run, seq] = new
    return list(found.values())


@torch.no_grad()
def activations(
    mixed: Mixture, module: Crosscoder, latents: Sequence[int], advance: Callable[[int], None] = lambda count: None
) -> F32:
    """Activations of some latents at every row that was read, float32 [rows, latents]; 0 where one is not active."""
    column = torch.full((module.design.latents,), -1)
    column[list(latents)] = torch.arange(len(latents))
    out, start = np.zeros((len(mixed.a), len(latents)), np.float32), 0
    for portion in mixed.portions(np.arange(len(mixed.a))):
        active = module.active(module.scaled(portion, check=False))
        at = column[active.latents]
        mine = at >= 0
        out[start + active.rows[mine].numpy(), at[mine].numpy()] = active.values[mine].numpy()
        start += len(portion)
        advance(len(portion))
    return out


def _chosen(features: Sequence[Feature]) -> list[Feature]:
    return [f for f in features if f.places][:MOST]


def _kept(store: Keeper, name: str) -> Facts | None:
    report = store.reports().get(name)
    return None if report is None else read(store, name, report)[0]


def _write(store: Keeper, job: Comparison, mixed: Mixture, f: Feature, values: F32, calls: Sequence[Marked]) -> Facts:
    """The values of a feature, then its figures, which say that it is whole."""
    name, top = name_of(job.label, f.latent), float(values.max())
    rows = []
    for call in calls:
        row = np.full(call.size, np.nan, np.float32)
        row[call.at] = values[call.rows]
        rows.append(Annotation("tokens", name, None, call.run, call.seq, values=row))
    store.annotate(rows)
    store.commit()
    active = values > 0
    facts = Facts(
        latent=f.latent, a=job.a.ref, b=job.b.ref, layer=job.layer, whose=f.whose, share=f.share, fitted=f.fitted,
        tokens=len(values), active=int(active.sum()), calls=len(rows), high=f.high, top=top, places=f.places,
        counts=tuple(np.histogram(values[active], BINS, (0, top or 1))[0].tolist()),
    )  # fmt: skip
    store.annotate([row_of(name, f.places[0].run, facts)])
    runs = np.array([mixed.a.sources[source][0] for source in mixed.a.index["source"].tolist()])
    _, number = np.unique(runs, return_inverse=True)
    shares = np.bincount(number, active) / np.bincount(number)
    who = {"A": f"{job.a.ref} alone has it", "B": f"{job.b.ref} alone has it", "both": "both models have it"}[f.whose]
    claim = f"feature {f.latent} ({who}): share of a run's tokens at which it is active"
    report = share_of(claim, shares, unit="runs")
    pair = f"{job.a.ref} and {job.b.ref} at layer {job.layer}"
    told = f"latent {f.latent} of the crosscoder of {pair}, {len(values):,} tokens"
    context = tuple(dict.fromkeys(place.run for place in f.places))
    store.put_report(replace(report, design=f"{told}; {report.design}", runs=context), name)
    store.commit()
    return facts
