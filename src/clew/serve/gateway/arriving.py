"""What the gateway reads of a program's HTTP request beside its question: how it was written, and the scores of an end.

``proxy.py`` calls it. What a program sends is a stranger's: what it declares is one of a few words, or is refused.
"""

from __future__ import annotations

import hashlib
import json
import math

from starlette.requests import Request

from clew.core.errors import BadRecord
from clew.serve.gateway import verbatim
from clew.serve.gateway.verbatim import Sent
from clew.serve.history import DECLARED
from clew.serve.incoming import question_of
from clew.serve.published import published_agents
from clew.serve.refusals import Rejected


def sent_of(request: Request, data: bytes) -> Sent:
    """A request as its program wrote it, and what it says of itself.

    Raises:
        Rejected: its body is none of a question, or it declares what nobody knows.
    """
    body, headers = question_of(data), request.headers
    declared = headers.get("x-clew-request", "")
    if declared and declared not in DECLARED:
        told = f"the header x-clew-request says {declared[:60]!r}"
        raise Rejected(told, remedy=f"It is one of {', '.join(DECLARED)}.", param="x-clew-request")
    declared = declared or published_agents.declared(headers)
    counted = headers.get("x-stainless-retry-count", "0")
    return Sent(
        body,
        hashlib.sha256(data).digest(),
        verbatim.passed_on(headers),
        verbatim.asked_for(request.query_params),
        declared == "retry" or (counted.isdecimal() and counted.strip("0") != ""),
        headers.get("idempotency-key", ""),
        declared,
    )


def scores_of(body: bytes) -> dict[str, float]:
    try:
        found = json.loads(body or b"{}")
        scores = {str(k): float(v) for k, v in found.items()}
        if not all(map(math.isfinite, scores.values())):
            raise ValueError
        return scores
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        raise BadRecord("scores are a JSON object of numbers", remedy='Send {"reward": 1.0}, or nothing.') from None
