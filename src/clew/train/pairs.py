"""Preference pairs as LossRows, of single tokens (cliffs, E172), or of replies and whole runs (DPO).

A set is one rejected row and the chosen rows that are preferred to it. The weight stream marks the tokens that count,
so that one loss (``losses.dpo``) serves both kinds of pairs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from clew.core.errors import BadInput
from clew.core.reading import Record, RecordGroup
from clew.core.records import Annotation, Call, Cursor, LossRow
from clew.store.labels import VERDICTS
from clew.store.paths import leaves
from clew.store.preferences import Pairs, preferences
from clew.store.protocol import Tables
from clew.store.run import Run
from clew.train.rows import origin, own

METHOD = "cliff-pair"
LOSS = "cliff-dpo"
CHOSEN, REJECTED = "chosen", "rejected"


def pair_rows(
    runs: Iterable[Record],
    method: str = METHOD,
    component: str = LOSS,
    *,
    params: str = "",
    kinds: Sequence[str] | None = None,
    eos: int | None = None,
) -> list[LossRow]:
    """Rows of the single-token pairs that ``method`` filed on the asks of some runs; each ask once.

    A row is the path up to a token, and that token, which alone counts: nothing is appended to it. The released code
    lets the end token follow and counts it too; ``eos`` reproduces that, with the id of that token.

    Args:
        params: the first letters of the parameter digest they were filed under, where there are several.
        kinds: of cliffs, such as ``("uncertain", "sampled-off")``; None takes all.

    Raises:
        BadInput: no pairs there, or pairs of several parameter sets on one ask.
    """
    found: dict[tuple[str, int], Annotation] = {}
    filed: dict[str, None] = {}
    listed = list(runs)
    for run in listed:
        for a in run.annotations(method, "call"):
            if a.params.startswith(params):
                found[a.run, a.seq], filed[a.params] = a, None
    if len(filed) > 1:
        raise BadInput(
            f"{method!r} was filed with {len(filed)} sets of parameters on these runs",
            remedy=f"Name one (--params): {', '.join(p[:12] for p in filed)}.",
        )
    out: list[LossRow] = []
    for (owner, seq), annotation in sorted(found.items()):
        store = listed[0].store
        call = store.calls(owner, seq, seq + 1)[0]
        path = [i for node in store.thread(call.node_in) for i in node.ids or ()]
        reply = store.node(call.node_out).ids or ()
        by_token: dict[int, list[dict[str, Any]]] = {}
        for item in json.loads(annotation.data):
            if kinds is None or item["kind"] in kinds:
                by_token.setdefault(int(item["token"]), []).append(item)
        for token, items in sorted(by_token.items()):
            before = [*path, *reply[: call.head + token]]
            name, source = str(Cursor(owner, seq, token)), [(len(before), Cursor(owner, seq, token))]
            tail = [] if eos is None else [eos]
            ends = [(REJECTED, items[0]["rejected"]), *((CHOSEN, item["chosen"]) for item in items)]
            made = [_row([*before, int(i), *tail], len(before), component, name, role, source) for role, i in ends]
            out += [replace(row, run=owner) for row in made]
    if not out:
        raise BadInput(
            f"these {len(listed)} runs have no {method!r} values" + (f" of kind {', '.join(kinds)}" if kinds else ""),
            remedy="Make pairs first: clew audit cliffs RUNS --pairs FILE.",
        )
    return out


def outcome_pairs(groups: Iterable[RecordGroup], component: str = "dpo") -> list[LossRow]:
    """Rows of whole runs: in each group the i-th that succeeded is preferred to the i-th that did not.

    All sampled tokens count. Groups whose runs all ended alike give none.

    Raises:
        BadInput: a run holds several conversations.
    """
    out: list[LossRow] = []
    for group in groups:
        good = [run for run in group if run.reward is not None and run.reward > 0.5]
        bad = [run for run in group if run.reward is not None and run.reward <= 0.5]
        for i, (win, loss) in enumerate(zip(good, bad, strict=False)):
            out += [_whole(run, component, f"{group.id}/{i}", role) for run, role in ((loss, REJECTED), (win, CHOSEN))]
    return out


def labelled_pairs(
    runs: Iterable[Run], component: str = "dpo", verdicts: Sequence[str] = VERDICTS
) -> tuple[list[LossRow], Pairs]:
    """Rows of what people prefer (``clew.store.preferences``), and the pairs they were made of.

    Of two runs of a task all sampled tokens count; of two replies to the same messages the tokens of the reply.

    Raises:
        BadInput: no label orders anything, a run holds several conversations, or a reply has no token ids.
    """
    known = {run.id: run for run in runs}
    pairs = preferences(known.values(), verdicts)
    if not pairs.found:
        told = f"the labels of these {len(known)} runs order no two runs of a task and no two replies to one prompt"
        raise BadInput(
            told, remedy="Label more runs of one task, some better and some worse: clew label RUN --stars 2."
        )
    out: list[LossRow] = []
    for i, pair in enumerate(pairs.found):
        for label, role in ((pair.rejected, REJECTED), (pair.chosen, CHOSEN)):
            if label.seq < 0:
                out.append(_whole(known[label.run], component, f"label/{i}", role))
            else:
                store = next(iter(known.values())).store
                out.append(
                    _reply(store, store.calls(label.run, label.seq, label.seq + 1)[0], component, f"label/{i}", role)
                )
    return out, pairs


def _whole(run: Record, component: str, name: str, role: str) -> LossRow:
    """A whole run, of which the tokens count that its own model sampled."""
    paths = leaves(run, own(run))
    if len(paths) != 1:
        raise BadInput(f"run {run.id} has {len(paths)} conversations", remedy="Pair runs that have one.")
    path, spans = paths[0]
    ids = [i for node in path for i in node.ids or ()]
    weight = np.zeros(len(ids), np.float32)
    for span in spans:
        weight[span.start : span.stop] = 1
    row = _row(ids, len(ids), component, name, role, [(s.start, _at(s.call)) for s in spans])
    row.weights, row.run = {component: weight}, origin(run)
    return row


def _reply(store: Tables, call: Call, component: str, name: str, role: str) -> LossRow:
    """One reply after what was sent, of which its own tokens count."""
    path, reply = store.thread(call.node_in), store.node(call.node_out).ids
    if reply is None or any(node.ids is None for node in path):
        remedy = "Label replies of models with token ids, or write the pairs as text: `clew export --pairs`."
        raise BadInput(f"the reply of {call.run}@{call.seq} has no token ids", remedy=remedy)
    before = [i for node in path for i in node.ids or ()]
    start = len(before) + call.head + call.forced
    return replace(_row([*before, *reply], start, component, name, role, [(start, _at(call))]), run=call.run)


def _at(call: Call) -> Cursor:
    return Cursor(call.run, call.seq, call.forced)


def _row(
    ids: Sequence[int], start: int, component: str, name: str, role: str, source: list[tuple[int, Cursor]]
) -> LossRow:
    """A row whose tokens from ``start`` on count."""
    weight, unsampled = np.zeros(len(ids), np.float32), np.zeros(len(ids), bool)
    weight[start:] = 1
    made = LossRow(np.asarray(ids, np.int32), unsampled, {component: weight}, np.full(len(ids), np.nan, np.float32))
    return replace(made, source=source, set=name, role=role)
