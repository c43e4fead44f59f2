"""What a reward is given of a finished run, and what it may give back: a number, parts of one, or no verdict.

``functions``, ``box`` and ``model_judge`` make rewards of this form; ``Dataset`` weighs them.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from clew.core.protocols import Model
from clew.core.reading import Record
from clew.core.values import Task
from clew.exchange.dataset.layout import Said
from clew.exchange.files import brief


class Given(NamedTuple):
    """A reply and all that is known of its row. ``messages``: what was said to the model, the prompt included."""

    reply: str
    answer: object
    prompt: str
    messages: Sequence[Said]
    columns: Mapping[str, Any]
    task: Task
    run: Record
    load: Callable[[str], Model]  # a model by reference, for rewards that ask one


def row_of(given: Given) -> str:
    """The row as errors name it: its number in the file, and its id."""
    secret = given.task.secret
    number = secret["row"] if isinstance(secret, Mapping) and "row" in secret else None
    return f"row {given.task.id}" if number is None else f"row {number} ({given.task.id})"


class Verdict(NamedTuple):
    """What one reward says: a number, None for undecided; ``parts`` of it by name; ``data`` is JSON to be kept with it,
    such as what a judge was asked and answered; ``why`` says in a sentence what kept it from deciding."""

    value: float | None
    parts: Mapping[str, float] = {}
    data: str = ""
    why: str = ""


class NoReward(ValueError):
    """What a reward returned is none; the message goes on after "returned"."""


class Reward(NamedTuple):
    """One reward: its name in the verdict, its weight in the sum, its reference, and the function that gives it."""

    name: str
    weight: float
    ref: str
    score: Callable[[Given], Awaitable[Verdict]]
    source: str = ""  # digest of the file that it comes from; empty for one in the box


def number(value: object) -> float | None:
    """A reward as a number; None where it is None.

    Raises:
        NoReward: it is no finite number; the message says what it is.
    """
    if value is None:
        return None
    item = getattr(value, "item", None)  # an array or tensor of one number
    try:
        plain = item() if callable(item) else value
    except (ValueError, RuntimeError):  # of several numbers
        plain = value
    if isinstance(plain, (bool, int, float)):
        found = float(plain)
        if math.isfinite(found):
            return found
        raise NoReward(f"{found}, which is no finite number,")
    raise NoReward(f"{brief(value)} of type {type(value).__name__}, which is no number,")


def verdict(value: object) -> Verdict:
    """What a reward returned, as a verdict: a number, None, or a mapping of parts, whose ``reward`` or sum counts.

    Raises:
        NoReward: it is none of these; the message says what it is.
    """
    if not isinstance(value, Mapping):
        return Verdict(number(value))
    parts = {str(name): number(part) for name, part in value.items()}
    if not parts:
        raise NoReward("an empty mapping")
    known = {name: part for name, part in parts.items() if part is not None}
    whole = sum(known.values()) if len(known) == len(parts) else None
    total = parts.get("reward", whole)
    known.pop("reward", None)
    return Verdict(total, known)
