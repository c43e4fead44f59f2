"""Drafters that read tokens only: an independent language model, and prompt lookup."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from clew.models.drafters.cache import packed
from clew.models.drafters.drawing import draw_each
from clew.models.engine.forwards.choosing import forward_of
from clew.models.engine.forwards.weights import text_config
from clew.models.engine.speculation.proposal import F64, I64, Proposal
from clew.models.sampling import Laws, in_force


class Independent:
    """A causal LM over the target's vocabulary (2211.17192).

    Args:
        inner: a Hugging Face causal LM. block: tokens proposed. context: positions of the target.
    """

    taps: tuple[int, ...] = ()

    def __init__(self, inner: nn.Module, block: int, context: int) -> None:
        self.block, self.vocabulary = block, int(text_config(inner).vocab_size)
        self._forward = forward_of(inner, context + block)
        self._forward.use(self._forward.read())

    def resize(self, rows: int, size: int) -> None:
        self._forward.resize(rows, size + self.block)

    def clear(self) -> None:
        self._forward.clear()

    def move(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        self._forward.move(sources, targets, length)

    def extend(self, rows: I64, ids: Sequence[Sequence[int]], starts: I64, hidden: Tensor) -> None:
        self._forward.prefill(rows, ids, starts)

    @torch.inference_mode()
    def propose(self, rows: I64, anchors: I64, positions: I64, laws: Laws, u: F64) -> Proposal:
        noise, tokens, drawn, logps = torch.from_numpy(u).to(self._forward.device), anchors, [], []
        for k in range(self.block):
            logp = in_force(self._forward.decode(rows, tokens, positions + k), laws)
            drawn.append(draw_each(logp, noise[:, k]))
            tokens = drawn[-1].cpu().numpy()
            logps.append(logp)
        logq = torch.stack(logps, 1)
        return Proposal(torch.stack(drawn, 1), logq, logq.amax(-1).exp().float())


class Lookup:
    """Proposes what followed the last tokens where they stood before in the same text (prompt lookup); no training.

    Args:
        longest: of the last tokens that are looked for, as many as stand anywhere else.
        chance: told of a token that was found; 0 where nothing was.
    """

    taps: tuple[int, ...] = ()

    def __init__(self, vocabulary: int, block: int = 7, longest: int = 4, chance: float = 0.7) -> None:
        self.block, self.vocabulary, self._longest, self._told = block, vocabulary, longest, chance
        self._tokens = np.zeros((0, 0), np.int64)

    def resize(self, rows: int, size: int) -> None:
        new = np.zeros((rows, size + self.block), np.int64)
        kept, length = min(rows, len(self._tokens)), min(new.shape[1], self._tokens.shape[1])
        new[:kept, :length] = self._tokens[:kept, :length]
        self._tokens = new

    def clear(self) -> None:
        self._tokens[:] = 0

    def move(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        self._tokens[list(targets), :length] = self._tokens[list(sources), :length]

    def extend(self, rows: I64, ids: Sequence[Sequence[int]], starts: I64, hidden: Tensor) -> None:
        at, tokens, positions = packed(rows, ids, starts)
        self._tokens[at, positions] = tokens

    def propose(self, rows: I64, anchors: I64, positions: I64, laws: Laws, u: F64) -> Proposal:
        n = len(rows)
        tokens, chance = np.zeros((n, self.block), np.int64), np.zeros((n, self.block), np.float32)
        for i, (row, anchor, position) in enumerate(zip(rows, anchors, positions, strict=True)):
            self._tokens[row, position] = anchor
            text = self._tokens[row, : position + 1]
            found = self._place(text)
            tokens[i] = anchor if found is None else text[found + np.arange(self.block) % (len(text) - found)]
            chance[i] = 0.0 if found is None else self._told
        drawn = torch.from_numpy(tokens)
        logq = torch.full((n, self.block, self.vocabulary), float("-inf")).scatter_(-1, drawn[..., None], 0.0)
        return Proposal(drawn, logq, torch.from_numpy(chance))

    def _place(self, text: I64) -> int | None:
        """Where the text goes on as it will: behind the latest of the longest matches with its own end."""
        ends = np.flatnonzero(text[:-1] == text[-1])
        if not ends.size:
            return None
        for back in range(1, self._longest):
            further = ends[ends >= back]
            further = further[text[further - back] == text[-1 - back]] if len(text) > back + 1 else further[:0]
            if not further.size:
                break
            ends = further
        return int(ends[-1]) + 1
