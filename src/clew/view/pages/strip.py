"""One value along a whole run, a number for each Call that has one."""

from __future__ import annotations

from typing import Any

import numpy as np

from clew.core.json_values import plain
from clew.store import Keeper
from clew.store.run import mean
from clew.view.pages.transcript_page import by_call, values_on

OWN = ("logprob", "entropy", "reward")  # what Calls hold themselves; other names are methods


def strip(store: Keeper, run: str, value: str) -> dict[str, Any]:
    """Call numbers and values side by side.

    Args:
        value: ``logprob`` or ``entropy`` (nats, means over the sampled tokens of an ask), ``reward`` (of an act), or a
            method, which gives its value on the Call or else the mean over its tokens.

    Raises:
        UnknownName: no such run.
    """
    found: dict[int, float] = {}
    if value in OWN:
        found = store.numbers(run, value)
    else:
        row = store.row(run)
        said = values_on(store, row, 0, 1 << 24, value)
        for seq, (whole, single) in by_call(row, said).items():
            if whole.get(value) is not None:
                found[seq] = whole[value]
            elif (
                single.get(value) is not None and (number := mean(single[value][~np.isnan(single[value])])) is not None
            ):
                found[seq] = number
    seqs = sorted(found)
    return {"seqs": seqs, "values": [plain(found[seq]) for seq in seqs]}
