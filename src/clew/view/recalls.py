"""What a run was given by memories, Call by Call: each item and what an audit found it worth, each step of a tool.

The transcript's page asks for it. The text of a recall is other people's: it is read with bounds, what is not what it
should be is left out, and nothing of it is more than text. What an item is worth is shown only where `clew memory
audit` filed it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from clew.core.records import Call
from clew.methods.memory.worth.filed_worth import Known, key_of, worth_by_key
from clew.store import Keeper

ITEMS, LONG, NAME = 100, 2_000, 80  # items of one recall, characters of one, of a name
READ = 2_000_000  # characters of a recall that are read


class Worths:
    """What the items of a store's memories are worth; read once for a page, and only where something was recalled."""

    def __init__(self, store: Keeper) -> None:
        self._store = store
        self._known: Mapping[str, Known] | None = None

    def of(self, memory: str, item: str) -> dict[str, Any] | None:
        """Verdict, reason and figures of an item's last audit; None where it has none."""
        if self._known is None:
            self._known = worth_by_key(self._store.reports())
        found = self._known.get(key_of(memory, item))
        if found is None:
            return None
        figures = {
            measure: {name: getattr(report, name) for name in ("estimate", "low", "high", "n")}
            for measure, report in found.reports.items()
        }
        return {"verdict": found.verdict, "why": found.why, "audit": found.label, "figures": figures}


def recalled(call: Call, worths: Worths) -> dict[str, Any] | None:
    """The items that a recall gave, the likeliest first; None where the Call is none or its text cannot be read."""
    if call.kind != "recall" or not call.text or len(call.text) > READ:
        return None
    try:
        told = json.loads(call.text)
    except (ValueError, RecursionError):
        return None
    listed = told.get("items") if isinstance(told, dict) else None
    if not isinstance(listed, list):
        return None
    memory = _text(told.get("memory"), NAME)
    items = []
    for one in listed[:ITEMS]:
        if isinstance(one, dict) and (id := _text(one.get("id"), NAME)):
            text = _text(one.get("text"), LONG + 1)
            item = {"id": id, "kind": _text(one.get("kind"), NAME), "text": text[:LONG], "cut": len(text) > LONG}
            items.append(item | {"worth": worths.of(memory, id)})
    return {"memory": memory, "items": items, "more": max(0, len(listed) - ITEMS), "step": _step(told)}


def _step(told: Mapping[str, Any]) -> dict[str, Any] | None:
    """How far a tool of the memory came; None of a recall that used none."""
    number, call = told.get("step"), told.get("call")
    if not isinstance(number, int):
        return None
    if isinstance(call, list) and len(call) == 2:
        did = f"it calls {_text(call[0], NAME)}({_text(call[1], LONG)})"
    elif isinstance(told.get("answer"), str):
        did = f"it answers {_text(told['answer'], LONG)}"
    else:
        did = f"it leaves the task to the plan: {_text(told.get('why'), LONG) or 'it gave nothing'}"
    return {"tool": _text(told.get("tool"), NAME), "number": number, "did": did}


def _text(value: object, most: int) -> str:
    return value[:most] if isinstance(value, str) else ""
