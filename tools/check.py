"""What a change needs, in two minutes: lint of the changed files, and the tests nearest to them.

python tools/check.py                          # what differs from HEAD, and what git does not know yet
python tools/check.py src/clew/store/query.py  # files or folders
python tools/check.py credit.alias             # modules; `clew.` may be left out
python tools/check.py --seconds 30 --list ...  # what would run, and what is left out for time

A test file is near a module if it names it (`tests/credit/test_alias.py`), imports it, or imports something that does.
Nearest first, and quickest first among equals, by what each file took in the last whole run (`tests/durations.json`).
What no longer fits is named. Exits as pytest does.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE, TESTS = ROOT / "src" / "clew", ROOT / "tests"
DURATIONS = TESTS / "durations.json"
START = 6.0  # seconds until the first test runs: libraries are loaded, tests collected


@cache
def name_of(path: Path) -> str:
    """The dotted name of a source file: `clew.credit.alias`; a package's `__init__` is the package."""
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


@cache
def modules() -> dict[str, Path]:
    return {name_of(path): path for path in sorted(SOURCE.rglob("*.py"))}


@cache
def imported(path: Path) -> frozenset[str]:
    """Modules of Clew that a file imports anywhere in it; a package counts where one of its names is taken."""
    package = name_of(path).split(".")[: None if path.name == "__init__.py" else -1] if SOURCE in path.parents else []
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            found |= {stem} | {f"{stem}.{alias.name}" for alias in node.names}
    return frozenset(found & modules().keys() - {"clew"})


def distances(changed: Iterable[str]) -> dict[str, int]:
    """Module -> imports between it and the nearest changed one; what does not lead there is left out."""
    users: dict[str, set[str]] = {}
    for name, path in modules().items():
        for used in imported(path):
            users.setdefault(used, set()).add(name)
    out = dict.fromkeys(changed, 0)
    edge = list(out)
    while edge:
        name = edge.pop(0)
        for user in users.get(name, set()) - out.keys():
            out[user] = out[name] + 1
            edge.append(user)
    return out


def near(changed: set[str]) -> list[tuple[int, Path]]:
    """Test files that lead to a changed module, nearest first, with their distance: 0 names it, 1 imports it."""
    far = distances(changed)
    stems = {name.rpartition(".")[2] for name in changed}
    # Verbs are loaded by name: a test types `clew audit why`, or calls clew("audit", "why").
    verbs = [name.split(".")[2].split("_") for name in changed if name.startswith("clew.cli.") and name.count(".") == 2]
    typed = [line for words in verbs for line in ("clew " + " ".join(words), 'clew("' + '", "'.join(words) + '"')]
    out = []
    for path in sorted(TESTS.rglob("test_*.py")):
        stem = path.stem.removeprefix("test_")
        reached = [far[name] for name in imported(path) if name in far]
        if any(line in path.read_text() for line in typed):
            reached.append(0)
        if stem in stems and (not reached or min(reached) < 2):
            out.append((0, path))
        elif reached:
            out.append((1 + min(reached), path))
    return out


def asked(words: list[str]) -> tuple[set[str], set[Path]]:
    """Modules of Clew and test files that the words name.

    Raises:
        SystemExit: a word names neither a file nor a module.
    """
    files: set[Path] = set()
    for word in words or changed_files():
        path = Path(word) if Path(word).is_absolute() else ROOT / word
        as_module = modules().get(f"clew.{word.removeprefix('clew.')}")
        if path.is_dir():
            files |= set(path.rglob("*.py"))
        elif path.is_file():
            files.add(path)
        elif as_module is not None:
            folder = as_module.name == "__init__.py"
            files |= set(as_module.parent.rglob("*.py")) if folder else {as_module}
        else:
            sys.exit(f"{word!r} is not a file or module here. Name a path, or a module such as credit.alias.")
    files = {path.resolve() for path in files if path.suffix == ".py"}
    tests = {path for path in files if TESTS in path.parents and path.name.startswith("test_")}
    return {name_of(path) for path in files if SOURCE in path.parents}, tests


def changed_files() -> list[str]:
    """Files that differ from HEAD or that git does not know, that still are there."""
    lines = [["diff", "--name-only", "HEAD"], ["ls-files", "--others", "--exclude-standard"]]
    out = [
        subprocess.run(["git", *line], cwd=ROOT, capture_output=True, text=True, check=True).stdout for line in lines
    ]
    return [name for name in "".join(out).splitlines() if (ROOT / name).exists()]


def chosen(found: list[tuple[int, Path]], seconds: float) -> tuple[list[Path], list[Path]]:
    """Files to run within the time, and those left out."""
    took = json.loads(DURATIONS.read_text())["files"] if DURATIONS.exists() else {}
    cost = {path: took.get(path.relative_to(ROOT).as_posix(), 5.0) for _, path in found}
    taken, left, spent = [], [], START
    for _, path in sorted(found, key=lambda pair: (pair[0], cost[pair[1]])):
        fits = not taken or spent + cost[path] <= seconds
        (taken if fits else left).append(path)
        spent += cost[path] * fits
    return taken, left


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("words", nargs="*", help="files, folders or modules; else what differs from HEAD")
    parser.add_argument("--seconds", type=float, default=120.0, help="time for the tests on one core  [default: 120]")
    parser.add_argument("--list", action="store_true", help="print the tests, and run nothing")
    given = parser.parse_args()
    changed, tests = asked(given.words)
    found = [(0, path) for path in sorted(tests)] + [pair for pair in near(changed) if pair[1] not in tests]
    taken, left = chosen(found, given.seconds)
    names = [path.relative_to(ROOT).as_posix() for path in taken]
    if given.list or not taken:
        print("\n".join(names) or "no test leads to what changed")
    code = 0
    if not given.list:
        sources = [str(modules()[name]) for name in sorted(changed)] + [str(path) for path in sorted(tests)]
        if sources:
            code = subprocess.run([sys.executable, "-m", "ruff", "check", "-q", *sources], cwd=ROOT).returncode
        if names:
            line = [sys.executable, "-m", "pytest", "-m", "not frameworks", *names]
            code = subprocess.run(line, cwd=ROOT, env=os.environ).returncode or code
    if left:
        print(f"{len(left)} test files further off were left out for time; `make test` or `make test-all` runs them:")
        print("  " + " ".join(path.relative_to(TESTS).as_posix() for path in left[:12]) + (" ..." if left[12:] else ""))
    return code


if __name__ == "__main__":
    sys.exit(main())
