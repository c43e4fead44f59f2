"""What a forward costs on this machine, by its size: measured once, kept beside the model, read by the scheduler."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput, BadRecord, UnknownName

if TYPE_CHECKING:
    from clew.models.engine.fast import Fast
    from clew.models.engine.generic import Generic
    from clew.models.engine.proposal import Drafter

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

    sizes, verify: flattened tokens of a verification, and seconds. rows, plain, draft: rows, and seconds of one decoded
    token for each of them, and of drafting ``block`` tokens for each. cpu: process seconds of ``verify``, where measured.
    hardware, dtype, threads, context (cached positions of a row): how it was measured. model, drafter: digests of the
    weights, empty where there are none.

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
    cpu: tuple[float, ...] = ()
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
    def load(cls, folder: str | Path, model: str, drafter: str) -> Costs:
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
            found = cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in held.items()})
        except (ValueError, TypeError, AttributeError) as error:
            raise BadRecord(f"{path} is no cost table: {error}", remedy=again) from error
        for what, then, now in (
            ("target", found.model, model), ("drafter", found.drafter, drafter), ("machine", found.hardware, hardware()),
        ):  # fmt: skip
            if then.split(", cuda")[0] != now.split(", cuda")[0]:
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
    context: int = 256,
    sizes: Sequence[int] = SIZES,
    rows: Sequence[int] = ROWS,
    digests: tuple[str, str] = ("", ""),
    threads: int = 0,
    advance: Callable[[str], object] = lambda what: None,
) -> Costs:
    """Measure on this machine: the median of 5 at each size, after one that is not counted, forced not to fall.

    Tokens are verified in rows of half a block and one, behind ``context`` cached positions each; the cache of
    ``forward`` is void afterwards. Without a drafter its costs are 0, and the block is 7.

    Args:
        sizes: flattened tokens. rows: as many rows are decoded and drafted for.
        digests: of target and drafter.
        advance: called before each size with what is measured; ``len(sizes) + len(rows)`` times.
    """
    from clew.models.sampling import Laws

    block = drafter.block if drafter is not None else 7
    each = block // 2 + 1
    most = max(max(rows), -(-max(sizes) // each))
    context = min(context, forward.context - block - 2)
    forward.resize(most, context + block + 2)
    draw = np.random.default_rng(0)
    if drafter is not None:
        drafter.resize(most, context + block + 2)
        width = len(drafter.taps) * getattr(forward, "shape", forward).width
    verify: list[tuple[float, float]] = []
    step: Any = getattr(forward, "verify", forward.prefill)

    def ids(counts: Sequence[int]) -> list[list[int]]:
        return [draw.integers(forward.vocabulary, size=c).tolist() for c in counts]

    for size in sizes:
        advance(f"{size} tokens")
        counts = [each] * (size // each) + [size % each] * (size % each > 0)
        given, at = ids(counts), np.full(len(counts), context, np.int64)
        verify.append(_timed(lambda g=given, a=at: step(np.arange(len(a)), g, a), forward))
    plain, draft = [], []
    for n in rows:
        advance(f"{n} rows")
        which, at = np.arange(n), np.full(n, context, np.int64)
        tokens = draw.integers(forward.vocabulary, size=n)
        plain.append(_timed(lambda w=which, t=tokens, a=at: forward.decode(w, t, a), forward)[0])
        if drafter is None:
            draft.append(0.0)
            continue
        import torch

        hidden = torch.zeros(n * context, width, device=forward.device, dtype=getattr(forward, "_dtype", torch.float32))
        drafter.extend(which, ids([context] * n), np.zeros(n, np.int64), hidden)
        u = draw.random((n, block))
        draft.append(
            _timed(lambda w=which, t=tokens, a=at, u=u: drafter.propose(w, t, a, Laws(), u).tokens, forward)[0]
        )
    forward.clear()
    wall, cpu = zip(*verify, strict=True)
    return Costs(
        tuple(sizes), _rising(wall), tuple(rows), _rising(plain), _rising(draft), block, cpu=_rising(cpu),
        hardware=hardware(str(forward.device)), dtype=str(getattr(forward, "_dtype", "")).removeprefix("torch."),
        threads=threads, context=context, model=digests[0], drafter=digests[1],
    )  # fmt: skip


def _timed(call: Callable[[], Any], forward: Fast | Generic) -> tuple[float, float]:
    """Median wall and process seconds of a call, until its result is there."""
    wall, cpu = [], []
    for _ in range(1 + ROUNDS):
        began, worked = time.perf_counter(), time.process_time()
        float(call().flatten()[0])  # waits for a device
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - worked)
    return statistics.median(wall[1:]), statistics.median(cpu[1:])


def _rising(seconds: Sequence[float]) -> tuple[float, ...]:
    return tuple(np.maximum.accumulate(seconds).tolist())
