"""LossRows in a file, so that a training step can be repeated without sampler or store."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clew.core.errors import BadInput, BadRecord
from clew.core.records import Cursor, LossRow

PLAIN = ("version", "set", "role", "temperature", "run")  # fields of a row that are JSON as they are


def dump(rows: Sequence[LossRow], path: str | Path) -> Path:
    """Write rows as one .npz: token columns of all rows end to end, and a JSON head."""
    if not rows:
        raise BadInput("there are no rows to dump")
    columns: dict[str, Any] = {
        "ids": np.concatenate([row.ids for row in rows]).astype(np.int32),
        "sampled": np.concatenate([row.sampled for row in rows]),
        "old": np.concatenate([row.old for row in rows]).astype(np.float32),
    }

    def optional(name: str, parts: Sequence[np.ndarray | None]) -> None:
        if kept := [part for part in parts if part is not None]:
            columns[name] = np.concatenate(kept).astype(np.float32)

    if mixed := [row.versions for row in rows if row.versions is not None]:
        columns["versions"] = np.concatenate(mixed).astype(np.int32)
    optional("ref", [row.ref for row in rows])
    for name in {n for row in rows for n in row.weights}:
        optional(f"weights/{name}", [row.weights.get(name) for row in rows])
    for name in {n for row in rows for n in row.targets}:
        optional(f"targets/{name}", [row.targets.get(name) for row in rows])
    head = []
    for row in rows:
        about: dict[str, object] = {name: getattr(row, name) for name in PLAIN}
        about |= {"held": row.held} if row.held else {}
        if row.kept:
            about["kept"] = [(first, stop, b64encode(ids).decode()) for first, stop, ids in row.kept]
        about |= {"versions": True} if row.versions is not None else {}
        about |= {"length": len(row.ids), "ref": row.ref is not None, "weights": [*row.weights]}
        head.append(about | {"targets": [*row.targets], "source": [[at, str(cursor)] for at, cursor in row.source]})
    columns["head"] = np.frombuffer(json.dumps({"clew": "rows.1", "rows": head}).encode(), np.uint8)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.savez(file, **columns)
    return path


def load(path: str | Path) -> list[LossRow]:
    """Read what ``dump`` wrote.

    Raises:
        BadRecord: it is not such a file.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            columns = {name: file[name] for name in file.files}
        head = json.loads(columns.pop("head").tobytes())
        if head["clew"] != "rows.1":
            raise ValueError(f"unknown form {head['clew']!r}")
    except (OSError, ValueError, KeyError) as error:
        raise BadRecord(
            f"{path} is not a file of rows: {error}", remedy="Give a file that train.dump.dump wrote."
        ) from error
    at = dict.fromkeys(columns, 0)

    def take(name: str, length: int) -> np.ndarray:
        at[name] += length
        return np.asarray(columns[name][at[name] - length : at[name]])

    rows = []
    for h in head["rows"]:
        n, source = h["length"], [(start, Cursor.parse(cursor)) for start, cursor in h["source"]]
        ids, sampled = take("ids", n), take("sampled", n)
        weights = {name: take(f"weights/{name}", n) for name in h["weights"]}
        old, ref = take("old", n), take("ref", n) if h["ref"] else None
        targets = {name: take(f"targets/{name}", n) for name in h["targets"]}
        plain = {name: h[name] for name in PLAIN if name in h}  # dumps made before rows named their run lack it
        plain["kept"] = [(first, stop, b64decode(kept)) for first, stop, kept in h.get("kept", ())]
        plain["held"] = [tuple(one) for one in h.get("held", ())]
        plain["versions"] = take("versions", n) if h.get("versions") else None
        rows.append(LossRow(ids, sampled, weights, old, ref, targets, source, **plain))
    return rows
