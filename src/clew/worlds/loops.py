"""Loop erasure: the part of a walk that remains when every return to an earlier state is cut out. Worlds and papers
measure with it how direct a walk was. It must never reorder states."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def loop_erase(states: Sequence[Hashable]) -> list[int]:
    """The moves of a walk that its loop erasure keeps, in order (chronological loop erasure, Lawler 1980).

    ``states`` has one entry more than the walk has moves; move i leads from ``states[i]`` to ``states[i + 1]``. The
    moves that are kept lead from the first state to the last and enter no state twice. Without states there are none.
    """
    kept: list[int] = []
    place = {states[0]: 0} if states else {}
    for i, after in enumerate(states[1:]):
        if after in place:  # back where the walk has been: what lies between is a loop
            start = place[after]
            for cut in kept[start:]:
                del place[states[cut + 1]]
            del kept[start:]
        else:
            kept.append(i)
            place[after] = len(kept)
    return kept
