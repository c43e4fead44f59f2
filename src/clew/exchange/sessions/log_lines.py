"""Lines of a session log, and a run made of what its reader understood.

The readers of this folder call it. A log is text of a model, its tools and a repository: nothing in it is trusted, a
line that cannot be read is left out and reported, and what is kept is bounded.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from clew.core.errors import BadRecord
from clew.core.values import Message
from clew.exchange import files
from clew.exchange.files import Skipped
from clew.exchange.transcript import Meter, Transcript

Json = dict[str, Any]
BYTES, LINES = 1 << 30, 1_000_000  # of one log
KINDS = 5  # that are named of one log
LEFT = "The rest of the log is imported."
BROKEN = (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError, OverflowError)


class Row(NamedTuple):
    """One line: its number and its object."""

    number: int
    data: Json


def rows(path: Path) -> Iterator[Row | Skipped]:
    """The objects of a log's lines; in place of a line that is none, an error that says so.

    Raises:
        BadInput: it cannot be opened. BadRecord: it is damaged as a whole, or larger than can be kept.
    """
    long, size = list[int](), 0
    for number, line in files.lines(path, long.append):
        while long:
            yield _skipped(path, long.pop(0), f"a line of more than {files.LINE >> 20} MiB")
        size += len(line)
        if size > BYTES or number > LINES:
            raise BadRecord(f"{path.name}: over {BYTES >> 20} MiB or {LINES:,} lines", remedy=files.SHORTER)
        try:
            data = files.loads(line)
        except ValueError as error:
            yield _skipped(path, number, str(error))
            continue
        if isinstance(data, dict):
            yield Row(number, data)
        else:
            yield _skipped(path, number, f"a {type(data).__name__} and no object")
    for number in long:
        yield _skipped(path, number, f"a line of more than {files.LINE >> 20} MiB")


def _skipped(path: Path, number: int, why: str) -> Skipped:
    return Skipped(f"{path.name}:{number}: {why[:200]}", remedy=LEFT)


def refused(path: Path, row: Row, error: Exception) -> Skipped:
    """The word on a line whose fields are not what its kind of log has there."""
    return _skipped(path, row.number, f"not as such a log has it: {files.brief(str(error))}")


class Unread:
    """Lines of kinds that a reader has no name for: they are no part of the run, and are counted and named."""

    def __init__(self) -> None:
        self._kinds, self._first = Counter[str](), 0

    def add(self, kind: object, number: int) -> None:
        self._first = self._first or number
        self._kinds[str(kind)] += 1

    def told(self, path: Path) -> Iterator[Skipped]:
        """The word on them, if there are any, at the first of them."""
        if self._kinds:
            counts = sorted(self._kinds.items())
            named = ", ".join(f"{count} {files.brief(kind)}" for kind, count in counts[:KINDS])
            more = f" and {len(counts) - KINDS} other kinds" if len(counts) > KINDS else ""
            yield _skipped(path, self._first, f"lines of unknown kinds are left out: {named}{more}")


def begins(head: bytes, most: int = 50) -> Iterator[Json]:
    """The objects among the first whole lines of a file."""
    for line in head.split(b"\n")[:most]:
        try:
            data = files.loads(line)
        except ValueError:
            continue
        if isinstance(data, dict):
            yield data


def seconds(value: object) -> float:
    """A time of a log (ISO 8601, or seconds or milliseconds since the epoch) in seconds; 0 where it is none."""
    try:
        if isinstance(value, str):
            return max(datetime.fromisoformat(value).timestamp(), 0.0)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e14:
            found = float(value)
            return found / 1000 if found > 1e11 else found if math.isfinite(found) else 0.0
    except (ValueError, OverflowError, OSError):
        pass
    return 0.0


def in_order(messages: Sequence[Message]) -> list[Message]:
    """Messages with the results of a reply's tool calls in the order of the calls: logs have them as they arrived."""
    out, held = list[Message](), list[Message]()

    def settle() -> None:
        calls = out[-1].calls if out else ()
        place = {call.id: at for at, call in enumerate(calls)}
        held.sort(key=lambda m: place.get(m.call_id or "", len(place)) if m.role == "tool" else len(place) + 1)
        out.extend(held)
        held.clear()

    for message in messages:
        if message.role == "assistant":
            settle()
            out.append(message)
        else:
            held.append(message)
    settle()
    return out


Said = tuple[tuple[Message, ...], tuple[Meter, ...]]
"""The messages of a conversation, and what each of its replies took."""


class Talk:
    """One conversation as it is read: its messages, and what each of its replies took."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.meters: list[Meter] = []

    def finish(self) -> Said | None:
        """The conversation; None for one without a reply."""
        if not any(message.role == "assistant" for message in self.messages):
            return None
        return tuple(in_order(self.messages)), tuple(self.meters)


def transcript(path: Path, talks: Sequence[Said | None], about: Json) -> Transcript | None:
    """A log as one transcript, the first conversation with a reply as its main one; None where no one replied.

    Args:
        about: what the log says of the session, under the name of its program.
    """
    said = [talk for talk in talks if talk is not None]
    if not said:
        return None
    (messages, meters), *others = said
    return Transcript(
        messages,
        model=next((meter.model for _, took in said for meter in took if meter.model), ""),
        meters=meters,
        fields=about,
        where=path.name,
        others=tuple(talk for talk, _ in others),
        other_meters=tuple(took for _, took in others),
    )
