"""Taps as JSON, in which a record keeps them: vectors by name, and the vectors themselves as blobs of a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from clew.core.errors import BadInput
from clew.core.printable import short
from clew.models.taps.tap import SHAPE, VECTORS, Tap, Vector

Load = Callable[[bytes], bytes]  # gives a blob by its key


def form_of(tap: Tap) -> dict[str, Any]:
    """The fields of a Tap as JSON, vectors by name."""
    kept: dict[str, Any] = {"layer": tap.layer, "positions": list(tap.positions)}
    for field in fields(tap)[2:]:
        value = getattr(tap, field.name)
        if value != field.default:
            kept[field.name] = value.name if isinstance(value, Vector) else value
    return kept


def taps_of(value: object, load: Load | None = None) -> tuple[Tap, ...]:
    """One Tap, or a list of Taps or of their forms, as an Edit has them; vectors in a form may be written out.

    Args:
        load: where the forms name vectors.

    Raises:
        BadInput: it is something else, or names a vector that cannot be had here.
    """
    given: Any = value if isinstance(value, (list, tuple)) else [value]
    return tuple(one if isinstance(one, Tap) else _tap(one, value, load) for one in given)


def forms_of(value: object) -> list[Mapping[str, Any]]:
    """What a request's digest has of an Edit's taps, vectors by name; no vector need be at hand.

    Raises:
        BadInput: it is no tap.
    """
    given: Any = value if isinstance(value, (list, tuple)) else [value]
    if all(isinstance(one, dict) and all(isinstance(one.get(v, ""), str) for v in VECTORS) for one in given):
        return [dict(one) for one in given]
    return [form_of(tap) for tap in taps_of(value)]


def vector_of(data: bytes) -> Vector:
    """The vector of a blob, see ``Vector.data``.

    Raises:
        BadInput: the bytes are no vector.
    """
    rows, width = SHAPE.unpack_from(data) if len(data) > SHAPE.size else (0, 0)
    if not width or len(data) != SHAPE.size + 4 * max(rows, 1) * width:
        raise BadInput("a blob that a tap names is no vector", remedy="Check the store: clew store verify.")
    values = np.frombuffer(data, "<f4", offset=SHAPE.size)
    return Vector(values.reshape(rows, width) if rows else values)


def _tap(one: Any, value: object, load: Load | None) -> Tap:
    try:
        form = dict(one)
        form["positions"] = tuple(int(place) for place in form.get("positions", ()))
        for name in VECTORS:
            if isinstance(form.get(name), str):
                if load is None:
                    raise BadInput("a tap names a vector that is in a store", remedy="Give the vector itself.")
                form[name] = vector_of(load(bytes.fromhex(form[name])))
        return Tap(**form)
    except (TypeError, ValueError):
        told = f"{short(repr(value), 60)} is no tap"
        raise BadInput(told, remedy="Give Tap(layer=3, add=vector), or a list of them.") from None
