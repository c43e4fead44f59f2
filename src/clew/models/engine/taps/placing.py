"""Where the writes of one request fall: positions made absolute, checked, and compared with those of another.

Admission places the taps of a request before it looks for a cached prefix: two rows share one as far as their tokens
and their writes are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from clew.core.errors import BadInput
from clew.core.records import Tapped
from clew.models.taps.tap import Tap

EVER = 1 << 40  # a position that no row has


class Write(NamedTuple):
    """A Tap in one request: at positions ``at`` in order, or from ``low`` up to but excluding ``high``."""

    tap: Tap
    low: int
    high: int
    at: tuple[int, ...]

    @property
    def first(self) -> int:
        return min(self.at, default=self.low)

    def below(self, stop: int) -> int:
        """How many positions below ``stop`` it writes."""
        return sum(place < stop for place in self.at) if self.at else max(0, min(stop, self.high) - self.low)


class Target(NamedTuple):
    """The model that is written into; ``quantised`` says how its weights are stored where that forbids it."""

    layers: int
    width: int
    context: int
    quantised: str


def placed(taps: Sequence[Tapped], prompt: int, target: Target) -> tuple[Write, ...]:
    """The writes of a request whose reply begins behind ``prompt`` tokens.

    Raises:
        BadInput: the model has no such layer, width or position, or its weights are quantised; or a tap reads only.
    """
    return tuple(_placed(tap, prompt, target) for tap in taps)


def _placed(tap: Tapped, prompt: int, target: Target) -> Write:
    check_target(target)
    if not isinstance(tap, Tap):
        raise BadInput(f"a {type(tap).__name__} is no tap", remedy="Give a clew.models.taps.Tap.")
    if tap.layer >= target.layers:
        raise no_layer(tap.layer, target.layers)
    if not tap.writes:
        raise BadInput(
            f"a tap of layer {tap.layer} writes nothing, and hidden states are not read while a reply is sampled",
            remedy="Ask without it, and read the states of the recorded run with clew.models.taps.read.",
        )
    wrong = next((vector.width for vector in tap.vectors if vector.width != target.width), 0)
    if wrong:
        raise BadInput(
            f"a tap of layer {tap.layer} has a vector of width {wrong}, and the model is {target.width} wide",
            remedy="Give a vector that was made for this model.",
        )
    at = tuple(place if place >= 0 else prompt + place for place in tap.positions)
    if tap.part != "all":
        at = tuple(place for place in at if (place < prompt) == (tap.part == "prompt"))
    outside = [place for place in at if not 0 <= place < target.context]
    if outside or len(set(at)) < len(at) or (tap.positions and len(at) < len(tap.positions)):
        raise BadInput(
            f"a tap of layer {tap.layer} writes at positions {list(tap.positions)[:8]} of part {tap.part!r}, "
            f"where the prompt has {prompt} tokens and the context {target.context}",
            remedy="Give each place once: from 0, or back from the end of the prompt (-1 is its last token).",
        )
    low, high = (prompt if tap.part == "reply" else 0), (prompt if tap.part == "prompt" else EVER)
    return Write(tap, low, high, at)


def no_layer(layer: object, layers: int) -> BadInput:
    """The error where a model of so many layers lacks one."""
    return BadInput(f"the model has no layer {layer}", remedy=f"Its {layers} layers are 0 to {layers - 1}.")


def check_target(target: Target) -> None:
    """Refuse quantised weights.

    Raises:
        BadInput: naming how they are stored.
    """
    if target.quantised:
        raise BadInput(
            f"the weights are quantised ({target.quantised}), and hidden states are neither read nor changed there",
            remedy="Load the model in float32, bfloat16 or float16.",
        )


def apart(mine: Sequence[Write], other: Sequence[Write]) -> int:
    """The first position at which two rows of the same tokens may hold different states."""
    if mine == other:
        return EVER
    if [write.tap for write in mine] != [write.tap for write in other]:
        return min(write.first for write in (*mine, *other))
    return min(_differ(a, b) for a, b in zip(mine, other, strict=True))


def _differ(mine: Write, other: Write) -> int:
    """The first position that one of two writes of the same Tap reaches and the other does not."""
    if mine == other:
        return EVER
    if mine.at or other.at:
        # In order: a patch has a state for each position, and the same place may be given another one.
        return min((min(a, b) for a, b in zip(mine.at, other.at, strict=True) if a != b), default=EVER)
    low = min(mine.low, other.low) if mine.low != other.low else EVER
    return min(low, min(mine.high, other.high) if mine.high != other.high else EVER)
