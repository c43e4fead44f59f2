"""The log of an evolution: one JSON object a line, each with the digest of all lines before it.

``Archive`` writes it, and reads it back when a search goes on. A line that was altered, left out or moved breaks the
chain and is refused. A last line that a kill cut short is dropped, from the file too. It must never rewrite a line.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clew.core.errors import BadInput, BadRecord
from clew.core.keys import digest, encode

LINK = b"clew.evolve.1"
LONGEST = 1 << 30  # bytes of a log
Event = Mapping[str, Any]


class ChainedLog:
    """An append-only log, in memory or in a file that one process holds.

    Args:
        path: of the file; None keeps the lines in memory.

    Raises:
        BadInput: another process writes the file.
        BadRecord: a line is damaged or the chain is broken.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path, self.events, self.head = path, list[Event](), bytes(16)
        self._file = None
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise BadInput(
                f"another process writes {path.name}", remedy="Wait for it, or give another folder."
            ) from None
        try:
            self._read(path)
        except BaseException:
            self.close()
            raise

    def _read(self, path: Path) -> None:
        data = _bytes_of(path)
        self.events, self.head, whole = _checked(data, path.name)
        if whole < len(data):
            os.truncate(path, whole)

    def append(self, event: Event) -> None:
        """Add a line; it is in the file when this returns."""
        text = encode(json.dumps(event, sort_keys=True, separators=(",", ":"), allow_nan=False))
        self.head = digest(LINK, self.head, text)
        self.events.append(event)
        if self._file is not None:
            self._file.write(self.head.hex().encode() + b" " + text + b"\n")
            self._file.flush()

    def close(self) -> None:
        """Give the file back."""
        if self._file is not None:
            self._file.close()
            self._file = None


def read_events(path: Path) -> list[Event]:
    """The lines of a log that another process may be writing; nothing is changed, and a line cut short is left out.

    Raises:
        BadRecord: a line is damaged or the chain is broken.
    """
    return _checked(_bytes_of(path), path.name)[0]


def _bytes_of(path: Path) -> bytes:
    if path.stat().st_size > LONGEST:
        raise BadRecord(f"{path.name} is longer than {LONGEST:,} bytes", remedy="Begin again in another folder.")
    return path.read_bytes()


def _checked(data: bytes, name: str) -> tuple[list[Event], bytes, int]:
    """Events of whole lines, the digest after the last of them, and how many bytes they are."""
    events, head, whole = list[Event](), bytes(16), data.rfind(b"\n") + 1
    for number, line in enumerate(data[:whole].splitlines(), 1):
        said, _, text = line.partition(b" ")
        head = digest(LINK, head, text)
        try:
            event = json.loads(text) if said == head.hex().encode() else None
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            remedy = "The log was altered or is damaged; begin again in another folder."
            raise BadRecord(f"line {number} of {name} does not follow from the lines before it", remedy=remedy)
        events.append(event)
    return events, head, whole
