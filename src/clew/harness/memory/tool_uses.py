"""How a tool of a memory did where runs used it: answered or fell through, and how those runs ended.

``clew memory craft`` reads it for demotion, and for what a use costs beside the plan in text. The figures come from the
records of runs; forks are not counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from clew.core.records import Call, Cursor
from clew.harness.memory.item_kinds import Item
from clew.store.base import Keeper


class ToolUse(NamedTuple):
    """One use. place: its first Call, as ``run@call``. answered: whether the tool gave an answer; else the plan in text
    had to do it, for the reason ``why``. calls: of the world."""

    place: str
    answered: bool
    calls: int
    why: str


def uses(store: Keeper, tool: Item) -> list[ToolUse]:
    """Every use of a tool that its ledger names, oldest first."""
    return [_use(store, given.place) for given in tool.given]


def use_told(call: Call) -> Mapping[str, object]:
    """What a Call of kind ``recall`` says of a step of a tool; empty where it is none, or was redacted."""
    if call.kind != "recall" or not call.text:
        return {}
    told = json.loads(call.text)
    return told if "step" in told else {}


def _use(store: Keeper, place: str) -> ToolUse:
    cursor = Cursor.parse(place)
    calls = store.calls(cursor.run, cursor.seq)
    steps = list(_steps(calls))
    if not steps:
        return ToolUse(place, False, 0, "its record was erased")
    last = steps[-1]
    return ToolUse(place, last.get("answer") is not None, len(steps) - 1, str(last.get("why", "")))


def _steps(calls: Iterable[Call]) -> Iterable[Mapping[str, object]]:
    """The steps of the use that begins with the first Call."""
    number = 0
    for call in calls:
        told = use_told(call)
        if told and told["step"] == number:
            number += 1
            yield told
            if told.get("call") is None:
                return
        elif told and told["step"] == 0:
            return
