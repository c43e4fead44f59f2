"""Which tokens a grammar left at each place of a reply, told with it so that whoever asked can train on it.

``answers`` calls it for replies that were held to a form and whose ids were asked for. The engine notes such sets only
where top_p or top_k cut the law; here the reply is led through its grammar again, which takes no model. The sets must
be those of the law that the tokens were drawn from, or none.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from clew.core.records import Request
from clew.core.values import Completion
from clew.models.kept import pack

MOST = 1 << 22  # ids in all the sets of one reply: tens of megabytes of JSON


async def with_sets(model: Any, request: Request, completion: Completion) -> Completion:
    """The completion with the sets of ids that its grammar left; as it is where it has some, or none can be told."""
    grammar, tokens = request.sampling.grammar, completion.tokens
    if not grammar or not tokens or completion.kept or not hasattr(model, "guide"):
        return completion
    kept = await asyncio.to_thread(_sets, model, grammar, (*request.forced,), tokens)
    return completion._replace(kept=kept)


def _sets(model: Any, grammar: str, forced: tuple[int, ...], tokens: tuple[int, ...]) -> bytes:
    guide = model.guide(grammar)
    if not guide.take(forced):
        return b""
    sets, count = [], 0
    for token in tokens:
        banned = guide.banned()
        if banned is None or banned[token]:
            return b""
        left = np.flatnonzero(~banned)
        count += len(left)
        if count > MOST:
            return b""
        sets.append(left)
        guide.take([token])
    return pack(sets)
