"""Whether each value in a store file is one that Clew can have written, column by column.

``verify`` derives keys from what it reads; this says which row cannot be read at all, or holds a number, a text or
bytes that no writer puts there, so that one damaged row hides no other. Keys are not looked at here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

from clew.core.errors import BadInput
from clew.core.printable import short
from clew.core.records import Cursor, Fault
from clew.store.entries import WHATS
from clew.store.sql.row_codec import BITS, KINDS, TARGETS

Holds = Callable[[object], bool]
Read = Callable[..., list[Any]]
GREATEST = 1 << 48  # of counts, times and costs: more than any run can have
DEPTH = 200  # of JSON


def _text(value: object) -> bool:
    if isinstance(value, bytes):
        try:
            value.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return False
        return bool(value)
    return isinstance(value, str)


def _named(value: object) -> bool:
    return _text(value) and bool(value)


def _count(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < GREATEST


def _whole(value: object) -> bool:
    return isinstance(value, int)


def _place(value: object) -> bool:
    return isinstance(value, int) and -1 <= value < GREATEST


def _amount(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and 0 <= value < GREATEST


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _key(value: object) -> bool:
    return isinstance(value, bytes) and len(value) == 16


def _some_key(value: object) -> bool:
    return value == b"" or _key(value)


def _bytes(value: object) -> bool:
    return isinstance(value, bytes)


def _floats(value: object) -> bool:
    return isinstance(value, bytes) and len(value) % 4 == 0


def _read(value: object) -> str | bytes:
    """A value that was found to be a text, as JSON takes it."""
    return value if isinstance(value, str | bytes) else ""


def _json(*kinds: type) -> Holds:
    def holds(value: object) -> bool:
        if not isinstance(value, str | bytes) or not _text(value):
            return False
        try:
            found = json.loads(value, parse_constant=_refused)
        except (ValueError, RecursionError):
            return False
        return isinstance(found, kinds)

    return holds


def _refused(name: str) -> float:
    raise ValueError(name)


def _edits(value: object) -> bool:
    if value == "":
        return True
    found = json.loads(_read(value)) if _json(dict)(value) else {}
    listed = found.get("edits")
    return isinstance(listed, list) and all(
        isinstance(one, dict) and "kind" in one and "value" in one for one in listed
    )


def _segments(value: object) -> bool:
    return _json(list)(value) and all(
        isinstance(s, list) and len(s) == 3 and isinstance(s[0], str) and _count(s[1]) and _count(s[2])
        for s in json.loads(_read(value))
    )


def _ranks(value: object) -> bool:
    return _json(list)(value) and all(isinstance(one, int) for one in json.loads(_read(value)))


def _names(value: object) -> bool:
    return _json(list)(value) and all(isinstance(one, str) for one in json.loads(_read(value)))


def _cursor(value: object) -> bool:
    if value == "":
        return True
    try:
        return isinstance(value, str) and bool(Cursor.parse(value))
    except BadInput:
        return False


def _tomb(value: object) -> bool:
    if not isinstance(value, str):
        return False
    if "@" in value:
        return _cursor(value)
    try:
        return len(bytes.fromhex(value)) == 16
    except ValueError:
        return False


def _or_none(holds: Holds) -> Holds:
    return lambda value: value is None or holds(value)


def _among(*values: object) -> Holds:
    return lambda value: type(value) is type(values[0]) and value in values


_ONE_KEY, _FLOATS, _LIST = _or_none(_key), _or_none(_floats), _or_none(_json(list))
COLUMNS: dict[str, dict[str, Holds]] = {
    "ident": {"id": _text},
    "blob": {"key": _key, "body": _bytes},
    "node": {"key": _key, "parent": _some_key, "text": _text, "more": _LIST, "ids": _FLOATS, "text_key": _key},
    "run": {
        **dict.fromkeys(("agent", "taskset", "model", "task_id", "agent_digest", "grp", "origin"), _text),
        **dict.fromkeys(("config", "meta", "settings"), _json(dict)),
        "task": _ONE_KEY,
        "seed": _whole,
        "ord": _ranks,
        "parent": _cursor,
        "spawned_by": _cursor,
        "changes": _edits,
        "lineage": _segments,
        "created": _amount,
    },
    "call": {
        **dict.fromkeys(("after", "head", "forced", "prompt", "completion", "cached"), _count),
        **dict.fromkeys(("request", "key", "node_in", "node_out", "snapshot"), _some_key),
        **dict.fromkeys(("cost", "started", "seconds"), _amount),
        **dict.fromkeys(("action", "text", "error"), _text),
        **dict.fromkeys(("done", "conversation"), _place),
        **dict.fromkeys(("legal", "setup"), _ONE_KEY),
        **dict.fromkeys(("logprobs", "entropies"), _FLOATS),
        "kind": _among(*range(len(KINDS))),
        "reward": _or_none(_number),
        "terminal": _among(0, 1),
        "state": _bytes,
        "seed": _whole,
        "packed": _or_none(_json(list, dict)),
        "attempts": _LIST,
        "kept": _or_none(_bytes),
    },
    "grp": {"kind": _among("iid", "tree", "matched"), "task_id": _text, "runs": _names, "name": _text},
    "series": {"method": _named, "version": _text, "params": _text},
    "annotation": {
        "target": _among(*range(len(TARGETS))),
        "seq": _place,
        "node": _some_key,
        "value": _or_none(_number),
        "vals": _FLOATS,
        "data": lambda value: value == "" or _json(dict, list, str, int, float)(value),
    },
    "lease": {"owner": _named, "until": _amount},
    "tag": {"name": _named},
    "report": {"id": _named, "body": _json(dict)},
    "outcome": {"method": _named, "cursor": _text, "seeds": _bytes, "outcomes": _floats, "costs": _floats},
    "metric": {"training": _named, "step": _whole, "name": _named, "value": _number},
    "tombstone": {"place": _tomb, "at": _amount, "issue": _some_key},
    "migration": {"name": _named, "at": _amount},
    "entry": {
        "key": _key,
        "memory": _named,
        "item": _named,
        "at": _number,
        "what": _among(*WHATS),
        "body": _json(dict),
    },
    "vector": {"item": _named, "model": _named, "text": _bytes, "body": _bytes},
}
# columns that name rows of another table: there must be such a row
NAMES = {
    "node": {"role": "ident", "tokenizer": "ident"},
    "run": {"no": "ident"},
    "call": {"child": "ident", "finish": "ident"},
    "grp": {"no": "ident"},
    "series": {"scope": "ident"},
    "annotation": {"run": "ident", "series": "series"},
    "lease": {"run": "run"},
    "tag": {"run": "run"},
}
_ORDER = {"annotation": "run, target, series, seq, node", "tag": "name, run", "metric": "training, step, name"}


def damaged(read: Read) -> Iterator[Fault]:
    """Each value of a store file that Clew cannot have written, by where it is; nothing for a sound file."""
    numbers = {name: {no for (no,) in read(f"SELECT no FROM {name}")} for name in ("ident", "run", "series")}
    names = {no: id for no, id in read("SELECT no, id FROM ident") if isinstance(id, str)}
    for table, columns in COLUMNS.items():
        wanted = [*columns, *(name for name in NAMES.get(table, {}) if name not in columns)]
        place = _ORDER.get(table, "rowid")
        for *at, values in _rows(read, table, place, wanted):
            for column, value in zip(wanted, values, strict=True):
                holds = columns.get(column)
                among = NAMES.get(table, {}).get(column)
                if (holds and not holds(value)) or (among and value not in numbers[among]):
                    yield Fault(_where(table, at, names), f"its column {column} holds {_told(value)}")
    for no, at in read(f"SELECT DISTINCT at >> {BITS}, min(at) FROM call GROUP BY at >> {BITS}"):
        if no not in numbers["run"]:
            yield Fault(_where("call", [at], names), "a Call of a run that is missing")


def _rows(read: Read, table: str, place: str, columns: list[str]) -> Iterator[tuple[Any, ...]]:
    """The rows of a table, in pieces: where each is, and its values."""
    parts, start = place.count(",") + 1, 0
    while rows := read(f"SELECT {place}, {', '.join(columns)} FROM {table} ORDER BY {place} LIMIT 2000 OFFSET {start}"):
        start += len(rows)
        for row in rows:
            yield (*row[:parts], row[parts:])


def _where(table: str, at: list[Any], names: dict[int, str]) -> str:
    if table == "call":
        return f"{names.get(at[0] >> BITS, at[0] >> BITS)}@{at[0] & ((1 << BITS) - 1)}"
    if table in ("run", "grp", "annotation"):
        return f"{table} {names.get(at[0], at[0])}"
    return short(f"{table} {' '.join(str(one) for one in at)}", 80)


def _told(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bytes):
        return f"{len(value)} bytes that do not fit it"
    return f"{type(value).__name__} {short(str(value), 40)}, which does not fit it"
