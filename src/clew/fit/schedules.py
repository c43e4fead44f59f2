"""Learning-rate schedules: the factor of a step, by the step's place alone, so that nothing is kept or resumed."""

from __future__ import annotations

import math
from typing import Literal, get_args

from clew.core.errors import BadInput, check_choice

Schedule = Literal["constant", "linear", "cosine"]


def factor(schedule: Schedule, step: int, total: int, warmup: int = 0) -> float:
    """What the learning rate is multiplied by at a step, in [0, 1].

    It rises over the first ``warmup`` steps in a line, then stays at 1 (constant), or falls to 0 over the rest: in a
    line (linear) or along half a cosine. Steps count from 0.
    """
    if step < warmup:
        return (step + 1) / warmup
    if schedule == "constant":
        return 1.0
    done = (step - warmup) / max(1, total - warmup)
    return 1.0 - done if schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))


def check(schedule: str, total: int, warmup: int, what: str = "iterations") -> None:
    """Refuse a schedule that is not known, or a warm-up that the training does not outlast.

    Raises:
        BadInput: one of these.
    """
    check_choice("schedule", schedule, get_args(Schedule))
    if not 0 <= warmup < max(total, 1):
        raise BadInput(
            f"a warm-up of {warmup} {what} does not fit into a training of {total}",
            remedy=f"Give a warm-up from 0 to {max(total - 1, 0)}, or more {what}.",
        )
