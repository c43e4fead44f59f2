"""What real services do and a model of one should not have to invent: refusals, pages of lists, answers lost in part.

A simulated world calls it with the seed of the act under way, so that one record always shows one behaviour. Each
function is pure: the same arguments give the same answer on every machine.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from clew.core.keys import derive
from clew.methods.world_model.instruction import Instruction

REFUSED = "error: 503 Service Unavailable: the service is overloaded, try again"
LOST = "error: 504 Gateway Timeout: no answer arrived; the request may or may not have been carried out"


class Fate(NamedTuple):
    """What becomes of one action: refused before it has an effect, answered in part, and after how many seconds."""

    refused: bool = False
    partial: bool = False
    seconds: float = 0.0


def fate(instruction: Instruction, seed: int) -> Fate:
    """Drawn from the seed alone."""
    rng = random.Random(derive(seed, "service"))
    drawn, wait = rng.random(), rng.expovariate(1.0)
    refused = drawn < instruction.fail_rate
    partial = not refused and drawn < instruction.fail_rate + instruction.partial
    return Fate(refused, partial, instruction.latency * min(wait, 10.0))


def in_part(text: str, seed: int) -> str:
    """An answer of which a part is lost: a list without some of its items, which says so; anything else not at all."""
    found = listed(text)
    if found is None or len(found.items) < 2:
        return LOST
    rng = random.Random(derive(seed, "partial"))
    left = sorted(rng.sample(range(len(found.items)), rng.randrange(1, len(found.items))))
    return found.with_items([found.items[i] for i in left], {"failed": len(found.items) - len(left)})


class Listed(NamedTuple):
    """An answer that is a JSON list, or an object of which one value is; ``key`` names that value, "" for a list."""

    items: list[Any]
    key: str
    whole: dict[str, Any]

    def with_items(self, items: Sequence[Any], more: dict[str, Any]) -> str:
        """The answer with other items, and with further fields beside them."""
        return json.dumps({**self.whole, self.key or "items": list(items), **more}, ensure_ascii=False)


def listed(text: str) -> Listed | None:
    """The list in an answer; None where it is no JSON or holds none, or several."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list):
        return Listed(value, "", {})
    lists = [key for key, one in value.items() if isinstance(one, list)] if isinstance(value, dict) else []
    return Listed(value[lists[0]], lists[0], value) if len(lists) == 1 else None


def page(text: str, size: int, number: int = 0, cursor: str = "") -> tuple[str, bool]:
    """A page of an answer's list, numbered from 0, and whether more follow; an answer without a list is one page.

    Args:
        cursor: what asks for the next page; the answer names it where there is one.
    """
    found = listed(text)
    if not size or found is None or (number == 0 and len(found.items) <= size):
        return text, False
    items = found.items[number * size : (number + 1) * size]
    left = max(len(found.items) - (number + 1) * size, 0)
    return found.with_items(items, {"remaining": left} | ({"next_cursor": cursor} if left else {})), left > 0
