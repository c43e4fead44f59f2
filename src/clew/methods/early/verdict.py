"""What the figures of the audit say together: one of five verdicts, and what would settle the last.

Predictable at the first thinking token is not decided at it (specs/E171 section 6). An outcome is decided at the prompt
where resampled thinking leaves it (s0 high) and swapped thinking leaves it too (t low). It is computed in the trace
where the answer follows swapped thinking, however well the prompt tells it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from clew.core.records import Report
from clew.methods.early.curves import LEAST_FLIP, Curve

Kind = Literal[
    "decided at the prompt",
    "predictable but computed in the trace",
    "open until then",
    "open after the thinking",
    "cannot tell",
]
FIXED, IGNORED = 0.8, 0.2  # least s0, and largest t, of what is decided at the prompt
FOLLOWED = 0.5  # least t of what is computed in the trace
TOLD, SOME = 0.6, 0.1  # least AUROC at the prompt, or least s0, of what is predictable


class Verdict(NamedTuple):
    """The verdict, a sentence that gives its figures, and what would do where it cannot tell."""

    kind: Kind
    text: str
    remedy: str = ""


def verdict(curve: Curve, dependence: Report | None, told: Report | None) -> Verdict:
    """Read the figures together; each must clear its threshold with its interval, not with its estimate alone.

    Args:
        dependence: t; None where thinking could not be swapped. told: AUROC of the best probe at the prompt or of the
            prompt's words; None where neither was fitted.
    """
    s0, t, open_ = curve.fixed, dependence, curve.flips[0]
    fixed, read = f"prompt-fixed share {_shown(s0)}", f"trace dependence {_shown(t)}" if t else "no swaps"
    if t is not None and s0.low >= FIXED and t.high <= IGNORED:
        return Verdict("decided at the prompt", f"{fixed}, {read}: other thinking, the same outcome")
    known = s0.low >= SOME or (told is not None and told.low >= TOLD)
    if t is not None and t.low >= FOLLOWED and known:
        tell = f", AUROC at the prompt {_shown(told)}" if told else ""
        return Verdict(
            "predictable but computed in the trace",
            f"{fixed}{tell}, {read}: the answer follows the thinking it is given",
        )
    part = f"{max(s0.estimate, 0):.0%} of the outcome is fixed by the prompt"
    if open_.low >= LEAST_FLIP and curve.never:
        drawn = f"of what is open, {curve.half}: the outcome is drawn behind it"
        return Verdict("open after the thinking", f"{part}; {drawn}; {fixed}, {read}")
    unsure = t is not None and t.low >= FOLLOWED and told is not None and told.low < TOLD <= told.estimate
    if open_.low >= LEAST_FLIP and curve.time is not None and not unsure:
        return Verdict("open until then", f"{part}; of what is open, {curve.half} of the thinking; {fixed}, {read}")
    return Verdict("cannot tell", f"{fixed}, {read}", _needed(curve, t, told))


def _shown(report: Report | None) -> str:
    return "" if report is None else f"{report.estimate:.2f} [{report.low:.2f}, {report.high:.2f}]"


def _needed(curve: Curve, t: Report | None, told: Report | None) -> str:
    """How many prompts or pairs would bring the interval in question to one side of its threshold."""
    if t is None:
        return "Whether the answer reads the thinking needs swapped thinking: thinking and answer in one reply."
    wants = []
    asked: list[tuple[str, str, Report, tuple[float, ...]]] = []
    asked += [("the prompt-fixed share", "prompts", curve.fixed, (FIXED,))]
    asked += [("trace dependence", "pairs of prompts", t, (IGNORED, FOLLOWED))]
    asked += [("the AUROC at the prompt", "runs", told, (TOLD,))] if told else []
    for what, unit, report, marks in asked:
        if any(report.low < mark < report.high for mark in marks):
            gap = min(abs(report.estimate - mark) for mark in marks)
            half = (report.high - report.low) / 2
            count = int(np.ceil(report.n * (half / max(gap, 0.05)) ** 2))
            wants.append(f"{what}: about {max(count, report.n + 1)} {unit}")
    if wants:
        return f"More would do: {'; '.join(wants)}."
    between = f"{t.estimate:.0%} of answers follow the thinking they are given, which is neither most nor few"
    return f"No more samples would do: {between}; look at runs of one kind at a time."
