"""Hidden states of given token ids: by the fast forward where the model has one, else by hooks on its own modules.

``Local.states`` is the front. What rows have in common at their beginning passes the fast forward once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from clew.core.errors import BadInput
from clew.core.records import Tapped
from clew.core.values import F32
from clew.models.engine.forwards.fast import CHUNK
from clew.models.engine.forwards.generic import Generic
from clew.models.engine.forwards.packed_rows import I64, similar
from clew.models.engine.forwards.weights import unwrap
from clew.models.engine.taps.blocks import watched
from clew.models.engine.taps.deep import Deep
from clew.models.engine.taps.placing import Write, apart, check_target, no_layer, placed
from clew.models.engine.taps.writes import apply
from clew.models.local.shared_prefix import clusters

ROOM = 1 << 30  # bytes of keys and values that are held at once
STEP = 64  # positions by which the cache grows
PADDED = 1 << 14  # positions of a padded batch of the slow way


class Row(NamedTuple):
    """Ids of which the states at positions ``wanted`` (rising) are read, and what is written meanwhile."""

    ids: Sequence[int]
    wanted: I64
    writes: tuple[Write, ...] = ()


def numbered(layers: Sequence[int | str], count: int) -> list[int]:
    """Layers as numbers: "embed" is -1, "norm" the number of blocks.

    Raises:
        BadInput: there is no such layer, or none is named.
    """
    named = {"embed": -1, "norm": count}
    out = [named.get(layer, -2) if isinstance(layer, str) else layer for layer in layers]
    if wrong := [layer for layer in out if isinstance(layer, bool) or not isinstance(layer, (int, np.integer))]:
        raise no_layer(wrong[0], count)
    for given, number in zip(layers, out, strict=True):
        if not (isinstance(given, str) and number in named.values()) and not 0 <= number < count:
            raise no_layer(given, count)
    if not out or len(set(out)) < len(out):
        raise BadInput(f"layers {list(layers)} name none, or one twice", remedy="Name each layer to read once.")
    return out


def rows_of(
    ids: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]] | None,
    taps: Sequence[Sequence[Tapped]] | None,
    prompts: Sequence[int] | None,
    forward: Deep | Generic,
) -> list[Row]:
    """Rows cut behind the last position that is wanted of each; arguments as in ``Local.states``.

    Raises:
        BadInput: positions that do not rise or are not in their row; a tap that cannot be; quantised weights.
    """
    check_target(forward.writes.target)
    out = []
    for i, given in enumerate(ids):
        wanted = np.arange(len(given)) if positions is None else np.asarray(positions[i], np.int64)
        if wanted.size and not (wanted[0] >= 0 and wanted[-1] < len(given) and (np.diff(wanted) > 0).all()):
            raise BadInput(
                f"positions {wanted.tolist()[:8]} of row {i} do not rise from 0 to {len(given) - 1}",
                remedy="Give each position once, in order.",
            )
        prompt = len(given) if prompts is None else prompts[i]
        writes = placed(taps[i], prompt, forward.writes.target) if taps is not None else ()
        out.append(Row(given[: int(wanted.max(initial=-1)) + 1], wanted, writes))
    return out


def fast_states(forward: Deep, rows: Sequence[Row], layers: Sequence[int]) -> list[F32]:
    """States [positions, layers, width], float32, of each row; ``layers`` rise, see ``Deep.states``."""
    out = [np.zeros((len(row.wanted), len(layers), forward.width), np.float32) for row in rows]
    left = sorted((i for i, row in enumerate(rows) if len(row.ids)), key=lambda i: len(rows[i].ids))
    jobs: list[tuple[list[int], int]] = []
    for cluster in clusters([rows[i].ids for i in left]):
        group = [left[i] for i in cluster.rows]
        shared = min(cluster.shared, *(apart(rows[group[0]].writes, rows[i].writes) for i in group))
        if shared:
            jobs.append((group, shared))
    shares = {i for group, _ in jobs for i in group}
    jobs.append(([i for i in left if i not in shares], 0))
    for group, shared in jobs:
        while group:
            size = -(-max(len(rows[i].ids) for i in group) // STEP) * STEP
            take = max(1, ROOM // (forward.token_bytes * size))
            group, part = group[:-take], group[-take:]
            room = forward.arena.room
            if len(room) < len(part) or room.max() < size:
                forward.resize(max(len(room), len(part)), max(int(room.max(initial=0)), size))
            _read(forward, rows, part, shared, layers, out)
    return out


def _read(
    forward: Deep, rows: Sequence[Row], part: list[int], shared: int, layers: Sequence[int], out: list[F32]
) -> None:
    """Read some rows side by side in the cache; the first ``shared`` tokens, the same in all, pass once."""
    try:
        for slot, i in enumerate(part):
            forward.writes.begin(slot, rows[i].writes, 0, 0)
        early = [int(np.searchsorted(rows[i].wanted, shared)) for i in part]
        if shared:
            every = np.unique(np.concatenate([rows[i].wanted[:n] for i, n in zip(part, early, strict=True)]))
            (found,) = _passed(forward, [rows[part[0]].ids[:shared]], 0, [every], layers)
            forward.move([0] * (len(part) - 1), range(1, len(part)), shared)
            for i, n in zip(part, early, strict=True):
                out[i][:n] = found[np.searchsorted(every, rows[i].wanted[:n])]
        ends = [rows[i].ids[shared:] for i in part]
        late = [rows[i].wanted[n:] for i, n in zip(part, early, strict=True)]
        for i, n, found in zip(part, early, _passed(forward, ends, shared, late, layers), strict=True):
            out[i][n:] = found
    finally:
        forward.writes.clear()


def _passed(
    forward: Deep, ids: Sequence[Sequence[int]], start: int, wanted: Sequence[I64], layers: Sequence[int]
) -> list[F32]:
    """States at positions ``wanted`` of rows 0 up to len(ids) of the cache, whose new tokens begin at ``start``."""
    out = [np.zeros((len(places), len(layers), forward.width), np.float32) for places in wanted]
    longest = max(map(len, ids))
    for at in range(0, longest, CHUNK):
        some = [i for i, row in enumerate(ids) if len(row) > at]
        pieces = {i: ids[i][at : at + CHUNK] for i in some}
        for group in similar(np.array([len(pieces[i]) for i in some])):
            which = [some[g] for g in group.tolist()]
            first, low = 0, start + at
            picked, spans = list[I64](), list[tuple[int, int]]()
            for i in which:
                a, b = np.searchsorted(wanted[i], (low, low + len(pieces[i]))).tolist()
                picked.append(wanted[i][a:b] - low + first)
                spans.append((a, b))
                first += len(pieces[i])
            given = [pieces[i] for i in which], np.full(len(which), low), layers, np.concatenate(picked)
            states = _numbers(forward.states(np.array(which), *given))
            done = 0
            for i, (a, b) in zip(which, spans, strict=True):
                out[i][a:b] = states[done : done + b - a]
                done += b - a
    return out


def module_states(forward: Generic, rows: Sequence[Row], layers: Sequence[int]) -> list[F32]:
    """The same by hooks on the module's own blocks, rows padded on the right, nothing cached."""
    out = [np.zeros((len(row.wanted), len(layers), forward.width), np.float32) for row in rows]
    left = sorted((i for i, row in enumerate(rows) if len(row.ids)), key=lambda i: len(rows[i].ids))
    while left:
        take = max(1, PADDED // len(rows[left[-1]].ids))
        left, part = left[:-take], left[-take:]
        _padded(forward, [rows[i] for i in part], layers, [out[i] for i in part])
    return out


@torch.inference_mode()
def _padded(forward: Generic, rows: Sequence[Row], layers: Sequence[int], out: Sequence[F32]) -> None:
    count, longest = len(rows), len(rows[-1].ids)
    given = torch.zeros(count, longest, dtype=torch.long, device=forward.device)
    for i, row in enumerate(rows):
        given[i, : len(row.ids)] = torch.tensor(list(row.ids))
        forward.writes.begin(i, row.writes, 0, 0)
    places = np.concatenate([i * longest + row.wanted for i, row in enumerate(rows)])
    where, number = torch.from_numpy(places).to(forward.device), forward.layers
    plan = forward.writes.plan(np.repeat(np.arange(count), longest), np.tile(np.arange(longest), count))
    forward.writes.clear()

    def seen(layer: int, x: Tensor) -> Tensor:
        if layer in plan:
            x = apply(plan[layer], x.reshape(count * longest, -1).clone()).view_as(x)
        if layer in layers:
            states = _numbers(x.reshape(count * longest, -1).index_select(0, where))
            done = 0
            for row, into in zip(rows, out, strict=True):
                into[:, layers.index(layer)] = states[done : done + len(row.wanted)]
                done += len(row.wanted)
        return x

    body: Any = unwrap(forward.module).base_model  # without the vocabulary head
    with watched(forward.module, {layer for layer in (*layers, *plan) if layer < number}, seen):
        ended = body(input_ids=given, use_cache=False)
    if layers[-1] == number:
        seen(number, ended.last_hidden_state)


def _numbers(states: Tensor) -> F32:
    numbers: F32 = states.float().cpu().numpy()
    return numbers
