"""Reading a data file into rows: JSONL, JSON, Parquet, CSV, a saved Hugging Face folder, or an object at hand.

``Dataset`` calls it. A file is somebody else's: every line and every cell is bounded, and nothing in it is run.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from clew.core.errors import BadInput, BadRecord, need
from clew.exchange import files
from clew.exchange.parquet import rows_of

FORMS = "JSONL (.jsonl, .jsonl.gz), JSON (.json), Parquet (.parquet), CSV (.csv, .tsv) or a folder of `save_to_disk`"
SPLIT = "split"  # the column that says of which part of a DatasetDict a row is
LINES = (".jsonl", ".jsonl.gz", ".ndjson")
OBJECT = "<object>"


class Table(NamedTuple):
    """Rows with their numbers (from 1) in the file ``name``, and a digest of what was read (hex, 16 bytes)."""

    name: str
    rows: list[tuple[int, dict[str, Any]]]
    digest: str

    @property
    def columns(self) -> list[str]:
        """Names of all columns, in the order in which rows bring them."""
        return list(dict.fromkeys(name for _, row in self.rows for name in row))


def read(path: Path) -> Table:
    """All rows of a file or folder.

    Raises:
        BadInput: it cannot be opened, or is of no known form. BadRecord: a line or row is none; the error names it.
        MissingExtra: the package that reads this form is not installed.
    """
    if not path.exists():
        raise BadInput(f"there is no file {path}", remedy=f"Give a path as seen from {Path.cwd()}.")
    digest = digest_of(path)
    name = path.name.lower()
    if path.is_dir():
        found = _folder(path)
    elif name.endswith(LINES):
        found = _lines(path)
    elif name.endswith(".json"):
        found = _document(path)
    elif name.endswith(".parquet"):
        found = rows_of(path)
    elif name.endswith((".csv", ".tsv")):
        found = _cells(path, "\t" if name.endswith(".tsv") else ",")
    else:
        raise BadInput(f"{path.name} is of no form that is read here", remedy=f"Give {FORMS}.")
    return Table(path.name, _some(list(found), path.name), digest)


def held(rows: object) -> Table:
    """The rows of an object: a Dataset or DatasetDict of the package ``datasets``, or a list of mappings.

    Raises:
        BadInput: it is none of these, or holds no row.
    """
    found = _some(list(_held(rows)), "the data")
    text = "\n".join(json.dumps(row, sort_keys=True, default=str) for _, row in found)
    return Table(OBJECT, found, hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest())


def digest_of(path: Path) -> str:
    """A digest of a file's bytes, or of the names and bytes of all files in a folder (hex, 16 bytes).

    Raises:
        BadInput: it cannot be read.
    """
    found = hashlib.blake2b(digest_size=16)
    inside = sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith((".", "cache-", "tmp")))
    for one in inside if path.is_dir() else [path]:
        if one != path:
            found.update(one.relative_to(path).as_posix().encode() + b"\0")
        try:
            with open(one, "rb") as file:
                while piece := file.read(1 << 20):
                    found.update(piece)
        except OSError as error:
            raise files.unusable(one, error) from error
    return found.hexdigest()


def _some(rows: list[tuple[int, dict[str, Any]]], name: str) -> list[tuple[int, dict[str, Any]]]:
    if not rows:
        raise BadInput(f"{name} holds no row", remedy="Give a file with at least one row.")
    return rows


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in files.lines(path):
        try:
            row = files.loads(line)
        except ValueError as error:
            remedy = "Mend the line, or leave it out: each line is one JSON object."
            raise BadRecord(f"{path.name}:{number} is not JSON: {str(error)[:200]}", remedy=remedy) from error
        yield number, _row(row, f"{path.name}:{number}")


def _document(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        rows = files.loads(files.whole(path))
    except ValueError as error:
        remedy = "Give an array of objects, or one object a line in a file named .jsonl."
        raise BadRecord(f"{path.name} is not JSON: {str(error)[:200]}", remedy=remedy) from error
    if not isinstance(rows, list):
        raise BadRecord(f"{path.name} is no array of rows", remedy="Give an array of objects, or JSONL.")
    for number, row in enumerate(rows, 1):
        yield number, _row(row, f"{path.name}, row {number}")


def _row(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        said = f"{where} is {files.brief(value)}, not an object"
        raise BadRecord(said, remedy='Write each row as an object: {"question": "...", "answer": "..."}.')
    return value


def _cells(path: Path, delimiter: str) -> Iterator[tuple[int, dict[str, Any]]]:
    before = csv.field_size_limit(files.LINE)
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(_bounded(file, path), delimiter=delimiter, strict=True)
            names = next(rows, [])
            if len(set(names)) < len(names) or not all(names):
                raise BadRecord(f"{path.name}:1: columns are {names}", remedy="Give each column a name of its own.")
            for cells in rows:
                if len(cells) not in (0, len(names)):
                    said = f"{path.name}:{rows.line_num} has {len(cells)} cells, the first line {len(names)}"
                    raise BadRecord(said, remedy="Put cells that hold a comma or a line break between double quotes.")
                if cells:
                    yield rows.line_num, dict(zip(names, cells, strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise BadRecord(f"{path.name}: {error}", remedy="Give a CSV file with a header, saved as UTF-8.") from error
    except OSError as error:
        raise files.unusable(path, error) from error
    finally:
        csv.field_size_limit(before)


def _bounded(file: TextIO, path: Path) -> Iterator[str]:
    number = 0
    while line := file.readline(files.LINE + 1):
        number += 1
        if len(line) > files.LINE:
            said = f"{path.name}:{number}: a line of more than {files.LINE >> 20} MiB"
            raise BadRecord(said, remedy=files.SHORTER)
        yield line


def _folder(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if not any((path / name).is_file() for name in ("state.json", "dataset_dict.json")):
        remedy = f"Give {FORMS}, or name one file in it."
        raise BadInput(f"{path} is no folder that `datasets` saved", remedy=remedy)
    try:
        return iter(list(_held(need("datasets", "data").load_from_disk(str(path)))))
    except (OSError, ValueError, TypeError, KeyError) as error:
        said = " ".join(str(error).split())[:200]
        raise BadRecord(f"{path} cannot be loaded: {said}", remedy="Save it again with save_to_disk.") from error


def _held(rows: object) -> Iterator[tuple[int, dict[str, Any]]]:
    remedy = "Give a path, a Dataset of `datasets`, or a list of mappings."
    if isinstance(rows, Mapping) and rows and all(hasattr(part, "column_names") for part in rows.values()):
        count = 0
        for name, part in rows.items():
            for row in part:
                count += 1
                yield count, {SPLIT: str(name), **row}
        return
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise BadInput(f"{type(rows).__name__} is no table of rows", remedy=remedy)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise BadInput(f"row {number} is {files.brief(row)}, not a mapping", remedy=remedy)
        yield number, dict(row)
