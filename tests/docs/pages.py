"""Runs a page of documentation: its python blocks in order, in one namespace, and its command lines.

    ```python    executed; where the first line is the name of a file, as in "# guess.py", also added to that file
    ```output    what the block before it printed; compared
    ```console   lines that begin with "$ " are executed by a shell in the same folder, what follows each is compared;
                 a block after the line "<!-- not run: WHY -->" is left out
    ```text      nothing is executed

Where output is compared, ids of runs and groups, dates and times stand for any other, and ``...`` for any text.
``python -m tests.docs.pages docs/tool.md`` writes what is printed now in place of what differs.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from clew.cli import verbs
from clew.cli.shared.old_spellings import today
from tests.cli.shell import Shell

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
EXECUTED = ("python", "console")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VOLATILE = (
    (re.compile(r"\b[a-z2-7]{12}\b"), "ID"),
    (re.compile(r"\d\d-\d\d \d\d:\d\d"), "WHEN"),
    (re.compile(r"\d+(\.\d+)? m?s\b"), "TIME"),
)


class Block(NamedTuple):
    """A fenced block; its text begins in line ``line`` (from 1), at ``start`` of the page."""

    kind: str
    text: str
    line: int
    start: int = 0


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [Block(m[1], m[2], text.count("\n", 0, m.start(2)) + 1, m.start(2)) for m in _FENCE.finditer(text)]


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]


def masked(text: str) -> str:
    """``text`` without what differs from one execution to the next."""
    for pattern, word in _VOLATILE:
        text = pattern.sub(word, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n"


def same(want: str, got: str) -> bool:
    return doctest.OutputChecker().check_output(masked(want), masked(got), doctest.ELLIPSIS)


def execute(page: Path) -> int:
    """Execute a page in the present folder; give the number of pieces that were executed or compared.

    Raises:
        AssertionError: an output differs, or a command line fails; names the page and the line.
    """
    count = 0
    for piece in results(page):
        assert piece.agrees, f"{page.name}:{piece.line} {piece.what} prints\n{piece.got}"
        count += 1
    return count


def refresh(page: Path) -> int:
    """Execute a page and write what is printed now in place of what differs; give how often."""
    text, found = page.read_text(), [piece for piece in results(page) if not piece.agrees]
    for piece in reversed(found):
        tidy = "\n".join(line.rstrip() for line in piece.got.splitlines()).rstrip()
        text = text[: piece.start] + tidy + "\n" + text[piece.start + len(piece.expected) :]
    page.write_text(text)
    return len(found)


class Piece(NamedTuple):
    """What a block or a command line printed, and what the page says it does, from ``start`` of its text on."""

    what: str
    line: int
    start: int
    expected: str
    got: str
    agrees: bool


def results(page: Path) -> Iterator[Piece]:
    shell = Shell(Path.cwd())
    space: dict[str, Any] = {"__name__": "__page__"}
    printed = ""
    for block in blocks(page):
        if block.kind == "python":
            if named := re.match(r"# (\w+\.py)\n", block.text):
                with open(named[1], "a") as file:
                    file.write(block.text)
            code = compile("\n" * (block.line - 1) + block.text, f"<{page.name}>", "exec")
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(code, space)
            printed = out.getvalue()
            yield Piece("", block.line, block.start, "", "", True)
        elif block.kind == "output":
            yield Piece("", block.line, block.start, block.text, printed, same(block.text, printed))
        elif block.kind == "console" and not left_out(page, block):
            for command, expected, start in commands(block):
                got = shell(command)
                agrees = not expected.strip() or same(expected, got)
                yield Piece(command, block.line, block.start + start, expected, got, agrees)


def commands(block: Block) -> Iterator[tuple[str, str, int]]:
    """Command lines of a block (``\\`` at an end goes on in the next line), what follows each, and where."""
    for match in re.finditer(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE):
        yield match[1].replace("\\\n", " "), match[2], match.start(2)


LINE = re.compile(r"^ *(?:\$ )?(?:\w+=\S+ )?(clew (?:.*\\\n)*.*)$", re.MULTILINE)


def lines(text: str) -> Iterator[str]:
    """Every command line of Clew in ``text``, alone in its line or beside others, without what is no part of it."""
    for match in LINE.finditer(text):
        for part in re.split(r"(?<=[^\\]);|[|]", match[1].replace("\\\n", " ")):
            if part.strip().startswith("clew "):
                yield part.strip().split("   (")[0]


def parse(line: str) -> None:
    """Descend to the verb that a command line names, and parse what follows as it does.

    Raises:
        click.UsageError: there is no such verb or option. AssertionError: the line has an old spelling.
    """
    command: click.Command = verbs
    words = shlex.split(line, comments=True)[1:]
    assert not words or today(words) == words, f"an old spelling: {line}"
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        context = command.make_context("clew", words)
        _, found, words = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command = found
    command.make_parser(click.Context(command)).parse_args(words)


def left_out(page: Path, block: Block) -> str:
    """Why a block is not run, as the comment before it says; empty for one that is."""
    before = page.read_text()[: block.start].removesuffix(f"```{block.kind}\n").rstrip().rpartition("\n")[2]
    found = re.fullmatch(r"<!-- not run: (.+) -->", before)
    return found[1] if found else ""


if __name__ == "__main__":
    for name in map(Path, sys.argv[1:]):
        where = name.resolve()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            print(where.name, refresh(where))
