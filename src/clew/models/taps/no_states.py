"""The refusal of taps by models that have no hidden states to read or change: endpoints, fakes, replays."""

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
        raise no_states(who, f", and the request taps layer {layers}")


def no_states(who: str, more: str = "") -> BadInput:
    """The error where a model has no hidden states here."""
    return BadInput(
        f"{who} cannot read or change hidden states{more}",
        remedy='Ask without taps, or use weights on this machine: clew.model("./folder").',
    )
