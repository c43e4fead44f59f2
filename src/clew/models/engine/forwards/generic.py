"""The slow forward for any causal LM: the module's own, one row at a time, over its own ``past_key_values``."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clew.models.engine.forwards.arena import Arena
from clew.models.engine.forwards.packed_rows import I64
from clew.models.engine.forwards.weights import text_config
from clew.models.engine.taps.blocks import target_of, watched
from clew.models.engine.taps.writes import Writes, apply


class Generic:
    """Same methods as ``Fast``, correct for every module, and a twin that ``Fast`` is tested against.

    ``reuses`` is False where a cache cannot be cut back (recurrent or sliding state): then no prefix is reused. A
    module that hands out no ``past_key_values`` at all computes the whole row at every token.

    Attributes:
        taps, hidden, writes: as in ``Fast``. module: the copy in use.
    """

    taps: tuple[int, ...] = ()
    hidden: Tensor

    def __init__(self, module: nn.Module, context: int, steady: bool = False) -> None:
        self._source: Any = module
        self._steady = steady
        self.context = context
        config = text_config(module)
        self.vocabulary: int = config.vocab_size
        self.layers: int = config.num_hidden_layers
        self.width: int = config.hidden_size
        parameter = next(module.parameters())
        self.device, self.dtype = parameter.device, parameter.dtype
        self.token_bytes = 2 * self.layers * self.width * parameter.element_size()
        self.arena = Arena()  # says how much room each row has; the numbers are in the rows' own caches
        self.hidden = torch.empty(0)
        self._caches: dict[int, Any] = {}  # past_key_values, or the row's token ids where there are none
        self.reuses = False
        self.writes = Writes(target_of(module, self.layers, self.width, context), self.device, self.dtype)

    def twin(self) -> Generic:
        """Another forward over the module in use, with caches and writes of its own, for another thread."""
        other = copy.copy(self)
        other.arena, other._caches, other.taps = Arena(), {}, ()
        other.writes = Writes(self.writes.target, self.device, self.dtype)
        return other

    def again(self) -> Generic:
        """Another forward of the same module, without weights yet and with caches of its own."""
        return Generic(self._source, self.context, self._steady)

    def read(self) -> Any:
        """A copy of the module, for ``use``."""
        return copy.deepcopy(self._source).eval()

    def use(self, weights: Any) -> None:
        """Compute with this module from now on; what is cached is void."""
        self.module: Any = weights
        self.clear()
        self.reuses = self._cuts_back()

    def clear(self) -> None:
        """Forget what is cached."""
        self._caches.clear()

    def resize(self, rows: int, size: int) -> None:
        """Make room for ``rows`` rows of ``size`` positions each."""
        self.arena.even(rows, size)

    def free(self, row: int) -> None:
        """Nothing of this row is needed any more."""
        self._caches.pop(row, None)
        self.arena.free(row)

    def move(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Copy rows onto others; all are read before any is written."""
        copies = [copy.deepcopy(self._caches.get(i)) for i in sources]
        self._caches.update(zip(targets, copies, strict=True))

    def decode(self, rows: I64, tokens: I64, positions: I64) -> Tensor:
        """Logits [n, V] after one token for each of n rows, at its position."""
        entries = zip(rows.tolist(), tokens.tolist(), positions.tolist(), strict=True)
        return self._together([self._forward(row, [token], at) for row, token, at in entries])

    def verify(self, rows: I64, ids: Sequence[Sequence[int]], starts: I64) -> Tensor:
        """Cache tokens of rows, each from its start; logits [N, V] after every one of them, row after row."""
        entries = zip(rows.tolist(), ids, starts.tolist(), strict=True)
        return self._together([self._forward(row, list(new), at) for row, new, at in entries])

    def prefill(self, slots: I64, ids: Sequence[Sequence[int]], starts: I64) -> Tensor:
        """Cache new tokens of rows ``slots``, each from its start; logits [m, V] after the last token of each."""
        passes = []
        for row, new, at in zip(slots.tolist(), ids, starts.tolist(), strict=True):
            # Steady: the same pieces always, which are single tokens.
            step = 1 if self._steady else len(new)
            parts = []
            for i in range(0, len(new), step):
                logits, hidden = self._forward(row, list(new[i : i + step]), at + i)
                parts.append(hidden)
            passes.append((logits[-1:], torch.cat(parts)))
        return self._together(passes)

    def _together(self, passes: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Logits of some passes, one after the other, whose tapped outputs are kept."""
        self.hidden = torch.cat([hidden for _, hidden in passes])
        return torch.cat([logits for logits, _ in passes])

    @torch.inference_mode()
    def _forward(self, row: int, ids: list[int], start: int) -> tuple[Tensor, Tensor]:
        """Logits [n, V] and tapped outputs [n, taps * width] of a row's new tokens."""
        new, cache = len(ids), self._caches.get(row) if start else None
        if isinstance(cache, list):
            ids, cache = cache[:start] + ids, None
        elif cache is not None and self.reuses and (surplus := cache.get_seq_length() - start) > 0:
            cache.crop(-surplus)
        given = torch.tensor([ids], device=self.device)
        past = {} if cache is None else {"past_key_values": cache}
        with self._written(row, start + new - len(ids), len(ids), start) if self.writes else nullcontext():
            out = self.module(input_ids=given, use_cache=True, output_hidden_states=bool(self.taps), **past)
        self._caches[row] = ids if (cache := getattr(out, "past_key_values", None)) is None else cache
        logits = out.logits[0, -new:]
        if not self.taps:
            return logits, logits[:, :0]
        return logits, torch.cat([out.hidden_states[i + 1][0, -new:] for i in self.taps], -1)

    def _written(self, row: int, first: int, count: int, start: int) -> AbstractContextManager[None]:
        """What a row writes while ``count`` tokens from position ``first`` pass; those from ``start`` on are new."""
        at = np.arange(first, first + count)
        plan = self.writes.plan(np.full(count, row), at, at >= start)
        return watched(self.module, plan.keys(), lambda number, x: apply(plan[number], x[0].clone())[None])

    def _cuts_back(self) -> bool:
        """Whether a cache cut to a prefix continues as a fresh one does."""
        kept, self._caches, self.reuses = self._caches, {}, True
        try:
            whole, _ = self._forward(0, [0, 1, 0, 1], 0)
            # Sliding and recurrent layers pass the test below as long as the row is short.
            if any(type(layer).__name__ != "DynamicLayer" for layer in self._caches[0].layers):
                return False
            again, _ = self._forward(0, [0, 1], 2)
            return torch.allclose(whole[-1], again[-1], rtol=1e-3, atol=1e-3)
        except (AttributeError, NotImplementedError, TypeError, ValueError, RuntimeError):
            return False
        finally:
            self._caches = kept
