"""Runs tests of a repository in the sandbox and says what became of each that has a name.

``Repairs`` judges by it and ``clew repairs`` proves tasks by it. The program inside reports once, under a word that
nothing of the repository is told; no exit status, printed line or file of results that an agent can make is believed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from clew.core.errors import BadInput
from clew.sandbox.sandbox import Limits, Sandbox, Verdict, own_folder
from clew.sandbox.scratch import Scratch
from clew.worlds.workspace import TreeShelf, restore
from clew.worlds.workspace.workspace import PINNED

INSIDE = Path(__file__).with_name("pytest_inside.py")
OUTPUT = 64 << 20  # bytes of a report
GOOD = ("passed", "xfailed")
CANARY = """import unittest


class Test{word}(unittest.TestCase):
    def test_{word}(self):
        self.assertEqual({a} + {b}, {c})
"""
LACKING = re.compile(r"No module named '([^']+)'|pytest cannot be imported|unrecognized arguments|requires pytest-")


class Command(NamedTuple):
    """How tests are run. interpreter: its words. arguments: of pytest, without paths. paths: which tests, where said.
    env: variables."""

    interpreter: tuple[str, ...]
    arguments: tuple[str, ...]
    paths: tuple[str, ...]
    env: Mapping[str, str]


def read_command(text: str, there: Sequence[str] = ()) -> Command:
    """A command that runs tests, as ``python -m pytest -q tests``.

    Args:
        there: paths of the repository, by which paths are told from values of options.

    Raises:
        BadInput: it runs no pytest.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadInput(f"{text!r} is no command: {error}", remedy="Close its quotes.") from None
    env = dict[str, str]()
    while words and (given := re.fullmatch(r"([A-Z_a-z]\w*)=(.*)", words[0], re.DOTALL)):
        env[given[1]] = given[2]
        del words[0]
    if words[:1] == ["pytest"] or words[:1] == ["py.test"]:
        interpreter, rest = ["python3"], words[1:]
    elif "-m" in words and words[words.index("-m") + 1 :][:1] == ["pytest"] and words[0] != "-m":
        at = words.index("-m")
        interpreter, rest = words[:at], words[at + 2 :]
    else:
        remedy = "Tests are told apart by pytest: python -m pytest, with its own options if need be."
        raise BadInput(f"{text[:80]!r} does not run pytest", remedy=remedy)
    known = {*there, *(place for path in there for place in _above(path))}
    paths = [w for w in rest if not w.startswith("-") and w.partition("::")[0].rstrip("/") in known]
    return Command(tuple(interpreter), tuple(w for w in rest if w not in paths), tuple(paths), env)


def _above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What came of a run of tests.

    each: outcome by name: passed, xfailed, skipped, failed or error. errors: what was said of those that failed. ended:
    the limit that was reached, empty for none. said: what pytest said where it ran no test. meddled: a test that must
    fail was reported to pass. reported: whether pytest came to its end. cpu: seconds.
    """

    each: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    ended: str = ""
    said: str = ""
    meddled: bool = False
    reported: bool = False
    cpu: float = 0.0

    def of(self, names: Sequence[str]) -> dict[str, str]:
        """The outcome of each name; ``missing`` where no test of that name came to an end.

        A name that was cut at its first blank, as those of SWE-bench are, stands for all tests that begin so.
        """
        cut: dict[str, list[str]] = {}
        for name, outcome in self.each.items():
            if (short := name.split()[0] if name.split() else "") != name:
                cut.setdefault(short, []).append(outcome)
        found = dict[str, str]()
        for name in names:
            every = [self.each[name]] if name in self.each else cut.get(name, [])
            found[name] = next((one for one in every if one not in GOOD), every[0]) if every else "missing"
        return found

    def good(self, names: Sequence[str]) -> list[str]:
        """Those names whose tests passed."""
        return [name for name, outcome in self.of(names).items() if outcome in GOOD]

    @property
    def lacking(self) -> str:
        """A sentence of what was missing to run tests at all; empty where nothing was seen to be."""
        for text in (self.said, *self.errors.values()):
            if found := LACKING.search(text):
                return next((line.strip() for line in text.splitlines() if found[0] in line), found[0])[:300]
        return ""


class Wanted(NamedTuple):
    """A run of tests. tree: the files. files: of the tests, or empty for all. new: modules that may stand before
    installed ones. path: whether the folder itself is where modules are imported from. beside: folder of a test that
    must fail, in the tree; none without it. arguments: more of pytest's. start: the
    folder in which pytest is started."""

    tree: str
    files: Sequence[str] = ()
    new: Sequence[str] = ()
    path: bool = True
    beside: str | None = None
    arguments: Sequence[str] = ()
    start: str = "."


async def run_tests(shelf: TreeShelf, sandbox: Sandbox, limits: Limits, command: Command, wanted: Wanted) -> Outcomes:
    """Run tests in a fresh copy of a snapshot."""
    token, word = secrets.token_hex(16), f"t{secrets.token_hex(5)}"
    canary = os.path.normpath(os.path.join(wanted.beside, f"test_{word}.py")) if wanted.beside is not None else ""
    with Scratch("tests") as place:
        folder = place / "box"
        await asyncio.to_thread(restore, shelf, wanted.tree, folder)
        if canary and (folder / canary).parent.resolve() != folder.resolve() / Path(canary).parent:
            canary = f"test_{word}.py"  # a link of the repository's leads elsewhere
        if canary:
            a, b = secrets.randbelow(90) + 5, secrets.randbelow(90) + 5
            with (folder / canary).open("x") as file:
                file.write(CANARY.format(word=word, a=a, b=b, c=a + b + 1 + secrets.randbelow(9)))
        own_folder(folder)
        more = ["--rootdir=.", "-o", "cache_dir=/tmp/pytest-cache", "--maxfail=0", "--continue-on-collection-errors"]
        files = [*wanted.files, *([f"/box/{canary}" if wanted.start != "." else canary] if canary else [])]
        order = {
            "token": token,
            "env": dict(command.env),
            "new": list(wanted.new),
            "path": wanted.path,
            "start": wanted.start,
        }
        order |= {"args": [*command.arguments, *more, *wanted.arguments, *files], "log": f"/tmp/{word}"}
        argv = [*command.interpreter, "-s", "-B", "-c", INSIDE.read_text()]
        bounds = replace(limits, output=OUTPUT)
        env = PINNED | {"PYTHONHASHSEED": "0"}
        done = await sandbox.arun(argv, folder=folder, env=env, stdin=json.dumps(order), limits=bounds)
    return _read(done, token, canary, word)


def _read(done: Verdict, token: str, canary: str, word: str) -> Outcomes:
    """What the last line under the token says; without one the run ended before pytest did."""
    line = next((one for one in reversed(done.stdout.split(b"\n")) if one.startswith(token.encode())), b"")
    ended = done.limit if done.code is None else ""
    if not line:
        last = done.stderr.decode("utf-8", "replace").strip()[-300:]
        why = last or f"the tests ended with exit status {done.code} and no report"
        return Outcomes(ended=done.limit, said=why, cpu=done.cpu)
    try:
        found = json.loads(line[len(token) :])
        each = {str(k): str(v) for k, v in found["outcomes"].items()}
        told = {str(k): str(v) for k, v in found["errors"].items()}
        said = "" if each else str(found["said"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Outcomes(ended=ended, said="the tests' report is damaged", meddled=True)
    own = [name for name in each if canary and name.partition("::")[0].endswith(f"test_{word}.py")]
    meddled = any(each.pop(name) in GOOD for name in own)
    errors = {name: text for name, text in told.items() if name not in own}
    return Outcomes(each, errors, ended, said, meddled, True, done.cpu)
