"""Taps (hidden states that a request reads or changes) are named in every request; no bundled model takes them yet."""

from __future__ import annotations

from clew.core.errors import BadInput
from clew.core.records import Request


def refuse_taps(request: Request, who: str) -> None:
    """Refuse a request with taps, which would else be answered as if it had none.

    Raises:
        BadInput: the request has taps.
    """
    if request.taps:
        layers = ", ".join(str(getattr(tap, "layer", tap)) for tap in request.taps)
        raise BadInput(
            f"{who} cannot read or change hidden states yet, and the request taps layer {layers}",
            remedy="Ask without taps.",
        )
