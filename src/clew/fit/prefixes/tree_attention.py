"""Attention over a trie of rows, in Hugging Face models: each token sees its own row up to itself, and nothing else.

``Trainer`` uses it where rows share beginnings. It hangs in transformers' table of attention functions under a name of
its own, and a model takes it for as long as ``attending`` lasts. ``objection`` says why a model cannot take it. It must
never be used where it would compute another law than row by row: windows, recurrent layers, dropout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from clew.core.errors import BadInput
from clew.fit.prefixes.trie import Trie, lay
from clew.models.engine.forwards.weights import text_config

NAME = "clew_tree"


class Piece(NamedTuple):
    """A run: the parts that it sees, its own the last, and which of their tokens: bool [new, seen], None where it
    begins a row."""

    parts: list[int]
    mask: Tensor | None


class Tree(NamedTuple):
    """What a forward pass over a trie needs beside its ids: position ids int64 [1, N], and a piece for each run.

    runs: how many tokens each has. parts: lengths of the stretches of the N that no run sees in part; keys and values
    are cut into them once, so that the backward pass fills no whole tensor for each run.
    """

    positions: Tensor
    pieces: list[Piece]
    runs: list[int]
    parts: list[int]

    def arguments(self) -> dict[str, Any]:
        """Of the module's forward; ``attending`` must hold."""
        return {"position_ids": self.positions, "clew_tree": self}


def tree(trie: Trie, device: torch.device) -> Tree:
    ends = sorted({place for run in trie.runs for pair in (*run.before, run[:2]) for place in pair})
    number, pieces = {place: i for i, place in enumerate(ends)}, []
    for run in trie.runs:
        new, before = run.stop - run.start, sum(stop - start for start, stop in run.before)
        mask = torch.ones(new, before + new, dtype=torch.bool, device=device).tril(before) if before else None
        seen = [part for start, stop in (*run.before, run[:2]) for part in range(number[start], number[stop])]
        pieces.append(Piece(seen, mask))
    parts = [stop - start for start, stop in pairwise(ends)]
    runs = [run.stop - run.start for run in trie.runs]
    return Tree(torch.from_numpy(trie.depth)[None].to(device), pieces, runs, parts)


@contextmanager
def attending(module: nn.Module) -> Iterator[None]:
    """The module computes its attention here, over a trie where its forward is given one; by sdpa otherwise."""
    config: Any = module.config
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    clew_tree: Tree | None = None,
    **settings: Any,
) -> tuple[Tensor, None]:
    """The function in transformers' table: [1, heads, N, d] each, gives [1, N, heads, d].

    Raises:
        BadInput: the layer asks for what is no plain attention.
    """
    if clew_tree is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
    asked = [name for name in ("softcap", "s_aux", "sliding_window", "position_bias") if settings.get(name) is not None]
    if asked or settings.get("dropout"):
        told = (
            f"a layer asks for {asked[0] if asked else 'dropout'}, which attention over shared prefixes does not know"
        )
        raise BadInput(told, remedy="Train with shared_prefixes='off'.")
    groups = query.shape[1] // key.shape[1]
    shared = groups > 1 and query.device.type == "cpu"  # on a GPU no fast kernel reads shared heads under a mask
    if not shared:
        key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    keys, values = (torch.split(states, clew_tree.parts, 2) for states in (key, value))
    out, scale = [], settings.get("scaling")
    for one, (parts, mask) in zip(torch.split(query, clew_tree.runs, 2), clew_tree.pieces, strict=True):
        k, v = (_together([states[i] for i in parts]) for states in (keys, values))
        causal = mask is None
        out.append(scaled_dot_product_attention(one, k, v, mask, is_causal=causal, scale=scale, enable_gqa=shared))
    return torch.cat(out, 2).transpose(1, 2), None


def _together(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)


ALL_ATTENTION_FUNCTIONS.register(NAME, attention)


def objection(module: nn.Module, body: nn.Module) -> str:
    """Why rows of this model must pass one by one, or nothing.

    Args:
        body: what gives its hidden states first.
    """
    config: Any = text_config(module)
    kinds = {*(getattr(config, "layer_types", None) or ())} - {"full_attention"}
    if kinds or (not getattr(config, "layer_types", None) and getattr(config, "sliding_window", None)):
        return f"it has layers that do not see a whole row ({', '.join(sorted(kinds)) or 'sliding_window'})"
    random = any(isinstance(part, nn.Dropout) and part.p > 0 for part in module.modules())
    if random or float(getattr(config, "attention_dropout", None) or 0):
        return "it trains with dropout, which differs between rows"
    if (own := getattr(config, "_attn_implementation", None)) not in ("sdpa", "eager"):
        return f"its attention is computed by {own!r}, and only sdpa and eager can be replaced"
    agrees = _agrees(module, body, int(config.vocab_size))
    return "" if agrees else "its layers ask for more than plain attention, or are none"


@torch.no_grad()
def _agrees(module: nn.Module, body: nn.Module, vocabulary: int) -> bool:
    """Whether three short rows have the same hidden states over their trie as each by itself."""
    device, training = next(module.parameters()).device, module.training
    rows = [np.array(row) % vocabulary for row in ([5, 6, 7, 8, 9], [5, 6, 7, 3], [5, 6, 7, 3, 4, 1], [2, 6])]
    trie = lay(rows)
    module.eval()
    try:
        alone = [body(input_ids=torch.from_numpy(row)[None].to(device), use_cache=False)[0][0] for row in rows]
        with attending(module):
            ids, more = torch.from_numpy(trie.ids)[None].to(device), tree(trie, device).arguments()
            packed = body(input_ids=ids, use_cache=False, **more)[0][0]
    except (TypeError, ValueError, KeyError, IndexError, RuntimeError, BadInput):
        return False  # a model of another make; row by row it trains as ever
    finally:
        module.train(training)
    near = 1e-4 if packed.dtype in (torch.float32, torch.float64) else 5e-2
    places = [torch.from_numpy(places).to(device) for places in trie.where]
    return all(torch.allclose(packed[at], one, atol=near, rtol=near) for at, one in zip(places, alone, strict=True))
