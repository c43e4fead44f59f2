"""What is kept of a file's content: its words by chunk, the names it defines, and what it imports.

The index makes digests, the ranking reads them. A chunk is a run of lines with the same innermost function or class, at
most ``LONGEST`` lines. Python is read by ``ast``, other languages by tree-sitter, anything else in windows of lines.
Chunks of a file must never overlap: a file's words are the sum of its chunks' words.
"""

from __future__ import annotations

import ast
import functools
import itertools
import json
import re
import struct
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clew.coding.repository.languages import GRAMMARS, parser

VERSION = 3
HEAD = struct.Struct("<5I")  # lines, chunks, entries, bytes of either JSON
LONGEST = 200  # lines of a chunk
WINDOW = 60  # lines of a chunk of plain text
LETTER = "A-Za-z_\u00c0-\u052f"  # Latin, Greek, Cyrillic: scripts that identifiers are commonly written in
WORD = re.compile(rf"[{LETTER}][{LETTER}0-9]*|[^\W\d{LETTER}]+")
PART = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
OTHER_PART = re.compile(r"[^\W\d_]+|\d+")
UNSPACED = "\u2e80"  # scripts from here on, as Chinese and Japanese, write no spaces between words
IMPORTS = {
    "javascript": re.compile(r"""(?:\bfrom|\brequire\(|\bimport\(?)\s*['"]([^'"\n]+)['"]"""),
    "go": re.compile(r"""^\s*(?:import\s+)?(?:[\w.]+\s+)?"([\w./-]+)"\s*$""", re.MULTILINE),
    "java": re.compile(r"^\s*import\s+(?:static\s+)?([\w.]+)", re.MULTILINE),
    "c": re.compile(r"""^\s*#\s*include\s*["<]([^">\n]+)[">]""", re.MULTILINE),
    "rust": re.compile(r"^\s*(?:pub\s+)?(?:use|mod)\s+([\w:]+)", re.MULTILINE),
}
IMPORTS |= {"typescript": IMPORTS["javascript"], "tsx": IMPORTS["javascript"], "cpp": IMPORTS["c"]}
U32 = npt.NDArray[np.uint32]


class Chunk(NamedTuple):
    """Lines ``start`` to ``end`` (from 1, inclusive); ``name`` is the dotted name, empty outside of any definition."""

    start: int
    end: int
    name: str


class Digest:
    """What is kept of one file, as the bytes it is kept in: a query needs the numbers of every file, but chunks and
    definitions of few, which are read when asked for.

    Attributes:
        lines: of the file. size: how many chunks it has. imports: as written, dots of relative Python imports kept.
        entries: (n, 3): term, chunk, count. lengths: words of each chunk.
    """

    __slots__ = ("_spans", "entries", "imports", "lengths", "lines", "packed", "size")

    def __init__(self, packed: bytes) -> None:
        """Raises ValueError where ``packed`` is no digest."""
        try:
            self.lines, self.size, n, first, second = HEAD.unpack_from(packed)
            at = HEAD.size
            self.entries: U32 = np.frombuffer(packed, np.uint32, 3 * n, at).reshape(3, n).T
            self.lengths: U32 = np.frombuffer(packed, np.uint32, self.size, at := at + 12 * n)
            self.imports: tuple[str, ...] = tuple(json.loads(packed[(at := at + 4 * self.size) : (at := at + first)]))
        except struct.error as error:
            raise ValueError(str(error)) from None
        if at + second != len(packed):
            raise ValueError(f"a digest of {len(packed)} bytes, not {at + second}")
        self.packed, self._spans = packed, at

    @classmethod
    def of(
        cls, lines: int, chunks: Sequence[Chunk], defines: Sequence[tuple[str, int]], imports: Sequence[str],
        entries: U32,
    ) -> Digest:  # fmt: skip
        """Pack one; ``entries`` as (3, n)."""
        lengths = np.bincount(entries[1], entries[2], len(chunks)).astype(np.uint32)
        first, second = (json.dumps(value).encode() for value in (imports, [chunks, defines]))
        head = HEAD.pack(lines, len(chunks), entries.shape[1], len(first), len(second))
        return cls(b"".join((head, entries.tobytes(), lengths.tobytes(), first, second)))

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        return tuple(map(Chunk._make, json.loads(self.packed[self._spans :])[0]))

    @property
    def defines(self) -> tuple[tuple[str, int], ...]:
        """Names with the lines their definitions start at."""
        return tuple(map(tuple, json.loads(self.packed[self._spans :])[1]))


def term(word: str) -> int:
    """A word as a number: CRC-32. Two words of a repository fall together with a chance below 1e-4 per query word."""
    return zlib.crc32(word.encode())


@functools.lru_cache(maxsize=1 << 18)
def terms(identifier: str) -> tuple[int, ...]:
    """The terms of an identifier: itself in lower case (marked by ``=``), and its parts of two letters or more."""
    return (term("=" + identifier.lower()), *map(term, parts(identifier)))


def parts(identifier: str) -> list[str]:
    """``parseHTTPHeader_value`` -> parse, http, header, value; ``getURLs`` -> get, url. A run of a script without
    spaces gives its pairs of characters."""
    if identifier.isascii():
        return [stem(p if p.islower() else _lower(p)) for p in PART.findall(identifier) if len(p) > 1]
    if identifier[0] >= UNSPACED:
        return [identifier[k : k + 2] for k in range(max(len(identifier) - 1, 1))]
    return [stem(p.lower()) for p in OTHER_PART.findall(identifier) if len(p) > 1]


def _lower(part: str) -> str:
    """In lower case; of an acronym's plural (``URLs``) the acronym."""
    return part[:-1].lower() if len(part) > 2 and part[-1] == "s" and part[:-1].isupper() else part.lower()


def stem(word: str) -> str:
    """A light stem, so that prose meets code: crashes, crashed and crashing are crash."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 4 and not word.endswith("ss"):
            return word[: -len(ending)]
    return word


def digest(content: bytes, read_as: str) -> Digest:
    """Read one file.

    Args:
        read_as: ``python``, a language of ``GRAMMARS`` whose grammar is installed, or ``text``.
    """
    if b"\0" in content[:8192]:
        return Digest.of(0, (), (), (), np.zeros((3, 0), np.uint32))
    text = content.decode("utf-8", "replace")
    lines = text.split("\n")
    spans: list[tuple[int, int, str]] = []
    imports: tuple[str, ...] = ()
    if read_as == "python":
        spans, imports = _python(text)
    elif read_as in GRAMMARS:
        spans = list(_tree_sitter(content, read_as))
    if read_as in IMPORTS:
        imports = tuple(dict.fromkeys(IMPORTS[read_as].findall(text)))
    count = len(lines) - (lines[-1] == "")
    chunks = _runs(count, spans, LONGEST if spans or read_as == "python" else WINDOW)
    kept: list[Chunk] = []
    columns: tuple[list[int], list[int], list[int]] = ([], [], [])
    for chunk in chunks:
        found: dict[int, int] = {}
        for word, n in Counter(WORD.findall("\n".join(lines[chunk.start - 1 : chunk.end]))).items():
            for t in terms(word):
                found[t] = found.get(t, 0) + n
        if found:
            for column, values in zip(columns, (found, [len(kept)] * len(found), found.values()), strict=True):
                column += values
            kept.append(chunk)
    defines = tuple((name.rpartition(".")[2], start) for start, _, name in spans)
    return Digest.of(count, kept, defines, imports, np.array(columns, np.uint32))


def _runs(count: int, spans: list[tuple[int, int, str]], longest: int) -> list[Chunk]:
    """Runs of lines with the same innermost span; ``spans`` come outer before inner."""
    owner = np.full(count + 1, -1, np.int64)
    for index, (start, end, _) in enumerate(spans):
        owner[start : end + 1] = index
    edges = [*(np.flatnonzero(np.diff(owner[1:])) + 2).tolist(), count + 1]
    out, start = [], 1
    for edge in edges:
        name = spans[owner[start]][2] if start <= count and owner[start] >= 0 else ""
        pieces = -(-(edge - start) // longest)
        bounds = [start + (edge - start) * k // pieces for k in range(pieces + 1)] if pieces else []
        out += [Chunk(a, b - 1, name) for a, b in itertools.pairwise(bounds)]
        start = edge
    return out


def _python(text: str) -> tuple[list[tuple[int, int, str]], tuple[str, ...]]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the code that is read, not of ours
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [], ()
    spans: list[tuple[int, int, str]] = []
    imports: dict[str, None] = {}
    todo: list[tuple[Any, str, bool]] = [(node, "", False) for node in reversed(tree.body)]
    while todo:  # statements only, in order; expressions define and import nothing
        node, outer, inside = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not inside:
            outer = f"{outer}.{node.name}" if outer else node.name
            start = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            spans.append((start, node.end_lineno or node.lineno, outer))
            inside = not isinstance(node, ast.ClassDef)
        elif isinstance(node, ast.Import):
            imports.update(dict.fromkeys(alias.name for alias in node.names))
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            imports[base] = None
            join = "" if base.endswith(".") or not base else "."
            imports.update(dict.fromkeys(f"{base}{join}{alias.name}" for alias in node.names))
        for field in ("finalbody", "orelse", "handlers", "cases", "body"):
            below = getattr(node, field, None)
            if isinstance(below, list):
                todo += [(child, outer, inside) for child in reversed(below)]
    return spans, tuple(imports)


def _tree_sitter(content: bytes, name: str) -> Iterator[tuple[int, int, str]]:
    found = parser(name)
    if found is None:
        return
    todo = [(found.parse(content).root_node, "")]
    defines = GRAMMARS[name].defines
    while todo:
        node, outer = todo.pop()
        if node.type in defines:
            called = node.child_by_field_name("name") or node.child_by_field_name("declarator")
            called = called or node.child_by_field_name("type")
            words = WORD.findall(called.text.decode("utf-8", "replace").partition("(")[0]) if called else []
            if words:
                outer = f"{outer}.{words[-1]}" if outer else words[-1]
                yield node.start_point[0] + 1, node.end_point[0] + 1, outer
        todo += [(child, outer) for child in reversed(node.named_children)]
