"""A Tap: what a request writes into the hidden states of a model, with the vectors that it writes.

A Request carries Taps, an Edit of kind ``tap`` keeps them (``clew.models.taps.forms``), and the engine carries them
out. Vectors are long and shared by many requests, so a record holds their names alone, and a store holds them as blobs.
Nothing here computes with a model.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput
from clew.core.keys import blob_key

F32 = npt.NDArray[np.float32]
Part = Literal["all", "prompt", "reply"]
SHAPE = struct.Struct("<2I")  # rows (0: a flat vector) and width, before the numbers


class Vector:
    """Numbers of one or several hidden states, float32 [width] or [n, width]; never changed, known by its content.

    Raises:
        BadInput: no numbers, other than one or two dimensions, or numbers that are not finite.
    """

    def __init__(self, values: Vector | Sequence[float] | Sequence[Sequence[float]] | npt.NDArray[Any]) -> None:
        try:
            own = np.array(values.values if isinstance(values, Vector) else values, dtype="<f4", order="C")
        except (TypeError, ValueError, OverflowError):
            raise BadInput("a tap's vector is no list of numbers", remedy="Give floats, one for each width.") from None
        if own.ndim not in (1, 2) or not own.size or not np.isfinite(own).all():
            told = f"a vector of shape {own.shape} is empty, not flat, or holds what is not finite in float32"
            raise BadInput(told, remedy="Give finite floats: [width], or [positions, width] for a patch.")
        own.flags.writeable = False
        self.values: F32 = own

    @property
    def width(self) -> int:
        return int(self.values.shape[-1])

    @cached_property
    def data(self) -> bytes:
        """The stored form: two little-endian numbers for the shape, then the floats."""
        shape = self.values.shape
        return SHAPE.pack(shape[0] if len(shape) == 2 else 0, shape[-1]) + self.values.tobytes()

    @cached_property
    def name(self) -> str:
        """Hex key of the blob that holds it."""
        return blob_key(self.data).hex()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vector) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"<{'x'.join(map(str, self.values.shape))} {self.name[:8]}>"


Numbers = Vector | Sequence[float] | Sequence[Sequence[float]] | npt.NDArray[Any]
VECTORS = ("add", "along", "read", "patch")


@dataclass(frozen=True, slots=True)
class Tap:
    """Hidden states of one request that are changed: the output h of one block of the model, at some tokens.

    ``layer`` counts blocks from 0. ``positions`` are places in prompt and reply, from 0; negative ones count back from
    the end of the prompt, so that -1 is the token behind which the reply begins. None means all of them, or those of
    one ``part``. One of these is written there:

      ``add``     h + add
      ``patch``   the given state in place of h: [width], or [positions, width] with one for each position
      ``clamp``   h + (clamp - f) * along, for a number ``clamp``
      ``scale``   h + (scale - 1) * f * along, for a number ``scale``

    f is how much of the feature ``along`` [width] is there: max(0, h . read + bias) where ``read`` [width] is given, as
    a sparse autoencoder has it, else the coefficient h . along / |along|^2. Several taps of a layer are applied in
    order. A Tap without any of these writes nothing.

    Raises:
        BadInput: more than one thing to write, or what does not fit together.
    """

    layer: int
    positions: tuple[int, ...] = ()
    add: Numbers | None = None
    part: Part = "all"
    along: Numbers | None = None
    read: Numbers | None = None
    bias: float = 0.0
    clamp: float | None = None
    scale: float | None = None
    patch: Numbers | None = None

    def __post_init__(self) -> None:
        with suppress(TypeError):
            object.__setattr__(self, "layer", index(self.layer))
        object.__setattr__(self, "positions", tuple(map(index, self.positions)))
        for name in VECTORS:
            given: Any = getattr(self, name)
            made = None if given is None or len(getattr(given, "values", given)) == 0 else Vector(given)
            object.__setattr__(self, name, made)
        if why := self._fault():
            raise BadInput(f"a tap of layer {self.layer!r} {why}", remedy="See help(clew.models.taps.Tap).")

    def _fault(self) -> str:
        """What is wrong with it, or nothing."""
        writes = [name for name in ("add", "patch", "clamp", "scale") if getattr(self, name) is not None]
        flat = {name: v for name in VECTORS if (v := self.vector(name)) is not None}
        numbers = [self.bias, *(n for n in (self.clamp, self.scale) if n is not None)]
        states = flat["patch"].values if "patch" in flat else None
        if not isinstance(self.layer, int) or isinstance(self.layer, bool) or self.layer < 0:
            return "names no layer: they are counted from 0"
        if self.part not in ("all", "prompt", "reply"):
            return f"is of part {self.part!r}, which is none of all, prompt, reply"
        if len(writes) > 1:
            return f"writes {' and '.join(writes)}, and may write one of them"
        if ("along" in flat) != bool({"clamp", "scale"} & set(writes)) or ("read" in flat and "along" not in flat):
            return "needs along= and one of clamp= and scale= together"
        if not all(isinstance(n, (int, float)) and math.isfinite(n) for n in numbers):
            return "has a bias, clamp or scale that is no finite number"
        if len({v.width for v in flat.values()}) > 1 or any(v.values.ndim > 1 for n, v in flat.items() if n != "patch"):
            return "has vectors of several widths or shapes"
        if states is not None and states.ndim == 2 and len(states) != len(self.positions):
            return f"patches {len(states)} states into {len(self.positions)} positions"
        if len(set(self.positions)) < len(self.positions):
            return "names a position twice"
        return ""

    def vector(self, name: str) -> Vector | None:
        """``add``, ``along``, ``read`` or ``patch``; None where there is none."""
        found = getattr(self, name)
        return found if isinstance(found, Vector) else None

    @property
    def vectors(self) -> tuple[Vector, ...]:
        """All vectors it holds."""
        return tuple(v for name in VECTORS if (v := self.vector(name)) is not None)

    @property
    def writes(self) -> bool:
        """Whether it changes anything."""
        return any(value is not None for value in (self.add, self.patch, self.clamp, self.scale))
