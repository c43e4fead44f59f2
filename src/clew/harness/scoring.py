"""Logprobs of recorded replies under another model: each path as the model that ran received it, token by token.

Nothing is rendered again. A path is cut after its last reply, equal replies to equal contexts are scored once, and so
are the Calls that forks share. Values are filed as they are found (method ``logprobs``, target ``tokens``, one set of
parameters per model), so that a scoring that was stopped goes on where it was, and a second question about the same
runs costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from clew.core.errors import BadInput
from clew.core.keys import value_digest
from clew.core.protocols import Scores
from clew.core.records import Annotation
from clew.core.values import F32
from clew.store.paths import leaves

Ask = tuple[str, int]  # (run that issued it, seq)
METHOD = "logprobs"
CHUNK = 65_536  # tokens scored between two commits


class Reply(NamedTuple):
    """One ask's reply on a path: its node at ``start`` up to ``stop``, the first ``head`` of it generation prompt."""

    ask: Ask
    node: bytes
    start: int
    stop: int


class Row(NamedTuple):
    """Token ids of a path up to its last reply to be scored, and those replies."""

    ids: tuple[int, ...]
    replies: tuple[Reply, ...]


class Plan(NamedTuple):
    """What scoring some runs takes: rows to score, and for each reply's node the asks that it answers."""

    rows: list[Row]
    asks: dict[bytes, list[Ask]]
    tokenizers: dict[str, str]  # tokenizer -> a run that has it

    @property
    def tokens(self) -> int:
        """Tokens that pass the model."""
        return sum(len(row.ids) for row in self.rows)


def plan(runs: Sequence[Any]) -> Plan:
    """The paths of runs, each reply in the first row that holds it.

    Raises:
        BadInput: a run has messages without token ids.
    """
    rows, asks, tokenizers = list[Row](), dict[bytes, list[Ask]](), dict[str, str]()
    seen: set[Ask] = set()
    for run in runs:
        for path, spans in leaves(run):
            tokenizers.update({node.tokenizer: run.id for node in path if node.tokenizer not in tokenizers})
            lengths = {node.key: len(node.ids or ()) for node in path}
            fresh = []
            for call, _, stop in spans:
                ask, node = (call.run, call.seq), call.node_out
                if ask in seen:
                    continue
                seen.add(ask)
                if node not in asks:
                    fresh.append(Reply(ask, node, stop - lengths[node], stop))
                asks.setdefault(node, []).append(ask)
            if fresh:
                ids = tuple(token for node in path for token in node.ids or ())
                rows.append(Row(ids[: max(reply.stop for reply in fresh)], tuple(fresh)))
    return Plan(rows, asks, tokenizers)


def check(found: Plan, models: Sequence[Any]) -> list[str]:
    """Make sure that the models read the runs' tokens as they were written; returns what could not be made sure.

    Raises:
        BadInput: a model does not score given tokens, or has another tokenizer than the runs or the other model.
    """
    doubts, known = list[str](), dict[str, str]()
    for model in models:
        if not isinstance(model, Scores) or not hasattr(model, "ref"):
            raise BadInput(
                f"{getattr(model, 'ref', model)} gives no logprobs of given tokens",
                remedy="Use local weights, or an endpoint that gives prompt logprobs (vLLM).",
            )
        renderer = getattr(model, "renderer", None)
        if renderer is None:
            doubts.append(f"{model.ref} does not name its tokenizer; the runs' token ids were taken as its own")
        else:
            known[renderer.ref] = model.ref
    if len(known) > 1:
        (a, first), (b, second) = list(known.items())[:2]
        raise BadInput(
            f"{first} and {second} have different tokenizers ({a}, {b}); their logprobs are not of the same tokens",
            remedy="Grade with two checkpoints of one model family, saved with the same tokenizer.",
        )
    for tokenizer, model in known.items():
        for other, run in found.tokenizers.items():
            if other != tokenizer:
                raise BadInput(
                    f"run {run} was written with tokenizer {other}, {model} has {tokenizer}",
                    remedy="Grade with models of the run's tokenizer, or choose other runs.",
                )
    return doubts


def parameters(model: Any, temperature: float) -> dict[str, Any]:
    """What distinguishes the values of one model: its name, its weights where they are here, the temperature."""
    digest = model.digest() if hasattr(model, "digest") else ""
    return {"model": model.ref, "weights": digest, "temperature": temperature}


def known(runs: Sequence[Any], params: str) -> dict[Ask, F32]:
    """Values that are filed already for the asks of some runs."""
    owners = sorted({run.id for run in runs} | {s.run for run in runs for s in run.row.lineage})
    filed = runs[0].store.annotations(owners, METHOD, "tokens") if runs else []
    return {(a.run, a.seq): a.values for a in filed if a.params == params and a.values is not None}


def score(
    runs: Sequence[Any],
    model: Any,
    *,
    temperature: float = 1.0,
    store: bool = True,
    found: Plan | None = None,
    on_tokens: Callable[[int], None] | None = None,
) -> dict[Ask, F32]:
    """Logprobs (nats) that ``model`` gives every reply of ``runs``, each token given those before it.

    Args:
        model: ``Scores``; its tokenizer is checked against the runs'.
        temperature: of the distribution that is scored.
        store: file the values in the runs' store, and take those that are filed already.
        found: what ``plan`` gave for these runs, if it is at hand.
        on_tokens: called with the tokens done after each chunk, those of earlier sessions first.

    Returns:
        (run, seq) of the asking Call -> float32, one per token of the reply's node, NaN for its generation prompt and
        for a first token without any before it. A reply that lies before the model's context is left out.

    Raises:
        BadInput: see ``plan`` and ``check``.
    """
    found = found or plan(runs)
    check(found, [model])
    params = parameters(model, temperature)
    digest = value_digest(params).hex()
    out = known(runs, digest) if store else {}
    todo = [row for row in found.rows if any(a not in out for r in row.replies for a in found.asks[r.node])]
    if on_tokens is not None:
        on_tokens(found.tokens - sum(len(row.ids) for row in todo))
    heads = {(c.run, c.seq): c.head for run in runs for c in run.calls if c.kind == "ask"}
    for chunk in chunks(todo):
        fresh = _chunk(model, chunk, found.asks, heads, temperature)
        out |= fresh
        if store and fresh:
            data = json.dumps(params)
            runs[0].store.annotate(
                [
                    Annotation("tokens", METHOD, None, *ask, params=digest, values=v, data=data)
                    for ask, v in fresh.items()
                ]
            )
            runs[0].store.commit()
        if on_tokens is not None:
            on_tokens(sum(len(row.ids) for row in chunk))
    return out


def chunks(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows of like length together, at most CHUNK tokens or one row each."""
    out: list[list[Row]] = []
    room = 0
    for row in sorted(rows, key=lambda r: (len(r.ids), r.ids)):
        if room < len(row.ids):
            out.append([])
            room = CHUNK
        out[-1].append(row)
        room -= len(row.ids)
    return out


def _chunk(
    model: Any, rows: Sequence[Row], asks: dict[bytes, list[Ask]], heads: dict[Ask, int], temperature: float
) -> dict[Ask, F32]:
    context = getattr(model, "context", None)
    cuts = [max(0, len(row.ids) - context) if context else 0 for row in rows]
    scored = model.score([row.ids[cut:] for row, cut in zip(rows, cuts, strict=True)], temperature)
    out: dict[Ask, F32] = {}
    for row, cut, logp in zip(rows, cuts, scored, strict=True):
        whole = np.concatenate([np.full(cut + 1, np.nan, np.float32), logp])
        for reply in row.replies:
            if reply.start < cut:
                continue  # part of it lies before the context
            for ask in asks[reply.node]:
                values = whole[reply.start : reply.stop].astype(np.float32)
                values[: heads[ask]] = np.nan
                out[ask] = values
    return out
