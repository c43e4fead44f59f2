"""The table of what forward passes cost on one machine, by their size: saved beside the model, read by the scheduler.

`profile` measures a table; the length policies of ``lengths`` and the load simulation read one. Nothing here computes a
forward pass or imports torch.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput, BadRecord, UnknownName

F64 = npt.NDArray[np.float64]
FILE = "costs.json"  # beside the model


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

    def verify_seconds(self, tokens: npt.ArrayLike) -> F64:
        """Seconds of verifying these numbers of flattened tokens, a number or an array."""
        return _at(tokens, self.sizes, self.verify, self.steps)

    def plain_seconds(self, rows: npt.ArrayLike) -> F64:
        """Seconds of one token for each of these numbers of rows, without a draft."""
        return _at(rows, self.rows, self.plain, self.steps)

    def draft_seconds(self, rows: npt.ArrayLike) -> F64:
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


def _at(where: npt.ArrayLike, sizes: Sequence[int], seconds: Sequence[float], steps: bool) -> F64:
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
