"""Rows to tensors: which tokens a step looks at, and how rows are cut into micro-batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from clew.core.errors import BadInput
from clew.core.records import LossRow
from clew.core.values import F32
from clew.fit.forbidden import Bits

if TYPE_CHECKING:
    from clew.fit.prefixes.tree_attention import Tree


class Tokens(NamedTuple):
    """What a loss reads: the N tokens of one micro-batch that any component applies to, flat, rows one after another.

    logp float32 [N]: the trainer's log-probability in nats, with gradient. old: the sampler's, 0 where not sampled.
    ref: of the reference policy, None unless every row has one. entropy: of the trainer's distribution, None unless
    the loss asks for it. weights float32 [N] and mask bool [N] are those of the component at hand. row int64 [N] says
    which of the ``rows`` rows a token belongs to; sets and roles have one entry per row. share float32 [rows]: what the
    tokens of each row are multiplied by (see clew.fit.weighing); None leaves the mean to the loss.
    """

    logp: Tensor
    old: Tensor
    weights: Tensor
    mask: Tensor
    row: Tensor
    rows: int
    ref: Tensor | None = None
    entropy: Tensor | None = None
    targets: dict[str, Tensor] = {}  # noqa: RUF012
    sets: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    share: Tensor | None = None


class Micro(NamedTuple):
    """One micro-batch. ids int64 [B, T], padded right; ``at`` int64 [N] indexes the flattened [B * T] positions whose
    next token is ``target``; the rest is as in Tokens. ``known``: sampled tokens whose sampler logprob is recorded.
    """

    ids: Tensor
    at: Tensor
    target: Tensor
    temperature: Tensor | None
    old: Tensor
    known: Tensor
    current: Tensor  # known, and sampled by the weights as they are now
    ref: Tensor | None
    weights: dict[str, Tensor]
    mask: dict[str, Tensor]
    row: Tensor
    rows: int
    targets: dict[str, Tensor]
    sets: tuple[str, ...]
    roles: tuple[str, ...]
    shares: dict[str, Tensor] = {}  # noqa: RUF012
    banned: Tensor | None = None  # uint8 [N, vocabulary / 8], a bit for each token that the law lacks, lowest first
    tree: Tree | None = None  # ids [1, N] are a trie of the rows, see clew.fit.prefixes.sharing

    def tokens(self, component: str, logp: Tensor, entropy: Tensor | None = None) -> Tokens:
        """The view of one component."""
        weights, mask, ends = self.weights[component], self.mask[component], (self.targets, self.sets, self.roles)
        share = self.shares.get(component)
        return Tokens(logp, self.old, weights, mask, self.row, self.rows, self.ref, entropy, *ends, share)


def check(rows: Sequence[LossRow]) -> None:
    """Refuse rows that no step can be taken on.

    Raises:
        BadInput: no rows, arrays of unequal length, a weight that is not finite, a sampled token without logprob.
    """
    if not rows:
        raise BadInput(
            "a training step needs at least one row",
            remedy="Take no step where all runs were rewarded alike, and collect others.",
        )
    for i, row in enumerate(rows):
        n = len(row.ids)
        arrays = {"sampled": row.sampled, "old": row.old, **row.weights, **row.targets}
        if row.versions is not None:
            arrays["versions"] = row.versions
        if row.ref is not None:
            arrays["ref"] = row.ref
        for name, array in arrays.items():
            if len(array) != n:
                raise BadInput(f"row {i}: {name} has {len(array)} values for {n} tokens")
        for name, weight in row.weights.items():
            if not np.isfinite(weight).all():
                raise BadInput(f"row {i}: component {name!r} has weights that are not finite")
        if row.sampled.any() and not np.isfinite(row.old[row.sampled]).all():
            raise BadInput(f"row {i}: sampled tokens without the sampler's logprob", remedy="Make it an sft row.")


def applies(row: LossRow, component: str) -> np.ndarray:
    """bool [T]: where a component counts: in rows that have its stream, at sampled tokens and wherever it weighs."""
    weight = row.weights.get(component)
    if weight is None:
        return np.zeros(len(row.ids), dtype=bool)
    where = row.sampled | (weight != 0)
    where[0] = False  # nothing predicts the first token
    return np.asarray(where)


def plan(rows: Sequence[LossRow], tokens: int, waste: float = 0.25, at_least: int = 1) -> list[list[int]]:
    """Micro-batches as lists of row numbers: like lengths together, at most ``tokens`` padded tokens each.

    Rows of one ``set`` stay together. A batch is closed when a row would waste more than ``waste`` of its slot. The
    order depends on the rows only, so a step that is taken again is cut the same way. Where there are fewer batches
    than ``at_least``, the number of ranks, they are cut again into smaller ones, so that each rank has its share.
    """
    units: dict[object, list[int]] = {}
    for i, row in enumerate(rows):
        units.setdefault(row.set or i, []).append(i)
    length = {key: max(len(rows[i].ids) for i in members) for key, members in units.items()}
    out: list[list[int]] = []
    longest = 0
    for key in sorted(units, key=lambda k: -length[k]):
        members = units[key]
        full = not out or longest * (len(out[-1]) + len(members)) > tokens
        if full or (length[key] < (1 - waste) * longest and longest * len(out[-1]) > tokens // 4):
            out.append([])
            longest = length[key]
        out[-1] += members
    if len(out) < at_least:
        share = -(-sum(len(row.ids) for row in rows) // at_least)
        return plan(rows, share, waste) if share < tokens else out
    return out


def padded(rows: Sequence[LossRow], part: Sequence[int]) -> int:
    """The tokens of a micro-batch of these rows, its padding counted."""
    return len(part) * max(len(rows[i].ids) for i in part)


def blank(device: torch.device) -> Micro:
    """A micro-batch that weighs nothing: for a rank that must pass through the model because the others do."""
    none = np.zeros(2, dtype=bool)
    row = LossRow(np.zeros(2, np.int32), none, {"": np.zeros(2, np.float32)}, np.full(2, np.nan, np.float32))
    return collate([row], 0, device)._replace(weights={}, mask={})


def collate(
    rows: Sequence[LossRow],
    version: int,
    device: torch.device,
    shares: Mapping[str, F32] | None = None,
    banned: Sequence[Bits | None] = (),
) -> Micro:
    """Rows of one micro-batch as tensors on ``device``; ``version`` names the trainer's present weights.

    ``shares``: component name -> float32 [rows], see Tokens. ``banned``: of each row, see ``forbidden.forbidden``.
    """
    names = list(dict.fromkeys(name for row in rows for name in row.weights))
    masks = {name: [applies(row, name) for row in rows] for name in names}
    longest = max(len(row.ids) for row in rows)
    ids = np.zeros((len(rows), longest), dtype=np.int64)
    picked = []
    for b, row in enumerate(rows):
        ids[b, : len(row.ids)] = row.ids
        picked.append(np.flatnonzero(np.logical_or.reduce([masks[name][b] for name in names])))

    def flat(arrays: Sequence[np.ndarray], dtype: type) -> Tensor:
        joined: np.ndarray = np.concatenate([a[p] for a, p in zip(arrays, picked, strict=True)]).astype(
            dtype, copy=False
        )
        return torch.from_numpy(joined).to(device)

    def stream(name: str) -> list[np.ndarray]:
        return [row.weights.get(name, np.zeros(len(row.ids), np.float32)) for row in rows]

    def target(name: str) -> list[np.ndarray]:
        return [row.targets.get(name, np.full(len(row.ids), np.nan, np.float32)) for row in rows]

    at = np.concatenate([b * longest + p - 1 for b, p in enumerate(picked)])
    known = [row.sampled & np.isfinite(row.old) for row in rows]
    fresh = [
        k & ((row.version if row.versions is None else row.versions) == version)
        for k, row in zip(known, rows, strict=True)
    ]
    heat = np.repeat([row.temperature for row in rows], [len(p) for p in picked]).astype(np.float32)
    refs = [row.ref for row in rows if row.ref is not None]
    return Micro(
        ids=torch.from_numpy(ids).to(device),
        at=torch.from_numpy(at).to(device),
        target=flat([row.ids for row in rows], np.int64),
        temperature=torch.from_numpy(heat).to(device) if (heat != 1).any() else None,
        old=flat([np.where(k, row.old, 0) for k, row in zip(known, rows, strict=True)], np.float32),
        known=flat(known, np.bool_),
        current=flat(fresh, np.bool_),
        ref=flat(refs, np.float32) if len(refs) == len(rows) else None,
        weights={name: flat(stream(name), np.float32) for name in names},
        mask={name: flat(masks[name], np.bool_) for name in names},
        row=torch.from_numpy(np.repeat(np.arange(len(rows)), [len(p) for p in picked])).to(device),
        rows=len(rows),
        targets={name: flat(target(name), np.float32) for name in dict.fromkeys(n for r in rows for n in r.targets)},
        sets=tuple(row.set for row in rows),
        roles=tuple(row.role for row in rows),
        shares={name: torch.from_numpy(share).to(device) for name, share in (shares or {}).items()},
        banned=_bits(banned, picked, device),
    )


def _bits(banned: Sequence[Bits | None], picked: Sequence[np.ndarray], device: torch.device) -> Tensor | None:
    """What grammars forbade and truncation cut off at the places that are looked at; None where every row was free."""
    width = max((len(one[0]) for one in banned if one is not None), default=0)
    if not width:
        return None
    none = [np.zeros((len(p), width), np.uint8) for p in picked]
    found = [free if one is None else one[p] for one, p, free in zip(banned, picked, none, strict=True)]
    return torch.from_numpy(np.concatenate(found)).to(device)
