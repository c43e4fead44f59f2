"""The batched forward of any Hugging Face decoder whose attention transformers lets us replace.

The module's own blocks compute, over the new tokens of many rows packed into one sequence; attention is computed here,
over a cache that the engine owns. ``forward_of`` chooses it where ``objection`` finds nothing. It must never be used
where a row's numbers would depend on the rows beside it: that is what ``objection`` finds out.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from clew.models.engine.forwards.arena import KEYS, VALUES, Arena, Bank, Layout, Spot
from clew.models.engine.forwards.attention import SPAN, packs_of
from clew.models.engine.forwards.fast import CHUNK
from clew.models.engine.forwards.generic import Generic
from clew.models.engine.forwards.packed_rows import I64, Pack, as_came, similar
from clew.models.engine.forwards.transfers import sent_ids
from clew.models.engine.forwards.weights import FIXED_ROPE, text_config
from clew.models.engine.taps.blocks import watched
from clew.models.engine.taps.writes import apply

NAME = "clew_rows"
KINDS = {"full_attention", "sliding_attention"}
NO_MATTER = re.compile("dropout|is_causal|position_ids|use_cache|cache_position|output_.*")  # to one pass of attention


class Part(NamedTuple):
    """New tokens of m rows of one bank, of which none has more than ``longest``.

    tokens: these among the pass's. among: which of the bank's stretches are the rows', None for all. pad: int64
    [m, longest], places among the tokens, padding repeats a row's last; back: int64 [n], places among the m * longest.
    at: positions, int64 [m, longest]. masks: by window, made when first asked for.
    """

    bank: Bank
    tokens: slice
    among: Tensor | None
    span: int
    pad: Tensor
    back: Tensor
    at: Tensor
    masks: dict[int | None, Tensor]

    def mask(self, window: int | None) -> Tensor:
        """Bool [m, 1, longest, span]: which cached positions a token sees, all up to its own or the last ``window``."""
        if window not in self.masks:
            position = torch.arange(self.span, device=self.at.device)
            seen = position <= self.at[..., None]
            if window is not None:
                seen &= position > self.at[..., None] - window
            self.masks[window] = seen[:, None]
        return self.masks[window]


class Pass(NamedTuple):
    """One pass over N new tokens: where they lie, and what layers tell of themselves.

    spots: where the cache keeps them. windows: that layers have asked for.
    """

    arena: Arena
    parts: list[Part]
    spots: list[Spot]
    windows: set[int | None]

    def store(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Keep keys and values [1, heads, N, width] of a layer."""
        for which, new in ((KEYS, key), (VALUES, value)):
            self.arena.hold((layer, which), new.shape[1], new.shape[-1], new)
            self.arena.store((layer, which), self.spots, new[0].transpose(0, 1))


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    clew_rows: Pass,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **settings: Any,
) -> tuple[Tensor, None]:
    """The function in transformers' table: [1, heads, N, width] each, gives [1, N, heads, width].

    Raises:
        TypeError: the layer asks for what is not computed here.
    """
    if asked := [name for name, value in settings.items() if value is not None and not NO_MATTER.fullmatch(name)]:
        raise TypeError(f"attention with {asked[0]}")
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    clew_rows.windows.add(sliding_window)
    clew_rows.store(layer, key, value)
    scale, found = query.shape[-1] ** -0.5 if scaling is None else scaling, []
    for part in clew_rows.parts:
        keys, values = clew_rows.arena.pair(part.bank, part.span, layer, part.among)
        m, longest = part.pad.shape
        queries = query[0, :, part.tokens].index_select(1, part.pad.view(-1))
        queries = queries.view(-1, m, longest, query.shape[-1]).transpose(0, 1)
        seen = part.mask(sliding_window)
        if softcap is None and s_aux is None:
            shared = queries.shape[1] != keys.shape[1]
            out = scaled_dot_product_attention(queries, keys, values, seen, scale=scale, enable_gqa=shared)
        else:
            out = _plainly(queries, keys, values, seen, scale, softcap, s_aux)
        out = out.transpose(1, 2).reshape(m * longest, -1, values.shape[-1])
        found.append(out.index_select(0, part.back))
    return (found[0] if len(found) == 1 else torch.cat(found))[None], None


def _plainly(
    queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor, scale: float, cap: float | None, sinks: Tensor | None
) -> Tensor:
    """Attention with capped scores (Gemma 2) or with a logit for each head that takes weight from all (gpt-oss)."""
    m, heads, longest, width = queries.shape
    group = heads // keys.shape[1]
    scores = (queries.reshape(m, -1, group * longest, width) @ keys.mT).view(m, heads, longest, -1) * scale
    if cap is not None:
        scores = torch.tanh(scores / cap) * cap
    scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
    if sinks is not None:
        scores = torch.cat((scores, sinks.view(1, -1, 1, 1).expand(m, -1, longest, 1).to(scores.dtype)), -1)
    share = scores.float().softmax(-1).to(queries.dtype)[..., : seen.shape[-1]]
    return (share.reshape(m, -1, group * longest, share.shape[-1]) @ values).view(m, heads, longest, -1)


class Batched(Generic):
    """Same methods as ``Fast``, over the module's own blocks; see ``Generic`` for what they share.

    Args:
        module: one in which ``objection`` finds nothing.
        context: most positions of a row.
    """

    def __init__(self, module: nn.Module, context: int) -> None:
        super().__init__(module, context)
        self.reuses = True
        self.windows: set[int | None] = set()
        self.use(module)
        self.resize(1, SPAN)
        self.verify(np.zeros(1, np.int64), [[0]], np.zeros(1, np.int64))  # every layer tells its size
        self.token_bytes = self.arena.token_bytes

    def twin(self) -> Generic:
        """A forward of the module's own kind over the weights in use, for another thread."""
        other = Generic(self.module, self.context)
        other.use(self.module)
        return other

    def again(self) -> Generic:
        """Another forward of the same module, with caches of its own."""
        return Batched(self._source, self.context)

    def use(self, weights: Any) -> None:
        """Compute with this module from now on; what is cached is void."""
        self.module = weights
        self._run: Any = replaced(weights)
        self.clear()

    def clear(self) -> None:
        """Forget what is cached."""
        self.arena.clear()

    def move(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Copy the first ``length`` positions of rows onto others; all are read before any is written."""
        self.arena.move(sources, targets, length)

    def decode(self, rows: I64, tokens: I64, positions: I64) -> Tensor:
        """Logits [n, V] after one token for each of n rows, at its position."""
        return self._pass(rows, [[token] for token in tokens.tolist()], positions, every=True)

    def verify(self, rows: I64, ids: Sequence[Sequence[int]], starts: I64) -> Tensor:
        """Cache tokens of rows, each from its start; logits [N, V] after every one of them, row after row."""
        return self._pass(rows, ids, starts, every=True)

    def prefill(self, slots: I64, ids: Sequence[Sequence[int]], starts: I64) -> Tensor:
        """Cache new tokens of rows ``slots``, each from its start; logits [m, V] after the last token of each."""
        counts = np.array([len(row) for row in ids], dtype=np.int64)
        first = counts.cumsum() - counts
        logits: list[Tensor | None] = [None] * len(ids)
        kept: list[tuple[I64, Tensor]] = []  # tapped outputs, and where they belong
        for low in range(0, int(counts.max()), CHUNK):
            left = np.flatnonzero(counts > low)
            for group in similar(np.minimum(counts[left] - low, CHUNK)):
                which = left[group]
                pieces = [ids[i][low : low + CHUNK] for i in which.tolist()]
                found = self._pass(slots[which], pieces, starts[which] + low, every=False)
                spans = [first[i] + low + np.arange(len(p)) for i, p in zip(which.tolist(), pieces, strict=True)]
                kept.append((np.concatenate(spans), self.hidden))
                for i, one in zip(which.tolist(), found, strict=True):
                    logits[i] = one
        if len(kept) > 1:
            order = np.concatenate([places for places, _ in kept]).argsort()
            self.hidden = torch.cat([part for _, part in kept])[self._ids(order)]
        return torch.stack([one for one in logits if one is not None])

    @torch.inference_mode()
    def _pass(self, slots: I64, ids: Sequence[Sequence[int]], starts: I64, every: bool) -> Tensor:
        """Logits after every token of a pass, or after each row's last."""
        lay, back = self.arena.layout(slots), None
        if lay.order is not None:
            back = as_came(lay.order, [len(row) for row in ids])
            ids, starts = [ids[i] for i in lay.order.tolist()], starts[lay.order]
        packs = packs_of(lay, ids, starts, SPAN)
        pack = Pack.joined(packs)
        at = self._ids(pack.at)
        given = {"input_ids": self._ids(pack.tokens)[None], "position_ids": at[None]}
        last = pack.counts.cumsum() - 1
        wanted = {} if every else {"logits_to_keep": self._ids(last if lay.back is None else last[lay.back])}
        how = {
            "use_cache": False,
            "output_hidden_states": bool(self.taps),
            "clew_rows": self._planned(lay, packs, lay.spots(at, pack.counts)),
        }
        with self._steered(pack.slots[pack.row], pack.at) if self.writes else nullcontext():
            out = self._run(**given, **wanted, **how)
        if self.taps:
            self.hidden = torch.cat([out.hidden_states[i + 1][0] for i in self.taps], -1)
        else:
            self.hidden = torch.empty(len(pack.tokens), 0, device=self.device)
        logits: Tensor = out.logits[0]
        if back is not None:
            self.hidden = self.hidden.index_select(0, self._ids(back))
            logits = logits.index_select(0, self._ids(back)) if every else logits
        return logits

    def _planned(self, lay: Layout, packs: list[Pack], spots: list[Spot]) -> Pass:
        parts, first = [], 0
        for bank, one in zip(lay.banks, packs, strict=True):
            padded, n = one.padded, len(one.tokens)
            among = None if bank.at is None else self._ids(bank.at)
            pad, back = self._ids(one.first[:, None] + padded), self._ids(one.row * padded.shape[1] + one.offset)
            at = self._ids(one.starts[:, None] + padded)
            parts.append(Part(bank, slice(first, first + n), among, one.span, pad, back, at, {}))
            first += n
        return Pass(self.arena, parts, spots, self.windows)

    def _steered(self, rows: I64, at: I64) -> AbstractContextManager[None]:
        """What these tokens write into hidden states, while they pass."""
        plan = self.writes.plan(rows, at)
        return watched(self._run, plan.keys(), lambda number, x: apply(plan[number], x[0].clone())[None])

    def _ids(self, values: Sequence[int] | I64) -> Tensor:
        return sent_ids(values, self.device)


def replaced(module: nn.Module) -> nn.Module:
    """The same module over the same parameters, whose attention is computed here; the module keeps its own."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(NAME, attention)
    shared = {id(t): t for t in chain(module.parameters(), module.buffers())}
    made = copy.deepcopy(module, shared)
    for config in (made.config, text_config(made)):
        config._attn_implementation = NAME
    return made.eval()


def objection(module: nn.Module, context: int) -> str:
    """Why the rows of this module must pass one by one, or nothing."""
    config: Any = text_config(module)
    if getattr(config, "_attn_implementation", None) not in ("sdpa", "eager"):
        return "its attention is neither sdpa nor eager"
    if strange := {*(getattr(config, "layer_types", None) or ())} - KINDS:
        return f"it has layers of other kinds: {', '.join(sorted(map(str, strange)))}"
    rope = getattr(config, "rope_parameters", None) or {}
    each = [rope, *(one for one in rope.values() if isinstance(one, dict))]
    if any(one.get("rope_type", "default") not in FIXED_ROPE for one in each):
        return "its rotary positions depend on the longest row of a batch"
    kinds, window = getattr(config, "layer_types", None), getattr(config, "sliding_window", None)
    windowed = "sliding_attention" in kinds if kinds else window is not None
    agrees = _agrees(module, context, {window} if windowed else set())
    return "" if agrees else "its layers ask for more than can be replaced, or are no attention"


@torch.inference_mode()
def _agrees(module: nn.Module, context: int, windows: set[int | None]) -> bool:
    """Whether rows have the same logits together, in pieces, as each by itself, and layers name these windows."""
    model: Any = module
    training, size = module.training, min(40, context)
    module.eval()
    try:
        vocabulary = int(text_config(module).vocab_size)
        rows = [[(7 * i * i + 3 * k) % vocabulary for i in range(n)] for k, n in enumerate((size, 3, size // 2))]
        device = next(module.parameters()).device
        alone = [model(input_ids=torch.tensor([row], device=device), use_cache=False).logits[0] for row in rows]
        forward = Batched(module, context)
        forward.resize(3, size)
        slots, cut = np.array([2, 0, 1]), [size - 4, 2, 1]
        first = forward.prefill(slots, [row[:n] for row, n in zip(rows, cut, strict=True)], np.zeros(3, np.int64))
        rest = [row[n:] for row, n in zip(rows, cut, strict=True)]
        after = torch.split(forward.verify(slots, rest, np.array(cut)), [len(row) for row in rest])
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, RuntimeError, NotImplementedError):
        return False  # a module of another make: it computes row by row, as ever
    finally:
        module.train(training)
    if not windows <= forward.windows:
        return False  # they are in masks of the module's own, which rows as short as these do not show
    near = 1e-3 if first.dtype in (torch.float32, torch.float64) else 1e-1
    pairs = [(one[n - 1], found) for one, n, found in zip(alone, cut, first, strict=True)]
    pairs += [(one[n:], found) for one, n, found in zip(alone, cut, after, strict=True)]
    return all(torch.allclose(one, found, atol=near * float(one.abs().max()), rtol=near) for one, found in pairs)
