"""Issues as their users wrote them, with the files that their fixes changed, from two published collections.

    python -m papers.E169_sherloc.issues ISSUES        writes issues.json: which issues are dev, which held out

The rule, written down before any of these issues was ranked:

1. Issues are those of SWE-bench Lite (arXiv 2310.06770; splits dev and test) and of Multi-SWE-bench (arXiv 2504.02605).
   Both were collected by others, for other ends: closed issues of public repositories with the merged change that
   fixed each. The report is the issue's title and first post as published; nothing is masked, cut or translated.
2. Of Multi-SWE-bench only changes that resolve one issue count. Of either, only those whose change modifies 1 to 3
   source files, neither tests nor documentation (``gold``); the snapshot is the commit before the change.
3. Repositories are some of those of the collections that can be cloned in half a gigabyte. ``DEV`` may be looked at
   while the ranking is made; pytest, pylint and sphinx, whose commits tier L uses, are among them. ``HELD_OUT`` may be
   ranked once, by the final ranking; none of its texts, snapshots or results may be looked at before.
4. Of a held-out repository with more than ``MOST`` such issues, ``MOST`` are drawn by seed; of others all are taken.
5. The baseline is BM25 over sub-words, a file being a document, the report's words once or as often as they occur:
   whichever of the two is better on ``DEV``. The mark: the ranking's first file is right more often by .10 at least.

ISSUES is a folder with the collections' files as they are published (JSON or JSON lines). Committed are names of
issues, commits and changed files, and figures; never a text.
"""

import functools
import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from clew.coding.repository.languages import is_test, language, left_out
from clew.core.errors import BadInput

HERE = Path(__file__).resolve().parent
DEV = (
    "sqlfluff/sqlfluff",
    "pvlib/pvlib-python",
    "pylint-dev/astroid",
    "pydicom/pydicom",
    "marshmallow-code/marshmallow",
    "pytest-dev/pytest",
    "pylint-dev/pylint",
    "sphinx-doc/sphinx",
    "google/gson",
    "axios/axios",
    "grpc/grpc-go",
    "tokio-rs/tracing",
    "sharkdp/bat",
    "sharkdp/fd",
)
HELD_OUT = (
    "sympy/sympy",
    "astropy/astropy",
    "pydata/xarray",
    "mwaskom/seaborn",
    "psf/requests",
    "pallets/flask",
    "fasterxml/jackson-core",
    "zeromicro/go-zero",
    "tokio-rs/tokio",
    "BurntSushi/ripgrep",
    "expressjs/express",
)
MOST, SEED = 25, 169
FILES = 3  # source files that a change may modify
MODIFIED = re.compile(r"^--- a/(\S+)$", re.MULTILINE)
where: list[Path] = []  # the folder given by --issues


class Issue(NamedTuple):
    """``id`` is OWNER__NAME-NUMBER as the collections write it; ``parent`` the commit before the fix."""

    id: str
    project: str
    parent: str
    report: str
    gold: tuple[str, ...]


def lie_in(folder: str) -> Path:
    """Say where the collections' files are."""
    where[:] = [Path(folder)]
    return where[0]


def chosen() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Per project, the issues of ``dev`` or ``test``: id, parent, gold."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = json.loads((HERE / "issues.json").read_text())
    return found


@functools.cache
def texts() -> dict[str, str]:
    """The reports of all issues in the folder, by id.

    Raises:
        BadInput: no folder was given, or it has none of the collections' files.
    """
    found = {issue.id: issue.report for issue in _issues()}
    if not found:
        remedy = "Give a folder with SWE-bench Lite and Multi-SWE-bench: python -m papers E169 --issues FOLDER."
        raise BadInput("no issues to read", remedy=remedy)
    return found


def _rows() -> Iterator[dict[str, Any]]:
    for folder in where:
        for path in sorted([*folder.glob("*.json"), *folder.glob("*.jsonl")]):
            text = path.read_text()
            yield from json.loads(text) if text.startswith("[") else map(json.loads, text.splitlines())


def _issues() -> Iterator[Issue]:
    """Every issue of the collections that the rule lets in, of whatever repository."""
    for row in _rows():
        if "problem_statement" in row:
            name, project, parent = row["instance_id"], row["repo"], row["base_commit"]
            report, patch = row["problem_statement"], row["patch"]
        elif len(row.get("resolved_issues", ())) == 1:
            project, parent = f"{row['org']}/{row['repo']}", row["base"]["sha"]
            name = f"{row['org']}__{row['repo']}-{row['number']}"
            (told,) = row["resolved_issues"]
            report, patch = f"{told['title']}\n{told['body'] or ''}", row["fix_patch"]
        else:
            continue
        modified = dict.fromkeys(MODIFIED.findall(patch))
        gold = tuple(p for p in modified if language(p) != "text" and not is_test(p) and not left_out(p))
        if 1 <= len(gold) <= FILES:
            yield Issue(name, project, parent, report.strip(), gold)


def main(folder: str) -> None:
    lie_in(folder)
    known = sorted(set(_issues()))
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for split, projects in (("dev", DEV), ("test", HELD_OUT)):
        for project in projects:
            mine = [issue for issue in known if issue.project == project]
            if split == "test" and len(mine) > MOST:
                mine = sorted(random.Random(SEED).sample(mine, MOST))
            kept = [{"id": i.id, "parent": i.parent, "gold": list(i.gold)} for i in mine]
            found[project.split("/")[1]] = {split: kept}
    (HERE / "issues.json").write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
