"""Stack traces in a bug report: their frames, and which of them lie in the repository.

The ranking reads them. A trace is read as text, line by line, by fixed patterns; nothing of it is run or opened. A
frame that could be of several files, or of the reporter's own program, must never be counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

FRAMES = 400  # of a report that are read
WIDTH = 1000  # characters of a line that are read
GAP = 16  # lines between two frames of one trace: IPython shows the source around each
ROOTS = frozenset({"src", "lib", "source", "main", "java", "site-packages", "dist-packages"})
_PY = r"(?:pyx|pyi|py)"
_JS = r"(?:[cm]?[jt]sx?)"
PATTERNS = {
    "python": (
        re.compile(r'File "(?P<path>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>[\w.<>]+))?'),
        re.compile(rf'File (?P<path>[^\s"]+\.{_PY}):(?P<line>\d+)(?:, in (?P<name>[\w.<>]+))?'),  # IPython 8
        re.compile(rf"^(?P<path>[^\s\"']+\.{_PY})c? in (?P<name>[\w.<>]+)\("),  # IPython before; an arrow has the line
        re.compile(rf"^(?P<path>[^\s\"':]+\.{_PY}):(?P<line>\d+): (?:in (?P<name>[\w.<>]+)|\w*(?:Error|Exception)\b)"),
    ),
    "java": (re.compile(r"\bat (?P<name>[\w.$@/<>-]+)\((?P<path>\w+\.(?:java|kt|scala|groovy)):(?P<line>\d+)\)"),),
    "rust": (
        re.compile(r"panicked at (?:.*, )?(?P<path>[^\s',]+\.rs):(?P<line>\d+):\d+"),
        re.compile(r"^\s*at (?P<path>\S+\.rs):(?P<line>\d+)(?::\d+)?\s*$"),
    ),
    "javascript": (
        re.compile(rf"\bat (?P<name>[^()]{{1,200}}) \((?P<path>[^()]+\.{_JS}):(?P<line>\d+):\d+\)"),
        re.compile(rf"\bat (?:async )?(?P<path>[^\s()]+\.{_JS}):(?P<line>\d+):\d+"),
        re.compile(rf"^\s*(?P<name>[\w$./<]*)@(?P<path>\S+\.{_JS})(?:\?\S*)?:(?P<line>\d+):\d+"),  # Firefox, Safari
    ),
    "go": (re.compile(r"^\s*(?P<path>\S+\.go):(?P<line>\d+)(?: \+0x[0-9a-f]+)?\s*$"),),
}
ABOVE = {  # where the function is named on the line above its file's
    "go": re.compile(r"^(?:created by )?(?P<name>[\w./*()-]+?)(?:\([^()]*\))?(?: in goroutine \d+)?\s*$"),
    "rust": re.compile(r"^\s*\d+:\s+(?:0x[0-9a-f]+ - )?(?P<name>\S.*)$"),
}
ARROW = re.compile(r"^\s*-+> ?(\d+)\b")
BEGIN = re.compile(r"Traceback \(most recent call last\)|^\s*Caused by:|Exception in thread|^goroutine \d|panicked at")


class Frame(NamedTuple):
    """One call of a trace; ``line`` is 0 and ``name`` empty where the trace does not tell them. ``at`` is the frame's
    own line in the report, from 0."""

    path: str
    line: int
    name: str
    at: int


class Spot(NamedTuple):
    """A frame that lies in the repository. ``depth``: how many files of the repository its trace has inside of it: 0
    where the trace ends. ``entry``: it is the outermost of its trace, where the caller's program came in."""

    path: str
    line: int
    name: str
    depth: int
    entry: bool


def traces(report: str) -> list[tuple[Frame, ...]]:
    """The stack traces of a report in its order, the frames of each innermost first."""
    out: list[tuple[Frame, ...]] = []
    held: list[Frame] = []
    kind, before, read = "", "", 0

    def close() -> None:
        if held:  # Python alone writes the innermost last
            out.append(tuple(reversed(held) if kind == "python" else held))
        held.clear()

    for number, raw in enumerate(report.splitlines()):
        line = raw[:WIDTH]
        language, frame = _frame(line, before, number)
        arrow = ARROW.match(line)
        if BEGIN.search(line) or (held and number - held[-1].at > GAP) or (frame and language != kind):
            close()
        if frame:
            kind = language
            held.append(frame)
            read += 1
        elif arrow and held and not held[-1].line:
            held[-1] = held[-1]._replace(line=int(arrow[1][:9]))
        before = line
        if read == FRAMES:
            break
    close()
    return out


def _frame(line: str, before: str, number: int) -> tuple[str, Frame | None]:
    """The frame that a line names, and its language. ``before`` is the line above."""
    for language, patterns in PATTERNS.items():
        for pattern in patterns:
            if found := pattern.search(line):
                fields = found.groupdict()
                name = fields.get("name") or ""
                if not name and language in ABOVE and (above := ABOVE[language].match(before)):
                    name = above["name"]
                return language, Frame(fields["path"], int((fields.get("line") or "0")[:9]), name, number)
    return "", None


def spots(found: Iterable[Sequence[Frame]], paths: Sequence[str], defines: Mapping[str, frozenset[str]]) -> list[Spot]:
    """The frames that lie in the repository, of every trace the innermost first.

    Args:
        paths: the files that count. defines: the names that each defines; they decide where the path alone does not.
    """
    ends = by_name(paths)
    out = []
    for frames in found:
        inside = [(path, frame) for frame in frames if (path := _file(frame, ends, defines)) is not None]
        order = list(dict.fromkeys(path for path, _ in inside))
        for k, (path, frame) in enumerate(inside):
            out.append(Spot(path, frame.line, own_name(frame.name), order.index(path), k == len(inside) - 1))
    return out


def by_name(paths: Iterable[str]) -> dict[str, list[str]]:
    """Paths by their last part."""
    out: dict[str, list[str]] = {}
    for path in paths:
        out.setdefault(path.rpartition("/")[2], []).append(path)
    return out


def nearest(told: str, ends: Mapping[str, Sequence[str]]) -> tuple[str, int]:
    """The one file whose path agrees longest with ``told`` from its end, and in how many parts; ("", 0) where there is
    none, or several."""
    parts = [p for p in told.replace("\\", "/").split("/") if p not in ("", ".", "..", "~")]
    common = {path: _common(parts, path.split("/")) for path in ends.get(parts[-1], ())} if parts else {}
    most = max(common.values(), default=0)
    best = [path for path, n in common.items() if n == most]
    return (best[0], most) if len(best) == 1 else ("", 0)


def _file(frame: Frame, ends: Mapping[str, Sequence[str]], defines: Mapping[str, frozenset[str]]) -> str | None:
    """The file of a frame: the nearest one, where that is more than chance."""
    told = frame.path
    if told.endswith((".java", ".kt", ".scala", ".groovy")) and "/" not in told:  # the package names the folder
        told = "/".join([*frame.name.rpartition("/")[2].partition("$")[0].split(".")[:-2], told])
    path, common = nearest(told, ends)
    if not path:
        return None
    own = path.split("/")
    while len(own) > 1 and own[0] in ROOTS:
        own = own[1:]
    whole = common >= len(own) > 1 or common >= 3
    return path if whole or own_name(frame.name) in defines.get(path, ()) else None


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """How many parts two paths share at their ends."""
    n = 0
    while n < min(len(a), len(b)) and a[-1 - n] == b[-1 - n]:
        n += 1
    return n


def own_name(name: str) -> str:
    """The function's own name: of ``Cart.add``, ``shop::Cart::add`` and ``(*Cart).add`` it is add."""
    words = re.findall(r"[\w$]+", re.sub(r"\{\{.*", "", name))
    return words[-1] if words else ""
