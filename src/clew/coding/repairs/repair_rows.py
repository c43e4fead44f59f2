"""Rows of tasks of repairs: SWE-bench's fields, in a file of JSON lines or one JSON list, read with bounds.

``Repairs`` asks here what a file says, ``clew repairs`` writes such rows. A row's patches and names of tests are judge
material: nothing of them but the problem statement may come into a task, or into the files that it begins with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clew.core.errors import BadInput

LONGEST = 64 << 20  # bytes of a row
MOST = 1 << 30  # bytes of a file
FIELDS = ("instance_id", "repo", "base_commit", "problem_statement", "FAIL_TO_PASS", "PASS_TO_PASS")
COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
TARGET = re.compile(r"(?:---|\+\+\+|rename (?:from|to)) (?:\"?[ab]/)?([^\t\r\n]+)")
BOTH = re.compile(r"diff --git a/(.+) b/\1$")
HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class Row:
    """A task of fixing a repository, with what judges it.

    patch: the reference solution, empty where there is none. test_patch: brings the tests that judge, laid over the
    base commit. bug_patch: laid over the base commit before the task begins; what mutation broke. fail_to_pass,
    pass_to_pass: names of tests, as pytest gives them. test_command: how the tests are run; empty for the default.
    clone: a local repository that holds the commit. split: train, eval or test; empty where the row does not say.
    """

    instance_id: str
    repo: str
    base_commit: str
    problem_statement: str
    patch: str = ""
    test_patch: str = ""
    bug_patch: str = ""
    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()
    test_command: str = ""
    clone: str = ""
    split: str = ""

    @property
    def refused(self) -> str:
        """Why the row cannot be judged here; empty where it can."""
        if not self.fail_to_pass:
            return "it names no test that has to pass"
        strange = next((name for name in (*self.fail_to_pass, *self.pass_to_pass) if "::" not in name), None)
        if strange is not None:
            return f"it names tests as another runner than pytest does ({strange[:60]!r})"
        return "" if COMMIT.fullmatch(self.base_commit) else "its base_commit is no full commit id"

    def written(self) -> str:
        """The row as a line of JSON, in SWE-bench's fields; those of our own that are empty are left out."""
        told = asdict(self)
        told |= {"FAIL_TO_PASS": told.pop("fail_to_pass"), "PASS_TO_PASS": told.pop("pass_to_pass")}
        own = ("bug_patch", "test_command", "clone", "split")
        return json.dumps({k: v for k, v in told.items() if v or k not in own}, ensure_ascii=False)


def row_of(told: Mapping[str, Any], where: str) -> Row:
    """The row that an object of SWE-bench's fields says; others are left alone.

    Raises:
        BadInput: a field is missing, or is of another kind.
    """
    if lacks := [name for name in FIELDS if name not in told]:
        raise BadInput(f"{where} lacks the field {lacks[0]}", remedy=f"Rows have the fields {', '.join(FIELDS)}.")
    kept: dict[str, Any] = {}
    for name in Row.__dataclass_fields__:
        value = told.get(name, told.get(name.upper(), ""))
        kept[name] = _names(value, where, name.upper()) if name.endswith("_to_pass") else value or ""
        if not isinstance(kept[name], (str, tuple)):
            raise BadInput(f"{where}: {name} is no text", remedy="Write it as a JSON string.")
    row = Row(**kept)
    if not re.fullmatch(r"[\w.,:@#+-][\w.,:@#+/ -]{0,199}", row.instance_id) or not row.problem_statement.strip():
        told_of = (
            "instance_id is empty, long or has odd letters" if row.problem_statement.strip() else "nothing is said"
        )
        raise BadInput(f"{where}: {told_of}", remedy="Give each row an id and a problem_statement.")
    return row


def _names(value: object, where: str, field: str) -> tuple[str, ...]:
    """A list of names, written as a list or as JSON of one."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else []
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise BadInput(f"{where}: {field} is no list of names", remedy='Write it as ["tests/test_x.py::test_a", ...].')
    return tuple(dict.fromkeys(value))


def rows_in(path: Path) -> list[Row]:
    """The rows of a file.

    Raises:
        BadInput: there is no such file, it is no JSON, a row lacks a field, or two have one id.
    """
    found: dict[str, Row] = {}
    for number, told in _objects(path):
        row = row_of(told, f"{path.name}, row {number}")
        if row.instance_id in found:
            raise BadInput(f"{path.name}: two rows are called {row.instance_id}", remedy="Give each an instance_id.")
        found[row.instance_id] = row
    if not found:
        raise BadInput(f"{path} holds no row", remedy=f"Rows have the fields {', '.join(FIELDS)}.")
    return list(found.values())


def are_repairs(path: Path) -> bool:
    """Whether a file's first row has SWE-bench's fields; false of what cannot be read."""
    if path.suffix not in (".jsonl", ".json", ".ndjson") or not path.is_file():
        return False
    try:
        _, first = next(_objects(path))
    except (BadInput, StopIteration):
        return False
    return all(name in first for name in FIELDS)


def _objects(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Every object of a file with its number, from 1."""
    try:
        if path.stat().st_size > MOST:
            raise BadInput(f"{path} has more than {MOST >> 30} GiB", remedy="Cut it into files.")
        with path.open("rb") as file:
            start = file.read(1)
            file.seek(0)
            if start == b"[":
                yield from enumerate(_parsed(file.read(), path, 1, list), 1)
                return
            number = 0
            while line := file.readline(LONGEST):
                if line.strip():
                    number += 1
                    yield number, _parsed(line, path, number, dict)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}", remedy="Name a file of JSON lines.") from None


def _parsed(data: bytes, path: Path, number: int, kind: type) -> Any:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, kind) or (isinstance(found, list) and not all(isinstance(one, dict) for one in found)):
        raise BadInput(f"{path.name}, row {number} is no JSON object", remedy="Write one object in each line.")
    return found


def paths_of(patch: str) -> set[str]:
    """The paths that a patch changes, before and after."""
    found, old, new = set[str](), 0, 0
    for line in patch.split("\n"):
        if old > 0 or new > 0:
            old, new = old - (line[:1] in ("-", " ", "")), new - (line[:1] in ("+", " ", ""))
        elif hunk := HUNK.match(line):
            old, new = (int(count) if count is not None else 1 for count in hunk.groups())
        elif one := TARGET.match(line):
            found.add(one[1].strip('"'))
        elif both := BOTH.match(line):  # a binary file, or a mode alone
            found.add(both[1])
    return found - {"/dev/null"}


def files_of(names: Sequence[str]) -> list[str]:
    """The files of tests by name, in order."""
    return list(dict.fromkeys(name.partition("::")[0] for name in names))


def in_source(name: str) -> bool:
    """Whether a test is an example in a module's own docstrings, which whoever changes the module changes too."""
    path, _, inner = name.partition("::")
    return path.endswith(".py") and "." in inner.partition("[")[0]
