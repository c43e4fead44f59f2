"""The fast forward as a reader: hidden states behind any of its layers, from weights that another forward serves."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from clew.models.engine.forwards.fast import Fast
from clew.models.engine.forwards.packed_rows import I64
from clew.models.engine.taps.writes import Writes


class Deep(Fast):
    """A twin of ``forward`` that shares its present weights and has a cache of its own, for another thread.

    It passes no more layers than it reads, and never the vocabulary head.
    """

    def __init__(self, forward: Fast) -> None:
        self.__dict__.update(forward.__dict__)
        self.hidden, self.taps = torch.empty(0), ()
        self._reserve()
        self.writes = Writes(forward.writes.target, self.device, self.dtype)

    @torch.inference_mode()
    def states(
        self, rows: I64, ids: Sequence[Sequence[int]], starts: I64, layers: Sequence[int], picked: I64
    ) -> Tensor:
        """Cache tokens of rows; hidden states [n, layers, width] of the tokens ``picked``, places in the pass.

        ``layers`` rise; -1 are the embeddings, and the number of layers is what the last norm gives.
        """
        lay = self.arena.layout(rows)
        assert lay.order is None, "rows of a reader lie in their order"
        self.taps, self._picked = tuple(layers), self._ids(picked)
        try:
            x = self._packed(lay, ids, starts, depth=min(layers[-1] + 1, self.shape.layers))
            if layers[-1] == self.shape.layers:
                self._keep(layers[-1], self._unit(x, self._least).mul_(self._w.norm), {})
            return self.hidden.view(len(picked), len(layers), self.shape.width)
        finally:
            self.taps, self._picked = (), None
