"""Admission of requests: each is checked and given a row, its cached prefix is found, and the rest is prefilled.

The rest of a long prompt is prefilled in pieces between decode steps (``Filling``), so that other replies go on.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from clew.core.errors import BadInput, ContextOverflow
from clew.core.records import Request
from clew.core.values import check_sampling
from clew.models.engine.cache_rows import ROOM, Rows
from clew.models.engine.forwards.fast import CHUNK, Fast
from clew.models.engine.forwards.generic import Generic
from clew.models.engine.slots import NOBODY
from clew.models.engine.speculation.drafts import Drafts
from clew.models.engine.state import Ended, Joining, Waiting
from clew.models.engine.taps.placing import Write, apart, placed
from clew.models.shaping import shape_of

PIECE = 128  # tokens of a long prompt that are prefilled between two decode steps
REPLY = 256  # tokens of a reply that can be noted at first; more when they are sampled


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
    shape_of(request.sampling.shape)
    forced = request.forced
    limit = request.sampling.max_tokens - len(forced)
    own = slots.where.get(request.holder) if request.run else None
    new = slots.continued(own, request) if own is not None and forward.reuses and not slots.busy[own] else None
    ids: list[int] | None = None
    if own is None or new is None:
        new = ids = _prompt(request)
    start = 0 if ids is not None or own is None else int(slots.length[own])
    total = start + len(new)
    prompt = total - len(forced)
    written = placed(request.taps, prompt, forward.writes.target) if request.taps else ()
    if ids is None and own is not None and apart(written, slots.written[own]) < start:
        new, start = (ids := _prompt(request)), 0
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
    need = total + min(limit, ROOM) + 1
    slot = rows.vacant(need) if own is None or slots.busy[own] else own
    if slot is None or (slot == own and not rows.fit(own, need)):
        return None
    rows.replies(min(limit, REPLY) + 1)
    source, wave = slot, 0
    if ids is not None:
        source, start, wave = _shared(rows, np.array(ids, np.int32), slot, written)
        new = ids[start:]
        rows.pinned.add(source)
    rows.count[slot] = 0
    if source != slot:
        slots.write(slot, 0, slots.tokens[source, :start])
    slots.write(slot, start, new)
    slots.hold(slot, request.holder if own is None or own == slot else NOBODY)
    slots.path[slot], slots.busy[slot], slots.used[slot], slots.length[slot] = (), True, clock, total
    slots.ready[slot], slots.wave[slot] = start if source == slot else 0, wave
    slots.written[slot] = written
    forward.writes.begin(slot, written, prompt, total)
    return Joining(entry, slot, new, start, source, wave, limit)


class Filling:
    """Requests with long prompts, whose rows are prefilled piece by piece while others decode; the first goes first.

    Such a row is busy and nothing is sampled in it. ``Slots.length`` says how much of its prompt is cached, so that
    nobody copies more. A request that copies from a row that is not filled yet waits here behind it.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._queue: list[Joining] = []

    def __len__(self) -> int:
        return len(self._queue)

    def defer(self, joining: list[Joining]) -> list[Joining]:
        """Take the long prompts of requests in the order they were placed; gives the others, which join now.

        None are taken where nobody waits for one answer alone: a batch is done soonest if its prompts pass together.
        """
        rows, late = self._rows, list[Joining]()
        here = (j for j in (*joining, *self._queue, *rows.joined) if j is not None)
        if not rows.forward.reuses or not any(j.entry.live for j in here):
            return joining
        for j in joining:
            if len(j.new) > CHUNK or (j.wave and any(j.source == other.slot for other in late)):
                late.append(j)
        if not late:
            return joining
        # What is copied from now may be overwritten before the row's turn comes.
        copy(rows.forward, [j for j in joining if not j.wave], rows.drafts)
        for j in late:
            rows.slots.length[j.slot] = rows.slots.ready[j.slot] = 0 if j.wave else j.start
            j.entry.slot = j.slot
        self._queue += [j if j.wave else j._replace(source=j.slot) for j in late]
        return [j if j.wave else j._replace(source=j.slot) for j in joining if j not in late]

    def fill(self, most: int) -> Joining | None:
        """Prefill at most so many tokens of the first row, or give its request back where no more are left."""
        rows, j = self._rows, self._queue[0]
        at = int(rows.slots.length[j.slot])
        if len(j.new) - (at - j.start) <= most:
            self._queue.remove(j)
            return j
        new = np.array([j.slot]), [j.new[at - j.start :][:most]], np.array([at])
        rows.forward.prefill(*new)
        if rows.drafts is not None:
            rows.drafts.seen(*new)
        rows.slots.length[j.slot] = at + most
        return None

    def follow(self) -> None:
        """Copy for those whose source is here no more: it is filled, or was dropped, and then holds less."""
        rows, slots = self._rows, self._rows.slots
        here = {j.slot for j in self._queue}
        for i, j in enumerate(self._queue):
            if j.source != j.slot and j.source not in here:
                start = min(j.start, int(slots.length[j.source]))
                new = [*slots.tokens[j.slot, start : j.start].tolist(), *j.new]
                self._queue[i] = j._replace(start=start, new=new, source=j.slot, wave=0)
                copy(rows.forward, [j._replace(start=start)], rows.drafts)
                slots.length[j.slot] = start

    def drop(self, entry: Waiting) -> Joining | None:
        """Give up a request and its row; what is cached of its prompt stays."""
        for j in self._queue:
            if j.entry is entry:
                self._queue.remove(j)
                self._rows.slots.busy[j.slot] = False
                self._rows.forward.writes.drop(j.slot)
                self.follow()
                return j
        return None

    def clear(self) -> None:
        self._queue.clear()


def copy(forward: Fast | Generic, joining: list[Joining], drafts: Drafts | None) -> None:
    """Copy what requests share with other rows; all are read before any is written."""
    copied = [j for j in joining if j.source != j.slot and j.start]
    if copied:
        move = [j.source for j in copied], [j.slot for j in copied], max(j.start for j in copied)
        forward.move(*move)
        if drafts is not None:
            drafts.move(*move)


def prefill(forward: Fast | Generic, joining: list[Joining], drafts: Drafts | None = None) -> Tensor:
    """Copy what is cached and compute the rest, wave by wave; logits [n, V] behind each prompt."""
    logits: Tensor | None = None
    for wave in range(max(j.wave for j in joining) + 1):
        which = [i for i, j in enumerate(joining) if j.wave == wave]
        group = [joining[i] for i in which]
        if not group:
            continue
        copy(forward, group, drafts)
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


def _shared(rows: Rows, ids: npt.NDArray[np.int32], slot: int, written: tuple[Write, ...]) -> tuple[int, int, int]:
    """Row with the longest prefix of ``ids`` under the same writes, its length, and the wave that may copy it."""
    if not rows.forward.reuses:
        return slot, 0, 0
    source, start = rows.slots.match(ids, slot, written)
    ready = int(rows.slots.ready[source])
    if start <= ready:
        return source, start, 0
    if source == slot:
        return slot, ready, 0
    return source, start, int(rows.slots.wave[source]) + 1


def _prompt(request: Request) -> list[int]:
    ids: list[int] = []
    for node in request.path:
        if node.ids is None:
            raise BadInput(
                f"a {node.message.role} message has no token ids", remedy="Tokenise it with the model's renderer."
            )
        ids += node.ids
    return [*ids, *request.head, *request.forced]
