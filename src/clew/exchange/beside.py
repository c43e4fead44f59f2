"""What methods say of single replies (advantages, potentials, grades), beside the messages of a transcript.

``transcript`` takes them out of a run and puts them into one; the formats write them as JSON by ``to_json`` and read
them by ``read``. A value must never be put on another message than the one it was computed for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from clew.core.records import Annotation, Call, Node
from clew.store import Run


class Value(NamedTuple):
    """One annotation of a reply. message: its place in the transcript. values: one for each token, None where it is
    absent or not finite.
    """

    message: int
    method: str
    value: float | None = None
    values: tuple[float | None, ...] | None = None
    version: str = "1"
    params: str = ""
    data: str = ""


def of_run(run: Run, path: Sequence[Node], asks: Sequence[Call]) -> tuple[Value, ...]:
    """The annotations on the Calls that made the replies of a path. Of several scopes the run's own group counts."""
    at = {node.key: place for place, node in enumerate(path)}
    made = {call.seq: at[call.node_out] for call in reversed(asks) if call.node_out in at}
    found: dict[tuple[Any, ...], tuple[bool, Value]] = {}
    for a in run.annotations():
        if a.target not in ("call", "tokens") or a.seq not in made:
            continue
        own, name = a.scope in (run.group, run.id), (a.seq, a.target, a.method, a.version, a.params)
        if name not in found or own > found[name][0]:
            packed = None if a.values is None else tuple(v if math.isfinite(v) else None for v in a.values.tolist())
            found[name] = own, Value(made[a.seq], a.method, a.value, packed, a.version, a.params, a.data)
    return tuple(sorted((value for _, value in found.values()), key=lambda v: v[:2] + v[4:6]))


def to_json(values: Sequence[Value]) -> list[dict[str, Any]]:
    """As JSON; what is as usual is left out."""
    usual = Value(0, "")._asdict()
    return [
        {k: v for k, v in value._asdict().items() if k in ("message", "method") or v != usual[k]} for value in values
    ]


def read(raw: object, roles: Sequence[str]) -> tuple[Value, ...] | None:
    """The inverse of ``to_json`` for messages of these roles; None where it is something else."""
    if not isinstance(raw, list):
        return None
    found = []
    for fields in raw:
        if not isinstance(fields, dict) or not fields.keys() <= set(Value._fields):
            return None
        at, packed = fields.get("message"), fields.get("values")
        texts = [fields.get(name, "") for name in ("method", "version", "params", "data")]
        if not isinstance(at, int) or not 0 <= at < len(roles) or roles[at] != "assistant" or not texts[0]:
            return None
        if not all(isinstance(text, str) and _whole(text) for text in texts) or not _number(fields.get("value")):
            return None
        if packed is not None and not (isinstance(packed, list) and all(map(_number, packed))):
            return None
        found.append(Value(**fields | ({} if packed is None else {"values": tuple(packed)})))
    return tuple(found)


def _number(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and abs(value) < 1e300)


def _whole(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text)


def as_annotations(values: Sequence[Value], run: str, seqs: Mapping[int, int]) -> Iterator[Annotation]:
    """As annotations of a run whose Call ``seqs[i]`` made message i."""
    for v in values:
        if v.message in seqs:
            packed = (
                None if v.values is None else np.array([math.nan if x is None else x for x in v.values], np.float32)
            )
            number = None if v.value is None else float(v.value)
            about: dict[str, Any] = {"version": v.version, "params": v.params, "values": packed, "data": v.data}
            about |= {"run": run, "seq": seqs[v.message], "scope": run}
            yield Annotation("call" if packed is None else "tokens", v.method, number, **about)
