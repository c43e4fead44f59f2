"""Files that are read and written whole or not at all, and JSON without NaN.

Every reader of this package reads through ``lines``, ``whole``, ``Budget`` and ``loads``, which hold the bounds: a file
that others made must not take more memory or time than its size can answer for.
"""

from __future__ import annotations

import codecs
import gzip
import importlib
import io
import json
import math
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from clew.core.errors import BadInput, BadRecord
from clew.core.printable import quoted

LINE = 64 << 20  # bytes of a line, or of a document that is a file
VALUES = 4_000_000  # of one JSON text; each takes up to 250 bytes of memory
DEPTH = 200  # of lists and objects in one another
UNPACKED, RATIO = 1 << 30, 100  # see Budget; text seldom unpacks to 30 times its size
PACKED = (".gz", ".zst")  # endings of compressed files
PIECE = 1 << 10  # bytes that are unpacked at a time; they become at most 32 MiB
WINDOW = 128 << 20  # bytes that unpacking one may hold
TOO_DEEP = f"lists or objects nested more than {DEPTH} deep"
SHORTER = "Split it, or leave it out."


def loads(text: str | bytes) -> Any:
    """JSON text to values; lone surrogates pass.

    Raises:
        ValueError: it is not JSON, has NaN, an infinity or one key twice in an object, or is too large or too deep.
    """
    if len(text) > LINE:
        raise ValueError(f"more than {LINE >> 20} MiB of JSON")
    if isinstance(text, bytes):
        text = text.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogatepass")
    opened = text.count("[") + text.count("{")
    if opened + text.count(",") > VALUES:
        raise ValueError(f"more than {VALUES:,} values")
    try:
        found = json.loads(text, parse_constant=_number, parse_float=_number, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    if opened > DEPTH:
        _shallow(found)
    return found


def _number(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise ValueError(f"{literal[:40]} is not a number that JSON knows")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name in found if sum(name == other for other, _ in pairs) > 1)
        raise ValueError(f"the key {twice[:40]!r} stands twice in one object")
    return found


def _shallow(value: object) -> None:
    """Refuse what is nested deeper than the code that goes through it can follow."""
    level, depth = [value], 0
    while level := [
        inner
        for outer in level
        for inner in (outer.values() if isinstance(outer, dict) else outer)  # type: ignore[attr-defined]
        if isinstance(inner, (dict, list))
    ]:
        depth += 1
        if depth > DEPTH:
            raise ValueError(TOO_DEEP)


def dumps(value: object, **options: Any) -> bytes:
    """Values to UTF-8 JSON text, escaped only where it must be; NaN is refused.

    Raises:
        BadInput: a value that JSON does not know.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, **options)
    except (ValueError, TypeError) as error:
        raise BadInput(f"this cannot be written as JSON: {error}", remedy="Leave NaN and infinity out.") from None
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(value, allow_nan=False, **options).encode()


def whole_text(text: str) -> str:
    """Text for formats of strict UTF-8: a question mark in the place of each lone surrogate."""
    return text.encode("utf-8", "replace").decode()


def brief(value: object) -> str:
    """A value as errors quote it: on one line, without control characters, and short."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def lines(path: Path, long: Callable[[int], object] | None = None) -> Iterator[tuple[int, bytes]]:
    """Numbered lines that are not blank, of a text file or a gzipped one.

    Args:
        long: is told the number of each line that is too long, which is then passed over.

    Raises:
        BadInput: it cannot be opened. BadRecord: it breaks off, has too long a line, or unpacks to too much.
    """
    number = 0
    try:
        budget = Budget(path)
        with _opened(path) as file:
            while line := file.readline(LINE + 1):
                number += 1
                if number == 1:
                    line = _unmarked(path, line)
                if path.suffix in PACKED:
                    budget.spend(len(line))
                if len(line) > LINE:
                    if long is None:
                        raise BadRecord(f"{path.name}:{number}: a line of more than {LINE >> 20} MiB", remedy=SHORTER)
                    long(number)
                    while not line.endswith(b"\n") and (line := file.readline(1 << 20)):
                        if path.suffix in PACKED:
                            budget.spend(len(line))
                    continue
                if not line.isspace():
                    yield number, line
    except _damages() as error:
        remedy = "The file is damaged or was not copied whole."
        raise BadRecord(f"{path.name}:{number + 1}: {error}", remedy=remedy) from error
    except OSError as error:
        raise unusable(path, error) from error


def _opened(path: Path) -> IO[bytes]:
    """A file open for reading, its content unpacked.

    Raises:
        BadInput: it is compressed by Zstandard, and the package for that is not installed. OSError: as ``open``.
    """
    if path.suffix == ".gz":
        return io.BufferedReader(gzip.open(path))
    if path.suffix != ".zst":
        return open(path, "rb")
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError:
        remedy = f"Install the package zstandard, or unpack the file: zstd -d {quoted(str(path))}"
        raise BadInput(f"{path.name} is compressed by Zstandard", remedy=remedy) from None
    return io.BufferedReader(_Unpacked(path, zstandard.ZstdDecompressor(max_window_size=WINDOW).decompressobj))


class _Unpacked(io.RawIOBase):
    """A file of Zstandard's frames as it unpacks; one that breaks off raises EOFError, as one of gzip's does."""

    def __init__(self, path: Path, frame: Callable[[], Any]) -> None:
        self._file, self._frame = path.open("rb"), frame  # closed by ``close``
        self._now: Any = None  # the frame that is being read
        self._left = self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            piece, self._left = self._left or self._file.read(PIECE), b""
            if not piece and self._now is not None:
                raise EOFError("the file breaks off")
            if not piece:
                return 0
            self._now = self._now or self._frame()
            self._ready = self._now.decompress(piece)
            if self._now.eof:
                self._left, self._now = self._now.unused_data, None
        taken = self._ready[: len(buffer)]
        buffer[: len(taken)] = taken
        self._ready = self._ready[len(taken) :]
        return len(taken)

    def close(self) -> None:
        self._file.close()
        super().close()


def _damages() -> tuple[type[BaseException], ...]:
    """What a damaged compressed file raises."""
    known, zstandard = (EOFError, zlib.error, gzip.BadGzipFile), sys.modules.get("zstandard")
    return known if zstandard is None else (*known, zstandard.ZstdError)


def _unmarked(path: Path, text: bytes) -> bytes:
    """The beginning of a text without a byte order mark.

    Raises:
        BadRecord: the mark is that of UTF-16.
    """
    if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise BadRecord(f"{path.name} is saved as UTF-16", remedy="Save it as UTF-8.")
    return text.removeprefix(codecs.BOM_UTF8)


class Skipped(BadRecord):
    """A line that is left out of a record which can do without it; the rest is imported."""


def head(path: Path, size: int) -> bytes:
    """How a file begins, compressed or not; nothing of one that is not compressed though it is called so.

    Raises:
        BadInput: it cannot be opened.
    """
    try:
        with _opened(path) as file:
            return file.read(size).removeprefix(codecs.BOM_UTF8)
    except _damages():
        return b""
    except OSError as error:
        raise unusable(path, error) from error


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of text that are not blank, without their ends.

    Raises:
        BadInput: it cannot be opened. BadRecord: it is not UTF-8, breaks off, or is too large.
    """
    for number, line in lines(path):
        try:
            yield number, line.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            remedy = "Give a text file, saved as UTF-8."
            raise BadRecord(f"{path.name}:{number} is no text: {error.reason}", remedy=remedy) from error


def whole(path: Path) -> bytes:
    """All of a file that holds one document.

    Raises:
        BadInput: it cannot be opened. BadRecord: it is too large.
    """
    try:
        with open(path, "rb") as file:
            text = file.read(LINE + 1)
    except OSError as error:
        raise unusable(path, error) from error
    if len(text) > LINE:
        raise BadRecord(f"{path.name}: a document of more than {LINE >> 20} MiB", remedy=SHORTER)
    return _unmarked(path, text)


class Budget:
    """How much a compressed file may unpack to: ``UNPACKED`` bytes, or ``RATIO`` times its own size if that is more."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = self.left = max(UNPACKED, RATIO * path.stat().st_size)

    def spend(self, count: int) -> None:
        """Count bytes that were unpacked, or are about to be.

        Raises:
            BadRecord: they are too many.
        """
        self.left -= count
        if self.left < 0:
            raise BadRecord(
                f"{self.path.name}: unpacks to more than {self.size >> 20} MiB, over {RATIO} times its size",
                remedy="If you trust the file, unpack it or split it first.",
            )


def unusable(path: Path, error: OSError) -> BadInput:
    return BadInput(f"{path}: {error.strerror or error}", remedy="Check the path and the rights on it.")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside ``path`` to write to, which takes its place at the end; nothing is left of one that failed.

    Raises:
        BadInput: it cannot be written.
    """
    beside = path.with_name(f".{path.stem}.{os.getpid()}{''.join(path.suffixes[-2:])}")
    try:
        yield beside
        os.replace(beside, path)
    except OSError as error:
        raise unusable(path, error) from error
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """As ``replacing``, open for writing, gzipped where the name says so. Equal content gives equal bytes.

    Raises:
        BadInput: it cannot be written; Zstandard is read alone.
    """
    if path.suffix == ".zst":
        raise BadInput(f"{path.name}: Zstandard is read, not written", remedy="Write a .jsonl or a .jsonl.gz file.")
    with replacing(path) as beside, open(beside, "wb") as raw:
        if path.suffix == ".gz":
            with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
                yield file
        else:
            yield raw
