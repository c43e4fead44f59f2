"""Drafters good, bad and adversarial, for the tests of speculation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clew.models.drafters.plain import Independent
from clew.models.engine.speculation.proposal import F64, I64, Proposal
from clew.models.sampling import Laws, draw, in_force


class Blind:
    """Proposes from a table of logits by the token before; knows nothing of the target. The base of the others."""

    taps: tuple[int, ...] = ()

    def __init__(
        self, vocabulary: int, block: int = 4, seed: int = 0, by: float = 2.0, kind: Any = torch.float64
    ) -> None:
        self.vocabulary, self.block = vocabulary, block
        generator = torch.Generator().manual_seed(seed)
        self.table = by * torch.randn(vocabulary, vocabulary, generator=generator, dtype=torch.float64).to(kind)
        self.trust = torch.rand(vocabulary, generator=generator)

    def resize(self, rows: int, size: int) -> None: ...
    def clear(self) -> None: ...
    def move(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None: ...
    def extend(self, rows: I64, ids: Sequence[Sequence[int]], starts: I64, hidden: Tensor) -> None: ...

    def logits(self, rows: I64, tokens: Tensor, positions: I64) -> Tensor:
        return self.table[tokens]

    def propose(self, rows: I64, anchors: I64, positions: I64, laws: Laws, u: F64) -> Proposal:
        last, tokens, logq, chance = torch.from_numpy(np.array(anchors)), [], [], []
        for k in range(self.block):
            logits = self.logits(rows, last, positions + k)
            chance.append(self.trust[last])
            last = draw(logits, laws, torch.from_numpy(u[:, k : k + 1]))[0][:, 0]
            tokens.append(last)
            logq.append(in_force(logits, laws))
        return Proposal(torch.stack(tokens, 1), torch.stack(logq, 1), torch.stack(chance, 1))


class Stubborn(Blind):
    """Always proposes the token the table of the last one thinks least likely: a point mass, nearly always wrong."""

    def logits(self, rows: I64, tokens: Tensor, positions: I64) -> Tensor:
        worst = self.table[tokens].argmin(-1, keepdim=True)
        return torch.full_like(self.table[tokens], -torch.inf).scatter_(-1, worst, 0.0)


class Twin(Independent):
    """The target itself, or its like with other weights: nearly every token is accepted."""

    def __init__(self, module: torch.nn.Module, block: int = 4, context: int = 256) -> None:
        super().__init__(module, block, context + 64)


class Witness(Blind):
    """Keeps what it is shown of each row, and looks before it drafts whether that is the module's own computation."""

    def __init__(self, module: Any, taps: tuple[int, ...], block: int = 4) -> None:
        super().__init__(module.config.vocab_size, block)
        self.module, self.taps, self.looked = module, taps, 0
        self.ids: list[list[int]] = []
        self.hidden: list[list[Tensor]] = []

    def resize(self, rows: int, size: int) -> None:
        self.ids = (self.ids + [[] for _ in range(rows)])[:rows]
        self.hidden = (self.hidden + [[] for _ in range(rows)])[:rows]

    def clear(self) -> None:
        self.ids, self.hidden = [[] for _ in self.ids], [[] for _ in self.ids]

    def move(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        held = [(self.ids[i][:length], self.hidden[i][:length]) for i in sources]
        for i, (ids, hidden) in zip(targets, held, strict=True):
            self.ids[i], self.hidden[i] = list(ids), list(hidden)

    def extend(self, rows: I64, ids: Sequence[Sequence[int]], starts: I64, hidden: Tensor) -> None:
        parts = hidden.split([len(i) for i in ids])
        for row, new, start, part in zip(rows.tolist(), ids, starts.tolist(), parts, strict=True):
            assert start <= len(self.ids[row])
            self.ids[row][start:] = list(new)
            self.hidden[row][start:] = list(part)

    def propose(self, rows: I64, anchors: I64, positions: I64, laws: Laws, u: F64) -> Proposal:
        for row, at in zip(rows.tolist(), positions.tolist(), strict=True):
            assert len(self.ids[row]) == at
            out = self.module(torch.tensor([self.ids[row]]), output_hidden_states=True, use_cache=False)
            expected = torch.cat([out.hidden_states[tap + 1][0] for tap in self.taps], -1)
            torch.testing.assert_close(torch.stack(self.hidden[row]), expected, rtol=0, atol=1e-5)
            self.looked += 1
        return super().propose(rows, anchors, positions, laws, u)
