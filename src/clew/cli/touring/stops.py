"""The stops of the tour, in the order in which they are walked, and which of them a choice needs."""

from __future__ import annotations

from collections.abc import Sequence

from clew.cli.touring import (
    code_stops,
    equipped_stops,
    evolved_stops,
    learning_stops,
    recorded_stops,
    token_stops,
)

PARTS = {
    "What was recorded": recorded_stops.STOPS,
    "An agent learns": learning_stops.STOPS,
    "Inside its runs": token_stops.STOPS,
    "Around the agent": equipped_stops.STOPS,
    "In a repository": code_stops.STOPS,
    "Better instructions, better theories": evolved_stops.STOPS,
}
STOPS = {stop.name: stop for stops in PARTS.values() for stop in stops}


def needed(only: Sequence[str]) -> list[str]:
    """The stops to walk, in order: those named and what they build on; all where none is named."""
    wanted = set(only or STOPS)
    for name in reversed(STOPS):
        if name in wanted:
            wanted.update(STOPS[name].after)
    return [name for name in STOPS if name in wanted]
