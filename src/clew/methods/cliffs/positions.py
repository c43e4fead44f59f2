"""The tokens and steps of recorded runs at which a cliff can be, and how likely the policy was to sample them.
``cliffs/detect.py`` calls it. It must never give a position of another tokenizer than that of the policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from clew.core.errors import BadInput
from clew.core.protocols import Model, Scores, answers_for
from clew.core.records import Call, Node
from clew.harness.fork.continuations import Start
from clew.methods.cliffs.statistics import F64
from clew.store import Run
from clew.store.run import sampled


class Position(NamedTuple):
    """A token of a reply (counted after its head), or a step (``token`` and ``id`` -1), and the places around it.

    chance: of the token, or of all that the step sampled, under the sampler in force; 0 where it is not known.
    """

    run: str  # that issued it
    seq: int
    token: int
    id: int
    chance: float
    before: Start
    after: Start


def prefix(run: Run, position: Position) -> list[int]:
    """The token ids that the model had received before a position."""
    call = run.store.calls(position.run, position.seq, position.seq + 1)[0]
    path = [i for node in run.store.thread(call.node_in) for i in node.ids or ()]
    reply = run.store.node(call.node_out).ids or ()
    return [*path, *reply[: call.head + position.token]]


def chances(run: Run, model: Model | None, at: str) -> dict[tuple[str, int], F64]:
    """Per ask the chance of each token it sampled, [sampled], of the policy that continues.

    A scoring pass of that policy where it can score, else what was recorded, else, of another policy, 0. A sampler that
    cuts the tail raises the chance of what it keeps, so that the bound from the whole distribution stays one.

    Raises:
        BadInput: no token ids (at tokens), temperature 0, or another tokenizer.
    """
    asks = [c for c in run.calls if c.kind == "ask" and c.done >= 0 and c.node_out]
    out: dict[tuple[str, int], F64] = {}
    rows: dict[float, list[tuple[Call, list[int]]]] = {}
    for call in asks:
        path = run.store.thread(call.node_out)
        ids = [node.ids for node in path]
        same_tokenizer(run, path[-1], model)
        heat = (call.setup.in_force or call.setup.asked).temperature if call.setup else 1.0  # type: ignore[union-attr]
        if heat <= 0:
            raise BadInput(
                f"run {run.id} was sampled at temperature 0, where all continuations are alike",
                remedy="Make runs with a temperature above 0.",
            )
        if call.logprobs is None or any(i is None for i in ids):
            if at == "tokens":
                raise BadInput(
                    f"run {run.id} has no token ids at Call {call.seq}",
                    remedy="Look for cliffs at steps (--at steps), or make runs with a model that gives token ids.",
                )
            continue
        mine = call.setup is None or model is None or answers_for(model, call.setup)
        out[call.run, call.seq] = np.exp(call.logprobs.astype(float)) if mine else np.zeros(len(call.logprobs))
        rows.setdefault(heat, []).append((call, [i for part in ids for i in part or ()]))
    if isinstance(model, Scores):
        for heat, some in rows.items():
            for (call, _), scores in zip(some, model.score([ids for _, ids in some], heat), strict=True):
                if n := sampled(call):
                    out[call.run, call.seq] = np.exp(scores[-n:].astype(float))
    return out


def has_tokens(run: Run) -> bool:
    """Whether every reply of a run is recorded with the tokens that were sampled, so that cliffs can be tokens."""
    asks = [call for call in run.calls if call.kind == "ask" and call.done >= 0 and call.node_out]
    return all(call.logprobs is not None and run.store.node(call.node_out).ids is not None for call in asks)


def same_tokenizer(run: Run, node: Node, model: Model | None) -> None:
    """Refuse to go on from the ids of one tokenizer with a model of another.

    Raises:
        BadInput: they differ.
    """
    renderer = model.renderer if model is not None else None
    if node.ids is not None and model is not None and renderer is not None and renderer.ref != node.tokenizer:
        raise BadInput(
            f"run {run.id} holds tokens of {node.tokenizer}, {model.ref} reads those of {renderer.ref}",
            remedy="Name a model (--model) that has the run's tokenizer.",
        )


def tokens(run: Run, known: dict[tuple[str, int], F64]) -> Iterator[Position]:
    for call in run.calls:
        chance = known.get((call.run, call.seq)) if call.kind == "ask" else None
        if chance is None:
            continue
        ids = run.store.node(call.node_out).ids or ()
        for i, value in enumerate(chance.tolist()):
            token = call.forced + i
            before, after = Start(call.run, call.seq, token), Start(call.run, call.seq, token + 1)
            yield Position(call.run, call.seq, token, ids[call.head + token], value, before, after)


def steps(run: Run, known: dict[tuple[str, int], F64]) -> Iterator[Position]:
    """Whole steps. What else than asks and the world was drawn in one is not in its chance, so that it is 0."""
    calls, steps = run.calls, run.steps
    firsts = [(step.asks or (step.act,))[0] for step in steps]
    for i, step in enumerate(steps):
        first = firsts[i]
        assert first is not None
        if not step.asks:
            continue
        then = firsts[i + 1] if i + 1 < len(steps) else next((c for c in calls if c.kind == "end"), None)
        if then is None:
            continue
        plain = all(c.kind in ("ask", "act", "note") for c in calls[first.seq : then.seq])
        values = [known.get((a.run, a.seq)) for a in step.asks]
        told = [v.prod() for v in values if v is not None]
        chance = float(np.prod(told)) if plain and len(told) == len(values) else 0.0
        yield Position(first.run, first.seq, -1, -1, chance, Start(first.run, first.seq), Start(then.run, then.seq))


def left(run: Run, start: Start) -> int:
    """Tokens that the record decoded from a place on."""
    later = [c for c in run.calls if c.kind == "ask" and c.seq >= start.seq]
    whole = sum(map(sampled, later))
    inside = next((c for c in later if c.seq == start.seq), None)
    return whole - (max(0, start.token - inside.forced) if inside is not None else 0)
