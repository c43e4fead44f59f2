"""A repository's own past fixes as labelled bug reports, from its history alone.

Calibration and the tasks of a repository call it. A fix is a commit that added a news fragment of a bug (towncrier), or
whose subject says that it fixes something. Its report is the fragment, else the message; the snapshot is the first
parent; the truth is the set of source files it changed and the lines it replaced. A report must never name a source
file: such names are taken out.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from clew.coding.repository.git import Git
from clew.coding.repository.languages import is_test, language, left_out

FRAGMENT = re.compile(
    r"(?:^|/)(?:changelog|changelog\.d|changes|fragments|news|newsfragments|upcoming_changes)/"
    r"[^/]*\.(?:bugfix|bug|fix|false_positive|false_negative)(?:\.\d+)?(?:\.(?:rst|md|txt))?$"
)
SUBJECT = re.compile(
    r"^(?:\[?(?:bug)?fix(?:e[sd])?\b|(?:closes?|resolves?)\s+#\d)|"
    r"\b(?:fix(?:e[sd])?|closes?|resolves?)[\s:]+#\d+",
    re.IGNORECASE,
)
NOT_CODE = re.compile(
    r"\b(?:typo|docs?|documentation|docstrings?|changelog|tests?|testing|ci|lint|linting|flake8|mypy|ruff|pre-commit|"
    r"tox|coverage|workflow|release|readme|spelling|grammar|rst|build|merge|revert|backport|[A-Z]{1,3}\d{3,4})\b",
    re.IGNORECASE,
)
TRAILER = re.compile(r"^(?:[A-Z][\w-]+-by|Refs?|Cc|\(cherry picked).*$", re.MULTILINE)
PATHS = re.compile(r"[\w./-]*\w\.(?:pyi?|jsx?|tsx?|go|java|c|h|cc|cpp|rs)\b")
HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? ")
FIRST = re.compile(rb"\x01(?=[0-9a-f]{40,64}\0)")  # of a commit in a log; no message holds it, since none holds a NUL
SHORTEST = 25  # characters of a report
MOST = 100_000  # commits that are looked at


@dataclass(frozen=True, slots=True)
class Fix:
    """A past fix. ``gold``: the changed source files with the spans of old lines (from 1, inclusive) that were
    replaced; an insertion is the line above it. ``when`` in seconds since the epoch."""

    commit: str
    parent: str
    when: int
    report: str
    gold: Mapping[str, tuple[tuple[int, int], ...]]


def masked(report: str) -> str:
    """A report without names of source files, which would give the answer away."""
    return PATHS.sub(" ", report)


def fixes(git: Git, n: int = 300, before: str = "HEAD", files: int = 3) -> list[Fix]:
    """The last ``n`` bug fixes that change 1 to ``files`` source files, newest first, of the last ``MOST`` commits."""
    out: list[Fix] = []
    for fragment, commit, parent, when, message, changed in _commits(git, before):
        gold = [p for p in changed if language(p) != "text" and not is_test(p) and not left_out(p)]
        if not 1 <= len(gold) <= files:
            continue
        report = git.run("cat-file", "blob", f"{commit}:{fragment}").decode("utf-8", "replace") if fragment else message
        report = masked(TRAILER.sub("", report)).strip()
        if len(report) < SHORTEST:
            continue
        spans = hunks(
            git.run("diff-tree", "-r", "-U0", "--no-color", "--no-ext-diff", "-p", parent, commit, "--", *gold)
        )
        spans = {path: spans[path] for path in gold if path in spans}
        if spans:
            out.append(Fix(commit, parent, when, report, spans))
        if len(out) == n:
            break
    return out


def _commits(git: Git, before: str) -> Iterator[tuple[str, str, str, int, str, list[str]]]:
    """Commits that say they fix a bug: (fragment, commit, parent, when, message, modified files), newest first."""
    form = "--format=%x01%H%x00%P%x00%ct%x00%B%x00"
    most = f"--max-count={MOST}"
    told = git.run("log", most, "--no-merges", "--no-renames", "--raw", "-z", form, "--end-of-options", before)
    for block in FIRST.split(told)[1:]:
        commit, parents, when, message, raw = block.split(b"\0", 4)
        text = message.decode("utf-8", "replace").strip()
        if not parents or len(parents.split()) != 1:
            continue
        fields = [f.lstrip(b"\n") for f in raw.split(b"\0")]
        pairs = [(a, b) for a, b in itertools.pairwise(fields) if a.startswith(b":")]
        changed = [(a.split()[-1].decode(), b.decode("utf-8", "surrogateescape")) for a, b in pairs]
        added = [path for kind, path in changed if kind == "A" and FRAGMENT.search(path)]
        subject = text.partition("\n")[0]
        if not added and not (SUBJECT.search(subject) and not NOT_CODE.search(subject)):
            continue
        modified = [path for kind, path in changed if kind == "M"]
        yield added[0] if added else "", commit.decode(), parents.decode(), int(when), text, modified


def hunks(patch: bytes) -> dict[str, tuple[tuple[int, int], ...]]:
    """Old-side line spans by file of a patch without context."""
    out: dict[str, list[tuple[int, int]]] = {}
    path = ""
    for line in patch.decode("utf-8", "replace").splitlines():
        if line.startswith("--- "):
            path = line[6:] if line.startswith("--- a/") else ""
        elif path and (found := HUNK.match(line)):
            start, count = int(found[1]), int(found[2] if found[2] is not None else 1)
            out.setdefault(path, []).append((max(start, 1), max(start + count - 1, start, 1)))
    return {name: tuple(spans) for name, spans in out.items()}


def age(fix: Fix) -> str:
    """The day of a fix, as YYYY-MM-DD."""
    return time.strftime("%Y-%m-%d", time.gmtime(fix.when))
