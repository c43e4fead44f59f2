"""Mutations of Python source as text edits, and a package of standard-library modules to seed them in.

Every edit has an inverse among the edits of what it makes, so that an agent that tries edits can repair it.
"""

import ast
import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MODULES = (
    "textwrap", "fractions", "heapq", "bisect", "shlex", "fnmatch", "graphlib", "colorsys", "calendar", "difflib",
    "configparser", "string", "reprlib", "pprint", "ipaddress", "posixpath", "genericpath", "statistics", "mimetypes",
    "base64", "quopri", "copy", "csv", "gettext", "netrc",
)  # fmt: skip
COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
BINARY: dict[type[ast.operator], tuple[str, str]] = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "//"),
                                                     ast.FloorDiv: ("//", "*")}  # fmt: skip


class Change(NamedTuple):
    """Replace what lies between two offsets of a source, on a line (from 1)."""

    line: int
    start: int
    end: int
    new: str

    def apply(self, source: str) -> str:
        return source[: self.start] + self.new + source[self.end :]


def changes(source: str) -> list[Change]:
    """All single edits of a source: comparison, arithmetic, and/or, whole numbers by one, True/False; by position."""
    starts = [0]
    for line in source.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    ascii_only = source if source.isascii() else None
    if ascii_only is None:
        return []  # offsets of ast are in bytes

    def at(line: int, column: int) -> int:
        return starts[line - 1] + column

    return sorted(set(_changes(ast.parse(source), source, at)), key=lambda c: (c.start, c.new))


def _changes(tree: ast.AST, source: str, at: object) -> Iterator[Change]:
    place = at
    assert callable(place)
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
                yield from _between(left, right, source, place, COMPARE[type(op)], None)
        elif isinstance(node, ast.BinOp) and type(node.op) in BINARY:
            old, new = BINARY[type(node.op)]
            yield from _between(node.left, node.right, source, place, new, old)
        elif isinstance(node, ast.BoolOp):
            old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from _between(left, right, source, place, new, old)
        elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
            start, end = place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)
            if type(node.value) is bool:
                yield Change(node.lineno, start, end, str(not node.value))
            elif source[start:end].isdigit():
                yield Change(node.lineno, start, end, str(node.value + 1))
                if node.value:
                    yield Change(node.lineno, start, end, str(node.value - 1))


def _between(
    left: ast.expr, right: ast.expr, source: str, place: object, new: str, old: str | None
) -> Iterator[Change]:
    """The operator between two operands, where nothing but blanks and brackets is beside it."""
    assert callable(place)
    start, end = place(left.end_lineno, left.end_col_offset), place(right.lineno, right.col_offset)
    gap = source[start:end]
    token = gap.strip("() \t\n\\")
    if not token or "#" in gap or "\n" in token or (old is not None and token != old):
        return
    offset = start + gap.index(token)
    yield Change(source.count("\n", 0, offset) + 1, offset, offset + len(token), new)


@functools.cache
def sources() -> dict[str, str]:
    """Module name -> source, of those modules that lie here as one ASCII file and whose tests are installed."""
    out = {}
    for name in MODULES:
        found, tests = importlib.util.find_spec(name), importlib.util.find_spec(f"test.test_{name}")
        if found and found.origin and found.origin.endswith(".py") and tests:
            source = Path(found.origin).read_text()
            if source.isascii():
                out[name] = source
    return out
