"""Which recorded request a program's request is, and what differs between the two.

Sessions that answer from a record ask here. A request stands for a recorded one that asks the same, to the letter or
apart from what masks leave out; where that is wanted, also for the one at its place, whatever differs, which is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from clew.models.dialects import Asked, Json
from clew.serve.gateway.exchanges import Exchange
from clew.serve.published.masks import NONE, Masks
from clew.serve.sameness import asker, difference, key_of, question


@dataclass(slots=True)
class Expected:
    """A recorded request that a restarted program will send again."""

    exchange: Exchange
    replied: bool  # the answer is in the record
    asks: Json  # what it asks
    key: bytes  # a digest of that, as masks leave it
    verbatim: bool  # the record has its body
    who: Mapping[str, object] = field(default_factory=dict)  # its fields that say who asks
    used: bool = False
    differs: str = ""  # how the program's own differs; it asked something else if ``used`` is not set
    came: asyncio.Event = field(default_factory=asyncio.Event)  # what the program asks here is known


class Met(NamedTuple):
    """A request that the record answered. number: of the recorded one.

    masked: in how many places each mask hid something that differs, by the mask's name. differs: what differs beyond
    that, where the request was taken for its place alone; empty where nothing does.
    """

    number: int
    masked: Mapping[str, int]
    differs: str = ""


class Matching(NamedTuple):
    """How requests are matched. masks: what may differ. position: whether their place is enough."""

    masks: Masks = NONE
    position: bool = False

    def expected(self, exchange: Exchange, asked: Asked, body: Json | None) -> Expected:
        """A recorded request, of which ``body`` is None in records of earlier versions."""
        asks = question(asked, body and (body.get("tools") or []))
        return Expected(exchange, False, asks, self.key(asks), body is not None, asker(asked))

    def key(self, asks: Json) -> bytes:
        masked = self.masks.value(asks)
        assert isinstance(masked, dict)
        return key_of(masked)

    def differs(self, one: Expected, asks: Json) -> str:
        """Where a request differs from a recorded one first, with both values; empty where only masks do."""
        return difference(self.masks.value(one.asks), self.masks.value(asks))

    def met(self, one: Expected, asks: Json, who: Mapping[str, object]) -> Met:
        """What is to be said of a request that a recorded one answers."""
        masked = self.masks.used(one.asks, asks)
        if self.masks.masks:
            masked |= {f"field {k}": 1 for k in {*one.who, *who} if one.who.get(k) != who.get(k)}
        differs = self.differs(one, asks) if self.position else ""
        return Met(one.exchange.number, dict(sorted(masked.items())), differs)


def at_its_place(waiting: Sequence[Expected], asks: Mapping[bool, Json]) -> Expected | None:
    """The recorded request at the place of this one: with as many replies before it, and the nearest of these.

    Args:
        asks: what the request asks, by whether the record has bodies.
    """

    def near(one: Expected) -> tuple[bool, ...]:
        mine = asks[one.verbatim]
        equal = tuple(one.asks[name] == mine[name] for name in ("model", "tools"))
        return (*equal, replies(one.asks) == replies(mine), len(one.asks["messages"]) == len(mine["messages"]))

    there = [one for one in waiting if len(replies(one.asks)) == len(replies(asks[one.verbatim]))]
    return max(there, key=near, default=None)


def replies(asks: Json) -> list[str]:
    """The replies in a conversation so far."""
    return [str(m["text"]) for m in asks["messages"] if m["role"] == "assistant"]
