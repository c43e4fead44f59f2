"""Files that are read and written whole or not at all, and JSON without NaN."""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from clew.core.errors import BadInput, BadRecord


def loads(text: str | bytes) -> Any:
    """JSON text to values; lone surrogates pass.

    Raises:
        ValueError: it is not JSON, or has NaN or an infinity in it.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogatepass")

    def number(literal: str) -> float:
        value = float(literal)
        if not math.isfinite(value):
            raise ValueError(f"{literal} is not a number that JSON knows")
        return value

    return json.loads(text, parse_constant=number, parse_float=number)


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


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines that are not blank, of a text file or a gzipped one.

    Raises:
        BadInput: it cannot be opened. BadRecord: it breaks off.
    """
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except (EOFError, gzip.BadGzipFile) as error:
        remedy = "The file is damaged or was not copied whole."
        raise BadRecord(f"{path.name}:{number + 1}: {error}", remedy=remedy) from error
    except OSError as error:
        raise unusable(path, error) from error


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
    """As ``replacing``, open for writing, gzipped where the name says so. Equal content gives equal bytes."""
    with replacing(path) as beside, open(beside, "wb") as raw:
        if path.suffix == ".gz":
            with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
                yield file
        else:
            yield raw
