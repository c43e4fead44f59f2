"""A Tap in one line, as ``--tap`` takes it: ``layer=1,add=north.npy,times=3``.

Vectors are files that numpy wrote (``numpy.save``), or several of them by name in a ``.npz`` or ``.safetensors`` file.
Such a file may come from anywhere: nothing that it holds is unpickled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args
from zipfile import BadZipFile

import numpy as np

from clew.core.errors import BadInput, need
from clew.models.taps.tap import F32, VECTORS, Part, Tap

FIELDS = ("layer", "positions", "part", *VECTORS, "times", "bias", "clamp", "scale")
NUMBERS = {"times", "bias", "clamp", "scale"}
LARGEST = 1 << 30  # bytes of a file of vectors
EXAMPLE = "Write it as in layer=1,add=north.npy,times=3 or layer=1,along=feature.npy,clamp=2,part=reply."


def tap_of(line: str) -> Tap:
    """The Tap that a line names.

    The fields are those of Tap, except that a vector is a file (``FILE``, or ``FILE:NAME`` for one of several), that
    ``positions`` are joined by ``+`` (``positions=0+-1``), and that ``times`` multiplies what is added.

    Raises:
        BadInput: the line, a file that it names, or what both say together is no Tap.
    """
    fields: dict[str, str] = {}
    for piece in line.split(","):
        name, equals, value = (part.strip() for part in piece.partition("="))
        if not equals or not value or name not in FIELDS or name in fields:
            what = "stands twice" if name in fields else "is no field of a tap with its value"
            raise BadInput(f"{piece.strip()!r} {what} in {line!r}", remedy=f"{EXAMPLE} Fields: {', '.join(FIELDS)}.")
        fields[name] = value
    if "layer" not in fields:
        raise BadInput(f"the tap {line!r} names no layer", remedy=EXAMPLE)
    if "times" in fields and "add" not in fields:
        raise BadInput(f"times multiplies what is added, and {line!r} adds nothing", remedy=EXAMPLE)
    if fields.get("part", "all") not in get_args(Part):
        raise BadInput(f"part={fields['part']!r} is none", remedy=f"Known: {', '.join(get_args(Part))}.")
    made: dict[str, Any] = {name: _number(line, name, fields[name]) for name in fields.keys() & NUMBERS}
    made |= {name: vector(fields[name]) for name in VECTORS if name in fields}
    made["layer"] = _whole(line, "layer", fields["layer"])
    made["positions"] = tuple(_whole(line, "positions", p) for p in fields.get("positions", "").split("+") if p)
    if "times" in made:
        made["add"] = made["add"] * np.float32(made.pop("times"))
    return Tap(**made, part=fields.get("part", "all"))  # type: ignore[arg-type]  # checked above


def _number(line: str, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadInput(f"{name}={text!r} of the tap {line!r} is no finite number", remedy=EXAMPLE)
    return value


def _whole(line: str, name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"{name}={text!r} of the tap {line!r} is no whole number", remedy=EXAMPLE) from None


def vector(place: str) -> F32:
    """The float32 numbers of ``FILE.npy``, or of ``FILE.npz:NAME`` or ``FILE.safetensors:NAME``.

    Raises:
        BadInput: no such file, no such name in it, or not numbers.
    """
    file, _, name = place.rpartition(":")
    path = Path(file if file.endswith((".npz", ".safetensors")) else place)
    name = name if path != Path(place) else ""
    try:
        if path.stat().st_size > LARGEST:
            raise BadInput(f"{path} has over {LARGEST >> 20} MiB", remedy="Save the one vector alone.")
        with path.open("rb") as opened:
            found = _tensors(path) if path.suffix == ".safetensors" else np.load(opened, allow_pickle=False)
            found = _one(found, path, name) if isinstance(found, Mapping) else found
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}", remedy="Name a file of vectors.") from None
    except (ValueError, EOFError, BadZipFile):
        remedy = "Write it with numpy.save, numpy.savez or safetensors, as numbers."
        raise BadInput(f"{place} holds no vectors that may be read", remedy=remedy) from None
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "fiu":
        raise BadInput(f"{place} holds no numbers", remedy="Save floats, one for each width of the model.")
    return found.astype(np.float32)


def _one(found: Mapping[str, Any], path: Path, name: str) -> Any:
    if name not in found:
        known = ", ".join(sorted(found)[:8])
        raise BadInput(f"{path} holds no {name or 'vector without a name'}", remedy=f"Write {path}:NAME, of {known}.")
    packed = getattr(found, "zip", None)  # of numpy's .npz, which unpacks when it is asked
    if packed is not None and packed.getinfo(f"{name}.npy").file_size > LARGEST:
        raise BadInput(f"{name} of {path} unpacks to over {LARGEST >> 20} MiB", remedy="Save the one vector alone.")
    return found[name]


def _tensors(path: Path) -> Mapping[str, Any]:
    safe = need("safetensors", "local")
    load: Any = need("safetensors.numpy", "local").load_file
    try:
        found: Mapping[str, Any] = load(path)
    except safe.SafetensorError as error:
        raise ValueError(str(error)) from None
    return found
