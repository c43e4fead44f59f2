"""Measures a cost table: times forward passes and drafts of a local model on this machine.

`clew serve --profile` and drafter training call ``measure``. A measurement uses a cache and a drafter of its own, never
those of an engine that serves.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from clew.models.engine.forwards.choosing import forward_of
from clew.models.engine.forwards.fast import Fast
from clew.models.engine.forwards.generic import Generic
from clew.models.engine.speculation.costs import Costs, hardware
from clew.models.engine.speculation.proposal import Drafter
from clew.models.engine.speculation.verification import judge, uniforms
from clew.models.local.model import Local
from clew.models.sampling import Laws, draw

ROUNDS = 5
SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def measure(
    model: Local,
    drafter: Drafter | None,
    drafter_digest: str = "",
    *,
    context: int = 128,
    max_rows: int = 256,
    cache_bytes: int = 1 << 30,
    advance: Callable[[str, int, int], object] = lambda what, done, all: None,
) -> Costs:
    """Costs of a local model as its engine would compute: medians of 5 after an uncounted one, forced not to fall.

    Tokens are verified in rows of half a block and one, more to a row where there would be too many rows, behind
    ``context`` cached positions each. Without a drafter its costs are 0, and the block is 7.

    Args:
        drafter: one that serves nobody meanwhile; what it has cached is void afterwards.
        max_rows: most rows at once, fewer where ``cache_bytes`` hold no more.
        advance: called before each size with what is measured, how many are done, and how many there are.
    """
    forward = forward_of(model.module, model.context)
    forward.use(forward.read())
    block = drafter.block if drafter is not None else 7
    context = min(context, forward.context - block - 2)
    most = max(1, min(max_rows, cache_bytes // (forward.token_bytes * (context + block + 2))))
    sizes = tuple(s for s in SIZES if s <= most * (block + 1))
    rows = tuple(r for r in ROWS if r <= most)
    for it in (forward, drafter) if drafter is not None else (forward,):
        it.resize(most, context + block + 2)
    bench = _Bench(forward, drafter, context, np.random.default_rng(0))
    verify, plain, draft = [], [], []
    for i, size in enumerate(sizes):
        advance(f"{size} tokens", i, len(sizes) + len(rows))
        verify.append(bench.verify(size, min(most, -(-size // (block // 2 + 1)))))
    for i, n in enumerate(rows):
        advance(f"{n} rows", len(sizes) + i, len(sizes) + len(rows))
        plain.append(bench.plain(n))
        draft.append(bench.draft(n))
    if drafter is not None:
        drafter.clear()
    (v, v_cpu), (p, p_cpu), (d, d_cpu) = (_rising(pairs) for pairs in (verify, plain, draft))
    kind = str(forward.dtype).removeprefix("torch.")
    return Costs(
        *(sizes, v, rows, p, d, block, False, v_cpu, p_cpu, d_cpu, hardware(str(forward.device)), kind),
        *(torch.get_num_threads(), context, model.digest(), drafter_digest),
    )


@dataclass(frozen=True, slots=True)
class _Bench:
    """Times a target and its drafter on random tokens."""

    forward: Fast | Generic
    drafter: Drafter | None
    context: int
    rng: np.random.Generator

    def verify(self, size: int, n: int) -> tuple[float, float]:
        counts = [size // n + (i < size % n) for i in range(n)]
        return _timed(partial(self.forward.verify, np.arange(n), self._ids(counts), np.full(n, self.context, np.int64)))

    def plain(self, n: int) -> tuple[float, float]:
        u, at = torch.from_numpy(self.rng.random((n, 1))).to(self.forward.device), np.full(n, self.context, np.int64)
        return _timed(lambda: draw(self.forward.decode(np.arange(n), self._tokens(n), at), Laws(), u)[1])

    def draft(self, n: int) -> tuple[float, float]:
        """Of half a block that is kept."""
        if self.drafter is None:
            return 0.0, 0.0
        drafter, rows, at = self.drafter, np.arange(n), np.full(n, self.context, np.int64)
        width, kept = len(drafter.taps) * self.forward.width, drafter.block // 2 + 1
        blank = torch.zeros((), dtype=self.forward.dtype, device=self.forward.device)
        for row in range(n):
            hidden = blank.new_zeros(self.context, width)
            drafter.extend(np.array([row]), self._ids([self.context]), np.zeros(1, np.int64), hidden)
        hidden = blank.new_zeros(n * kept, width)
        logp = blank.new_zeros(n * kept, self.forward.vocabulary).float().log_softmax(-1)
        seeds, lengths = rows.astype(np.uint64), np.full(n, kept - 1, np.int64)

        def round_() -> torch.Tensor:
            u = uniforms(seeds, seeds, drafter.block)
            proposed, logq, _ = drafter.propose(rows, self._tokens(n), at, Laws(), u.draft)
            tokens = judge(logp, proposed, logq, lengths, u).tokens
            drafter.extend(rows, tokens[:, :kept].tolist(), at, hidden)
            return logq

        return _timed(round_)

    def _tokens(self, n: int) -> npt.NDArray[np.int64]:
        return self.rng.integers(self.forward.vocabulary, size=n)

    def _ids(self, counts: Sequence[int]) -> list[list[int]]:
        return [self._tokens(c).tolist() for c in counts]


def _timed(call: Callable[[], torch.Tensor]) -> tuple[float, float]:
    """Median wall and process seconds of a call, until its result is there."""
    wall, cpu = [], []
    for _ in range(1 + ROUNDS):
        began, worked = time.perf_counter(), time.process_time()
        float(call().flatten()[0])  # waits for a device
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - worked)
    return statistics.median(wall[1:]), statistics.median(cpu[1:])


def _rising(seconds: Sequence[tuple[float, float]]) -> list[tuple[float, ...]]:
    """Wall and process seconds, none below those of a smaller size."""
    return [tuple(column) for column in np.maximum.accumulate(np.array(seconds)).T.tolist()]
