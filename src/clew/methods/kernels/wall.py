"""The correctness wall: what an implementation must give on every case before its time means anything.

The CPU backend calls it. It must never accept what allclose at 1e-2 accepts (2606.26453), which all-zero outputs pass
on some problems (KernelBench issue 165): references are float64, seeds and shapes are several, outputs are poisoned
beforehand, inputs are compared afterwards.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clew.methods.kernels.kernel import Arrays, Kernel, Sizes

SEEDS = (0, 1, 2, 3, 4)
FAINT = 0.1  # outputs this much smaller than the reference in norm are no outputs
SLACK = 4.0  # times the error of the plain build


class Wrong(NamedTuple):
    """Why an implementation is refused, and on which case."""

    why: str
    case: str


def error(given: Arrays, expected: Arrays) -> float:
    """Largest absolute error of the floating-point outputs; infinite where one is not finite."""
    worst = 0.0
    for name, exact in expected.items():
        if given[name].dtype.kind != "f":
            continue
        off = np.abs(given[name].astype(np.float64) - exact)
        worst = max(worst, float(off.max(initial=0.0)) if np.isfinite(given[name]).all() else np.inf)
    return worst


def judge(kernel: Kernel, before: Arrays, after: Arrays, sizes: Sizes, plain: float, case: str) -> Wrong | None:
    """What is wrong with the arrays ``after`` a call on inputs ``before``; None: nothing.

    ``plain`` is the error of the plain build on the same case: an implementation may have four times that, or the
    kernel's tolerance times the largest value of the reference.
    """
    for array in kernel.arrays:
        if array.role == "in" and after[array.name].tobytes() != before[array.name].tobytes():
            return Wrong(f"it changed its input {array.name}", case)
    expected = kernel.expected(before, sizes)
    for name, exact in expected.items():
        given = after[name]
        if given.dtype.kind != "f":
            if not np.array_equal(given, exact):
                return Wrong(f"{int((given != exact).sum())} of {given.size} values of {name} differ", case)
            continue
        if not np.isfinite(given).all():
            left = int((~np.isfinite(given)).sum())
            return Wrong(f"{left} of {given.size} values of {name} were never written, or are not finite", case)
        norm = float(np.linalg.norm(exact))
        if norm and float(np.linalg.norm(given.astype(np.float64))) < FAINT * norm:
            return Wrong(f"{name} is next to nothing: less than {FAINT:g} of the reference in norm", case)
        most = max(SLACK * plain, kernel.tolerance * float(np.abs(exact).max(initial=0.0)))
        off = float(np.abs(given.astype(np.float64) - exact).max(initial=0.0))
        if off > most:
            return Wrong(f"{name} is off by {off:.3g}, where {most:.3g} is allowed", case)
    return None
