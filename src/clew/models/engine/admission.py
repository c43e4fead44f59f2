"""Admission of requests: each is checked and given a row, its cached prefix is found, and the rest is prefilled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from clew.core.errors import BadInput, ContextOverflow
from clew.core.records import Request
from clew.core.values import check_sampling
from clew.models.engine.cache_rows import ROOM, Rows
from clew.models.engine.fast import Fast
from clew.models.engine.generic import Generic
from clew.models.engine.slots import NOBODY
from clew.models.engine.speculation.drafts import Drafts
from clew.models.engine.state import Ended, Joining, Waiting
from clew.models.taps import refuse_taps

SHARE = 16  # shortest prefix for which a request waits until another of the same tick has cached it


def place(rows: Rows, entry: Waiting, stops: npt.NDArray[np.bool_], clock: int) -> Joining | Ended | None:
    """Check a request, give it a row, and find what of its prompt is cached; None: no row is free.

    Args:
        stops: bool [vocabulary], tokens that end a reply.
        clock: number of the tick, the row's age.

    Raises:
        BadInput, ContextOverflow: what is wrong with the request.
    """
    request, slots, forward = entry.request, rows.slots, rows.forward
    check_sampling(request.sampling)
    refuse_taps(request, "this engine")
    forced = request.forced
    limit = request.sampling.max_tokens - len(forced)
    own = slots.where.get(request.holder) if request.run else None
    new = slots.continued(own, request) if own is not None and forward.reuses and not slots.busy[own] else None
    ids: list[int] | None = None
    if own is None or new is None:
        new = ids = _prompt(request)
    start = 0 if ids is not None or own is None else int(slots.length[own])
    total = start + len(new)
    if not new or min(new) < 0 or max(new) >= forward.vocabulary:
        raise BadInput(
            f"a prompt of {len(new)} tokens has none, or ids outside 0..{forward.vocabulary - 1}",
            remedy="Render it with this model's own renderer.",
        )
    if limit <= 0 or (forced and stops[forced[-1]]):
        return Ended(total, "stop" if forced and stops[forced[-1]] else "length")
    if total >= forward.context:
        raise ContextOverflow(
            f"{total} prompt tokens leave no room for a reply in the context of {forward.context}",
            remedy="Shorten the conversation, for instance with `player(window=4)`.",
        )
    limit = min(limit, forward.context - total)
    slot = own if own is not None and not slots.busy[own] else rows.vacant(total + ROOM + 1)
    if slot is None:
        return None
    reply = min(limit, ROOM)
    rows.fit(total + reply + 1, reply + 1, slot)
    source, wave = slot, 0
    if ids is not None:
        source, start, wave = _shared(rows, np.array(ids, np.int32), slot)
        new, rows.pinned = ids[start:], max(rows.pinned, source)
    rows.count[slot] = 0
    slots.tokens[slot, start:total] = new
    if source != slot:
        slots.tokens[slot, :start] = slots.tokens[source, :start]
    slots.hold(slot, request.holder if own is None or own == slot else NOBODY)
    slots.path[slot], slots.busy[slot], slots.used[slot], slots.length[slot] = (), True, clock, total
    slots.ready[slot], slots.wave[slot] = start if source == slot else 0, wave
    return Joining(entry, slot, new, start, source, wave, limit)


def prefill(forward: Fast | Generic, joining: list[Joining], drafts: Drafts | None = None) -> Tensor:
    """Copy what is cached and compute the rest, wave by wave; logits [n, V] behind each prompt."""
    logits: Tensor | None = None
    for wave in range(max(j.wave for j in joining) + 1):
        which = [i for i, j in enumerate(joining) if j.wave == wave]
        group = [joining[i] for i in which]
        if not group:
            continue
        copied = [j for j in group if j.source != j.slot and j.start]
        if copied:
            copy = [j.source for j in copied], [j.slot for j in copied], max(j.start for j in copied)
            forward.move(*copy)
            if drafts is not None:
                drafts.move(*copy)
        new = np.array([j.slot for j in group]), [j.new for j in group], np.array([j.start for j in group])
        part = forward.prefill(*new)
        if drafts is not None:
            drafts.seen(*new)
        if len(group) == len(joining):
            return part
        if logits is None:
            logits = part.new_empty(len(joining), part.shape[1])
        logits[torch.tensor(which, device=part.device)] = part
    assert logits is not None
    return logits


def _shared(rows: Rows, ids: npt.NDArray[np.int32], slot: int) -> tuple[int, int, int]:
    """Row with the longest prefix of ``ids``, its length, and the wave that may copy it."""
    if not rows.forward.reuses:
        return slot, 0, 0
    source, start = rows.slots.match(ids, slot)
    ready = int(rows.slots.ready[source])
    if start <= ready:
        return source, start, 0
    return (source, start, int(rows.slots.wave[source]) + 1) if start >= SHARE else (source, min(start, ready), 0)


def _prompt(request: Request) -> list[int]:
    ids: list[int] = []
    for node in request.path:
        if node.ids is None:
            raise BadInput(
                f"a {node.message.role} message has no token ids", remedy="Tokenise it with the model's renderer."
            )
        ids += node.ids
    return [*ids, *request.head, *request.forced]
