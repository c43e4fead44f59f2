"""A small git repository with a past fix, and rows of repairs over it, for the tests of repairs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import clew

# What tests in the sandbox see: this interpreter, pytest, and Clew, whose plug-in pytest finds where it is installed.
SEEN = tuple(
    dict.fromkeys(
        str(place)
        for place in (sys.prefix, sys.base_prefix, Path(pytest.__file__).parents[1], Path(clew.__file__).parents[1])
    )
)
PLAIN = "python -m pytest -q"
COMMAND = f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {PLAIN}"  # the many plug-ins of this environment take their time
ACCOUNT = '''"""Accounts."""


def total(amounts):
    found = 0
    for amount in amounts:
        found += amount  # in cents
    return found


def mean(amounts):
    return total(amounts) / len(amounts)


def share(part, whole):
    if whole > 0 and part >= 0:
        return part / whole
    return 0.0
'''
FIXED = ACCOUNT.replace(
    "    return total(amounts) /", "    if not amounts:\n        return 0.0\n    return total(amounts) /"
)
TESTS = """from ledger.account import mean, share, total


def test_total():
    assert total([1, 2, 3]) == 6


def test_mean():
    assert mean([1, 3]) == 2


def test_share():
    assert share(1, 4) == 0.25
    assert share(0, 4) == 0
    assert share(1, 0) == 0
"""
MORE = "\n\ndef test_mean_of_nothing_is_zero():\n    assert mean([]) == 0\n"
HIDDEN = "test_mean_of_nothing_is_zero"
NAMES = ("tests/test_account.py::test_total", "tests/test_account.py::test_mean", "tests/test_account.py::test_share")
FIX = f"tests/test_account.py::{HIDDEN}"


def git(folder: Path, *words: str) -> str:
    env = dict.fromkeys(("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"), os.devnull) | {"PATH": os.environ["PATH"]}
    env |= {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env |= {f"GIT_{who}_DATE": "2024-01-01T00:00:00Z" for who in ("AUTHOR", "COMMITTER")}
    done = subprocess.run(["git", *words], cwd=folder, env=env, capture_output=True, text=True, check=True)
    return done.stdout


def make(folder: Path) -> Path:
    """Four commits: the start, a fix with its test, a link and a program, and a word in a document."""
    (folder / "ledger").mkdir(parents=True)
    (folder / "tests").mkdir()
    (folder / "ledger" / "__init__.py").write_text("")
    (folder / "ledger" / "account.py").write_text(ACCOUNT)
    (folder / "tests" / "test_account.py").write_text(TESTS)
    (folder / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "--strict-markers"\n')
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "kept.log").write_text("tracked, though ignored\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A", "-f")
    git(folder, "commit", "-qm", "Accounts")
    (folder / "ledger" / "account.py").write_text(FIXED)
    (folder / "tests" / "test_account.py").write_text(TESTS + MORE)
    git(folder, "commit", "-qam", "Fix #7: the mean of no amounts divides by zero in ledger/account.py")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "latest").symlink_to("ledger/account.py")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "A program and a link")
    (folder / "notes.md").write_text("the secret of a later commit\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "Notes")
    return folder


def commits(folder: Path) -> list[str]:
    """Ids, oldest first."""
    return git(folder, "rev-list", "--reverse", "HEAD").split()


def row(folder: Path, **other: object) -> dict[str, object]:
    """The fix as SWE-bench would have it."""
    start, fix = commits(folder)[:2]
    told = {
        "instance_id": "own__ledger-7",
        "repo": "own/ledger",
        "base_commit": start,
        "problem_statement": "The mean of no amounts divides by zero.",
        "hints_text": "look at mean, in the hints",
        "patch": git(folder, "diff", start, fix, "--", "ledger"),
        "test_patch": git(folder, "diff", start, fix, "--", "tests"),
        "FAIL_TO_PASS": json.dumps([FIX]),
        "PASS_TO_PASS": list(NAMES),
        "version": "1.0",
    }
    return told | other


def write(path: Path, *rows: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path
