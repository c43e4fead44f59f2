"""What a forward costs on this machine, by its size: measured once, kept beside the model, read by the scheduler."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput, BadRecord, UnknownName

if TYPE_CHECKING:
    from clew.models.engine.fast import Fast
    from clew.models.engine.generic import Generic
    from clew.models.engine.speculation.proposal import Drafter
    from clew.models.local.model import Local

F64 = npt.NDArray[np.float64]
FILE = "costs.json"  # beside the model
ROUNDS = 5
SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of a forward of the target and of its drafter, by size.

    Between two sizes a cost lies on the line between them, or, where the machine pads (``steps``), is that of the next
    size measured; beyond the last it goes on with the slope from the first to the last.

    sizes, verify: flattened tokens of a verification, and seconds. rows, plain, draft: rows, and seconds of one sampled
    token for each of them, and of what drafts of ``block`` tokens for each add to their verification: proposing,
    judging, and showing the drafter what was kept. Those named ``cpu`` are process seconds of the same. hardware,
    dtype, threads, context (cached positions of a row): how it was measured. model, drafter: digests of the weights,
    empty where there are none.

    Raises:
        BadInput: sizes that do not rise, costs that fall or are not positive, columns of unequal length.
    """

    sizes: tuple[int, ...]
    verify: tuple[float, ...]
    rows: tuple[int, ...]
    plain: tuple[float, ...]
    draft: tuple[float, ...]
    block: int
    steps: bool = False
    verify_cpu: tuple[float, ...] = ()
    plain_cpu: tuple[float, ...] = ()
    draft_cpu: tuple[float, ...] = ()
    hardware: str = ""
    dtype: str = ""
    threads: int = 0
    context: int = 0
    model: str = ""
    drafter: str = ""

    def __post_init__(self) -> None:
        sound = len(self.sizes) == len(self.verify) and len(self.rows) == len(self.plain) == len(self.draft)
        sound = sound and self.block >= 1 and bool(self.sizes) and bool(self.rows)
        for sizes in (self.sizes, self.rows):
            sound = sound and sizes[0] >= 1 and all(a < b for a, b in pairwise(sizes))
        for name, least in (("verify", 1e-12), ("plain", 1e-12), ("draft", 0.0)):
            seconds = getattr(self, name)
            sound = sound and bool(np.isfinite(seconds).all()) and min(seconds) >= least
            sound = sound and all(a <= b for a, b in pairwise(seconds))
        if not sound:
            raise BadInput(
                "a cost table needs rising sizes, and costs above 0 that do not fall, one for each size",
                remedy="Measure it again: `clew serve --profile`.",
            )

    def by_process_time(self) -> Costs:
        """The same table in process seconds: what one thread on an idle machine would take, measured on a busy one."""
        return replace(self, verify=self.verify_cpu, plain=self.plain_cpu, draft=self.draft_cpu)

    def verify_seconds(self, tokens: Any) -> F64:
        """Seconds of verifying these numbers of flattened tokens, a number or an array."""
        return _at(tokens, self.sizes, self.verify, self.steps)

    def plain_seconds(self, rows: Any) -> F64:
        """Seconds of one token for each of these numbers of rows, without a draft."""
        return _at(rows, self.rows, self.plain, self.steps)

    def draft_seconds(self, rows: Any) -> F64:
        """Seconds of drafting a block for each of these numbers of rows."""
        return _at(rows, self.rows, self.draft, self.steps)

    def save(self, folder: str | Path) -> Path:
        """Write ``costs.json`` into the model's folder."""
        path = Path(folder) / FILE
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        return path

    @classmethod
    def load(cls, folder: str | Path, model: str, drafter: str, device: str = "cpu") -> Costs:
        """The table beside a model.

        Args:
            model, drafter: digests of the weights that are going to be served.

        Raises:
            UnknownName: there is none. BadRecord: it cannot be read. BadInput: it was measured with other weights or on
                another machine.
        """
        path = Path(folder) / FILE
        again = "Measure it again: `clew serve --profile`."
        if not path.exists():
            raise UnknownName(f"there is no cost table at {path}", remedy="Measure it: `clew serve --profile`.")
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in held.items()}
            found = cls(**given)
        except (ValueError, TypeError, AttributeError) as error:
            raise BadRecord(f"{path} is no cost table: {error}", remedy=again) from error
        names = (("target", found.model, model), ("drafter", found.drafter, drafter))
        for what, then, now in (*names, ("machine", found.hardware, hardware(device))):
            if then != now:
                raise BadInput(f"{path} was measured with {what} {then!r}, this is {now!r}", remedy=again)
        return found


def _at(where: Any, sizes: Sequence[int], seconds: Sequence[float], steps: bool) -> F64:
    x, y, at = np.asarray(sizes, np.float64), np.asarray(seconds), np.asarray(where, np.float64)
    found: F64 = y[np.minimum(x.searchsorted(at), len(x) - 1)] if steps else np.interp(at, x, y)
    if len(x) > 1:
        found = found + np.maximum(at - x[-1], 0.0) * (y[-1] - y[0]) / (x[-1] - x[0])
    return found


def hardware(device: str = "cpu") -> str:
    """The machine in words, for tables that hold only there."""
    name = platform.processor() or platform.machine()
    cpu = Path("/proc/cpuinfo")
    if cpu.exists():
        models = [x for x in cpu.read_text(errors="replace").splitlines() if x.startswith("model name")]
        name = models[0].partition(":")[2].strip() if models else name
    return name if device == "cpu" else f"{name}, {device}"


def profile(
    forward: Fast | Generic,
    drafter: Drafter | None,
    *,
    context: int = 128,
    max_rows: int = 256,
    cache_bytes: int = 1 << 30,
    digests: tuple[str, str] = ("", ""),
    threads: int = 0,
    advance: Callable[[str, int, int], object] = lambda what, done, all: None,
) -> Costs:
    """Measure on this machine: the median of 5 at each size, after one that is not counted, forced not to fall.

    Tokens are verified in rows of half a block and one, more to a row where there would be too many rows, behind
    ``context`` cached positions each. What ``forward`` and ``drafter`` have cached is void afterwards. Without a
    drafter its costs are 0, and the block is 7.

    Args:
        max_rows: most rows at once, fewer where ``cache_bytes`` hold no more.
        digests: of target and drafter.
        advance: called before each size with what is measured, how many are done, and how many there are.
    """
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
    forward.clear()
    if drafter is not None:
        drafter.clear()
    (v, v_cpu), (p, p_cpu), (d, d_cpu) = (_rising(pairs) for pairs in (verify, plain, draft))
    return Costs(
        sizes, v, rows, p, d, block, verify_cpu=v_cpu, plain_cpu=p_cpu, draft_cpu=d_cpu, threads=threads,
        hardware=hardware(str(forward.device)), dtype=str(getattr(forward, "_dtype", "")).removeprefix("torch."),
        context=context, model=digests[0], drafter=digests[1],
    )  # fmt: skip


def measure(model: Local, drafter: Drafter | None, drafter_digest: str = "", **options: Any) -> Costs:
    """``profile`` of a local model as its engine would compute, in a cache of its own.

    Args:
        drafter: one that serves nobody meanwhile. options: of ``profile``.
    """
    import torch

    from clew.models.engine.fast import Fast
    from clew.models.engine.generic import Generic
    from clew.models.engine.weights import shape_of

    shape = shape_of(model.module)
    forward = Generic(model.module, model.context) if shape is None else Fast(model.module, shape, model.context)
    forward.use(forward.read())
    digests = (model.digest(), drafter_digest)
    return profile(forward, drafter, digests=digests, threads=torch.get_num_threads(), **options)


@dataclass(frozen=True, slots=True)
class _Bench:
    """Times a target and its drafter on random tokens."""

    forward: Fast | Generic
    drafter: Drafter | None
    context: int
    rng: np.random.Generator

    def verify(self, size: int, n: int) -> tuple[float, float]:
        counts = [size // n + (i < size % n) for i in range(n)]
        step: Any = getattr(self.forward, "verify", self.forward.prefill)
        return _timed(partial(step, np.arange(n), self._ids(counts), np.full(n, self.context, np.int64)))

    def plain(self, n: int) -> tuple[float, float]:
        import torch

        from clew.models.sampling import Laws, draw

        u, at = torch.from_numpy(self.rng.random((n, 1))).to(self.forward.device), np.full(n, self.context, np.int64)
        return _timed(lambda: draw(self.forward.decode(np.arange(n), self._tokens(n), at), Laws(), u)[1])

    def draft(self, n: int) -> tuple[float, float]:
        """Of half a block that is kept."""
        if self.drafter is None:
            return 0.0, 0.0
        import torch

        from clew.models.engine.speculation.verification import judge, uniforms
        from clew.models.sampling import Laws

        drafter, rows, at = self.drafter, np.arange(n), np.full(n, self.context, np.int64)
        width, kept = len(drafter.taps) * _width(self.forward), drafter.block // 2 + 1
        like: Any = {"dtype": getattr(self.forward, "_dtype", torch.float32), "device": self.forward.device}
        for row in range(n):
            hidden = torch.zeros(self.context, width, **like)
            drafter.extend(np.array([row]), self._ids([self.context]), np.zeros(1, np.int64), hidden)
        hidden = torch.zeros(n * kept, width, **like)
        logp = torch.zeros(n * kept, self.forward.vocabulary, **like).float().log_softmax(-1)
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


def _width(forward: Any) -> int:
    """Of the target's hidden states."""
    if hasattr(forward, "shape"):
        return int(forward.shape.width)
    config = forward.read().config
    return int((config.get_text_config() if hasattr(config, "get_text_config") else config).hidden_size)


def _timed(call: Callable[[], Any]) -> tuple[float, float]:
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
