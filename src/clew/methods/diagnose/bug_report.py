"""What a bug report says: its words, the names in it, the files it mentions, its stack traces.

The ranking reads it. A report is what anybody may write: at most ``LONGEST`` characters, ``WORDS`` words and ``NAMES``
names of it are read. Nothing in it may be taken for an instruction.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from clew.coding.repository.digest import LETTER, WORD, parts
from clew.coding.repository.languages import word_set
from clew.methods.diagnose.traces import Frame, traces

LONGEST = 200_000  # characters
WORDS, NAMES = 400, 200
TOKEN = 300  # characters without a space: more is an encoded blob, and costs patterns the square of its length
TITLE = 2.0  # what is added to the weight of a word for being in the title, the first line
STOP = word_set("""
    the and for that this with from not are was were has have had but when where which what how why its can could
    should would will did does done been being there their they them than then now also only into onto over such
    some any all each other more most very just like use used using user users see one two if in is it of on or to
    as at be by an we you do no so py fix fixed bug issue error
""")
UNBROKEN = re.compile(r"[!-~]+")
QUOTED = re.compile(r"``?([^`\n]+)``?")
OPTION = re.compile(r"(?<![\w-])--?([A-Za-z][A-Za-z0-9_-]+)")
_NAME, _START = f"[{LETTER}][{LETTER}0-9]*", f"(?<![{LETTER}0-9])"  # \b is no edge between Latin and Chinese
DOTTED = re.compile(rf"{_START}{_NAME}(?:\.{_NAME})+")
NAMED = re.compile(
    rf"{_START}(?:[A-Za-z]+_\w+|_\w+|[A-Z]+[a-z0-9]+[A-Z]\w*|[a-z]+[A-Z]\w*|[A-Z][a-z]+(?=Error|Warning)\w+)", re.ASCII
)
CALLED = re.compile(rf"{_START}({_NAME})\(")
FILE = re.compile(r"[\w./\\-]+\.(?:pyx?|[cm]?[jt]sx?|go|java|kt|rs|cc|cpp|hpp|[ch])(?![\w.])", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)
class BugReport:
    """A report, read.

    Attributes:
        prose: its sub-words without stop words, stemmed, each once. names: what it names in code. Lines of a stack
            trace and comments of a template are left out of both.
        weight: of each of ``prose`` and then ``names``: 1 + ln of how often it is said, three times that where the
            title has it.
        files: what looks like the path or name of a source file. traces: its stack traces.
    """

    prose: tuple[str, ...]
    names: tuple[str, ...]
    weight: npt.NDArray[np.float64]
    files: tuple[str, ...]
    traces: tuple[tuple[Frame, ...], ...]

    @classmethod
    def of(cls, report: str) -> BugReport:
        report = UNBROKEN.sub(lambda run: run[0][:TOKEN], report[:LONGEST])
        found = traces(report)
        framed = {frame.at for frames in found for frame in frames}
        text = "".join(_uncommented("\n".join(_told(report.splitlines(), framed))))
        title = text.lstrip().partition("\n")[0]
        prose, names = words(text)[:WORDS], identifiers(text)[:NAMES]
        often = Counter(p for w in _kept(text) for p in parts(w))
        said = np.array([max(often[w], 1) for w in prose] + [1] * len(names), np.float64)
        first = {*words(title), *(name.lower() for name in identifiers(title))}
        titled = np.array([w in first for w in prose] + [n.lower() in first for n in names], np.float64)
        weight = (1 + np.log(said)) * (1 + TITLE * titled)
        files = dict.fromkeys(FILE.findall(text))
        return cls(tuple(prose), tuple(names), weight, tuple(files)[:NAMES], tuple(found))


def _told(lines: Sequence[str], framed: Set[int]) -> Iterator[str]:
    """The lines that are no frames of a trace, nor the code that Python shows below a frame, further in."""
    for k, line in enumerate(lines):
        below = k - 1 in framed and _indent(line) > _indent(lines[k - 1])
        if k not in framed and not below:
            yield line


def _uncommented(text: str) -> Iterator[str]:
    """What is outside of HTML comments, in which a template speaks to the reporter. One that never ends is none."""
    at = 0
    while (begin := text.find("<!--", at)) >= 0 and (end := text.find("-->", begin)) >= 0:
        yield text[at:begin] + " "
        at = end + 3
    yield text[at:]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def identifiers(report: str) -> list[str]:
    """What a report names in code: quoted names, options, dotted names, CamelCase, snake_case and calls, in order."""
    found: dict[str, None] = {}
    for quoted in QUOTED.findall(report):
        found.update(dict.fromkeys(WORD.findall(OPTION.sub(lambda m: m[0].replace("-", "_"), quoted))))
    found.update(dict.fromkeys(name.replace("-", "_") for name in OPTION.findall(report)))
    for dotted in DOTTED.findall(report):
        found.update(dict.fromkeys(dotted.split(".")))
    found.update(dict.fromkeys(NAMED.findall(report)))
    found.update(dict.fromkeys(CALLED.findall(report)))
    return [name for name in found if len(name.strip("_")) > 2 and name.lower() not in STOP and name != "py"]


def words(report: str) -> list[str]:
    """Sub-words of a report, stemmed, without stop words, each once, in order."""
    return list(dict.fromkeys(p for w in _kept(report) for p in parts(w) if len(p) > 1 and p not in STOP))


def _kept(report: str) -> list[str]:
    return [w for w in WORD.findall(report) if w.lower() not in STOP]
