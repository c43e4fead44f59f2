"""The language of plans: three lists of one length, which say who works, at what, and whose results each sees.

``orchestrator`` reads with it what a model wrote. It never evaluates what it reads, and never repairs a plan: a
lenient parser rewards a model for nonsense (specs/E166 section 4.1, after arXiv 2512.04388).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from clew.core.errors import BadInput

LONGEST = 40_000  # characters of a reply in which a plan is looked for
TEXT = 8_000  # characters of one subtask
NAMES = ("model_id", "subtasks", "access_list")
LABEL = re.compile(rf"^[ \t]*({'|'.join(NAMES)})[ \t]*:[ \t]*(?=\[)", re.MULTILINE)
SHAPE = f"Write three lists of one length, each after its name: {', '.join(NAMES)}."


class Part(NamedTuple):
    """One step of a plan: the number of the worker, what it is asked to do, and the parts whose results it sees."""

    worker: int
    subtask: str
    reads: tuple[int, ...] = ()


def parse(text: str, workers: int, most: int) -> tuple[Part, ...]:
    """The plan in a model's reply: the three labelled lists, in JSON; text around them is passed over.

    Args:
        workers: how many there are; they are numbered from 0.
        most: parts that a plan may have.

    Raises:
        BadInput: there is no plan, or it breaks a rule; the sentence may be shown to the model that wrote it.
    """
    if len(text) > LONGEST:
        raise BadInput(f"a reply of {len(text):,} characters is no plan", remedy=f"Write at most {LONGEST:,}.")
    lists = dict[str, list[Any]]()
    for found in LABEL.finditer(text):
        name = found[1]
        if name in lists:
            raise BadInput(f"{name} stands there twice", remedy="Write one plan.")
        try:
            value, _ = json.JSONDecoder().raw_decode(text, found.end())
        except (ValueError, RecursionError):
            raise BadInput(f"the list {name} is not in JSON", remedy=SHAPE) from None
        lists[name] = value
    missing = [name for name in NAMES if name not in lists]
    if missing:
        raise BadInput(f"{missing[0]} is missing", remedy=SHAPE)
    numbers, subtasks, access = (lists[name] for name in NAMES)
    if not len(numbers) == len(subtasks) == len(access):
        lengths = f"{len(numbers)}, {len(subtasks)} and {len(access)}"
        raise BadInput(f"the lists have {lengths} entries", remedy="Give each part one entry in each list.")
    if not 1 <= len(numbers) <= most:
        raise BadInput(f"a plan of {len(numbers):,} parts", remedy=f"Write 1 to {most}.")
    return tuple(
        Part(_worker(numbers[i], i, workers), _subtask(subtasks[i], i), _reads(access[i], i))
        for i in range(len(numbers))
    )


def written(plan: Sequence[Part]) -> str:
    """A plan as ``parse`` reads it."""
    columns = ([p.worker for p in plan], [p.subtask for p in plan], [list(p.reads) for p in plan])
    return "\n".join(f"{name}: {json.dumps(column)}" for name, column in zip(NAMES, columns, strict=True))


def _worker(value: object, at: int, workers: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < workers:
        told = repr(value)[:40] if isinstance(value, int | float | str) else type(value).__name__
        raise BadInput(f"part {at} names worker {told}", remedy=f"The workers are numbered 0 to {workers - 1}.")
    return value


def _subtask(value: object, at: int) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > TEXT:
        raise BadInput(f"the subtask of part {at} is no text", remedy=f"Write 1 to {TEXT:,} characters in quotes.")
    return value.strip()


def _reads(value: object, at: int) -> tuple[int, ...]:
    if value == "all":
        return tuple(range(at))
    if not isinstance(value, list) or any(isinstance(j, bool) or not isinstance(j, int) for j in value):
        raise BadInput(
            f"the access list of part {at} is no list", remedy='Write [], "all", or numbers of earlier parts.'
        )
    if any(not 0 <= j < at for j in value):
        raise BadInput(f"part {at} reads a part that does not come before it", remedy="Name earlier parts alone.")
    return tuple(sorted(set(value)))
