"""Attention over a trie of rows, in Hugging Face models: each token sees its own row up to itself, and nothing else.

``Trainer`` uses it where rows share beginnings. It hangs in transformers' table of attention functions under a name of
its own, and a model takes it for as long as ``attending`` lasts. ``objection`` says why a model cannot take it. It must
never be used where it would compute another law than row by row: windows, recurrent layers, dropout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from clew.core.errors import BadInput
from clew.fit.prefixes.trie import Run, Trie, lay
from clew.models.engine.weights import text_config

NAME = "clew_tree"


class Piece(NamedTuple):
    """A run and which of the tokens it sees: bool [stop - start, seen], None where it begins a row."""

    run: Run
    mask: Tensor | None


class Tree(NamedTuple):
    """What a forward pass over a trie needs beside its ids: position ids int64 [1, N], and the pieces."""

    positions: Tensor
    pieces: list[Piece]

    def arguments(self) -> dict[str, Any]:
        """Of the module's forward; ``attending`` must hold."""
        return {"position_ids": self.positions, "clew_tree": self}


def tree(trie: Trie, device: torch.device) -> Tree:
    pieces = []
    for run in trie.runs:
        new, before = run.stop - run.start, sum(stop - start for start, stop in run.before)
        mask = torch.ones(new, before + new, dtype=torch.bool, device=device).tril(before) if before else None
        pieces.append(Piece(run, mask))
    return Tree(torch.from_numpy(trie.depth)[None].to(device), pieces)


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
    key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    out = []
    for (start, stop, before), mask in clew_tree.pieces:
        seen = (*before, (start, stop))
        keys, values = (_gather(states, seen) for states in (key, value))
        one = query[:, :, start:stop]
        scale = settings.get("scaling")
        out.append(scaled_dot_product_attention(one, keys, values, mask, is_causal=mask is None, scale=scale))
    return torch.cat(out, 2).transpose(1, 2), None


def _gather(states: Tensor, ranges: tuple[tuple[int, int], ...]) -> Tensor:
    parts = [states[:, :, start:stop] for start, stop in ranges]
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
