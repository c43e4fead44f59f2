"""A file of signed lines: who was asked, who was refused and why, and whose words each answer holds.

``clew.models.compose.routed`` appends to it before a worker is contacted and after it answered; an auditor reads it
with ``read_ledger`` and the key. Each line is a JSON object, signed with the line before it, so that a line that was
changed, dropped or put in is found. A cut at the end is not: keep the last line's ``mac`` elsewhere. It must never hold
what was said, only digests of it.
"""

from __future__ import annotations

import hmac
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from clew.core.errors import BadInput, BadRecord

LONGEST, LEAST, MOST = 1 << 16, 16, 4096  # bytes of a line; of a key
NONE = "0" * 64  # what the first line is signed with, in place of a line before it


def key_of(file: str | Path) -> bytes:
    """The key in a file: its bytes without white space at the ends.

    Raises:
        BadInput: there is no such file, or it holds less than 16 bytes or more than 4,096.
    """
    path = Path(file)
    if not path.is_file() or path.stat().st_size > MOST:
        raise BadInput(f"{path} is no file with a key", remedy="Write 32 random bytes into it, in hex.")
    key = path.read_bytes().strip()
    if len(key) < LEAST:
        raise BadInput(f"the key in {path} has {len(key)} bytes", remedy=f"Use at least {LEAST} random bytes.")
    return key


def _signed(entry: Mapping[str, Any], before: str, key: bytes) -> str:
    text = json.dumps(entry, sort_keys=True, separators=(",", ":"))
    return hmac.new(key, f"{before}\n{text}".encode(), sha256).hexdigest()


def read_ledger(path: str | Path, key: bytes) -> Iterator[dict[str, Any]]:
    """The entries of a ledger, each once its signature was found right.

    Raises:
        BadRecord: a line is none, or is not signed with this key behind the lines before it.
    """
    before = NONE
    with Path(path).open("rb") as file:
        number = 0
        while line := file.readline(LONGEST + 1):
            number += 1
            try:
                entry = json.loads(line) if line.endswith(b"\n") else None
                mac = entry.pop("mac") if isinstance(entry, dict) else None
            except (ValueError, KeyError, RecursionError):
                entry = mac = None
            if entry is None or not isinstance(mac, str) or not mac.isascii():
                raise BadRecord(f"{path}: line {number} is no line of a ledger", remedy="Start a new file.")
            if not hmac.compare_digest(mac, _signed(entry, before, key)):
                raise BadRecord(
                    f"{path}: line {number} is not signed with this key behind the lines before it",
                    remedy="Check the key; else the file was changed: keep it as evidence, and start a new one.",
                )
            before = mac
            yield entry | {"mac": mac}


class Ledger:
    """A ledger that is written to; what the file holds already is checked first. One process writes to a file.

    Args:
        path: of the file; made where missing.
        key: that signs.
        clock: seconds since the epoch.

    Raises:
        BadRecord: the file is no ledger of this key. BadInput: another process writes to it, or it cannot be opened.
    """

    def __init__(self, path: str | Path, key: bytes, clock: Callable[[], float] = time.time) -> None:
        self.path, self._key, self._clock, self._lock = Path(path), key, clock, threading.Lock()
        try:
            import fcntl
        except ImportError:
            raise BadInput("this system locks no files, as a ledger needs", remedy="Route without a ledger.") from None
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise BadInput(f"{path} cannot be written: {error.strerror}", remedy="Name another file.") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._last, self.entries = NONE, list[dict[str, Any]]()  # of other sessions
            for entry in read_ledger(self.path, key):
                self._last = entry["mac"]
                if entry.get("kind") == "said":
                    self.entries.append(entry)
        except BlockingIOError:
            os.close(self._file)
            raise BadInput(f"{path} is written by another router", remedy="Give each a file of its own.") from None
        except BadRecord:
            os.close(self._file)
            raise

    def write(self, kind: str, **said: object) -> None:
        """Append a line; it is in the file before this returns.

        Raises:
            BadInput: it cannot be written. Then nothing may be sent that it would have told of.
        """
        with self._lock:
            entry = {"kind": kind, "at": round(self._clock(), 6), **said}
            mac = _signed(entry, self._last, self._key)
            line = json.dumps(entry | {"mac": mac}, sort_keys=True, separators=(",", ":")).encode() + b"\n"
            if len(line) > LONGEST:
                raise BadInput(f"a line of {len(line):,} bytes for {self.path}", remedy="Route with a smaller pool.")
            try:
                done = os.write(self._file, line)
            except OSError as error:
                raise BadInput(f"{self.path}: {error.strerror}", remedy="Make room, or start a new file.") from None
            if done != len(line):
                raise BadInput(f"{self.path} took part of a line only", remedy="Make room and start a new file.")
            self._last = mac

    def close(self) -> None:
        """Let another process write; nothing can be written here any more."""
        with self._lock:
            file, self._file = self._file, -1  # the number may soon be that of another file
            os.close(file)
