"""Reads the verdicts that a project already has: JUnit files of its test runs, exports of GitHub's checks.

``clew gate --from`` calls it. What it reads was written by others: sizes are bounded, a document type in XML is
refused, and names are data, never commands. It must never run anything and never write.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from clew.core.errors import BadInput
from clew.methods.gate.line_rules import VERIFY, Seen

LARGEST = 64 << 20  # bytes of one file
MOST = 20_000  # files
NAME = 200  # characters of a check's name
CONCLUSIONS = {"success": True, "failure": False}  # cancelled, skipped, timed out: no verdict


class Verdict(NamedTuple):
    """What one check said of one candidate; None where it said neither. seconds: how long it took, if that is known."""

    candidate: str
    check: str
    passed: bool | None
    seconds: float | None = None


def read(path: Path, oracle: str = "") -> tuple[list[Seen], dict[str, float]]:
    """The candidates that a file or a folder tells of, and the mean running time of each check in seconds.

    In a folder of JUnit files each folder below is one candidate (one run of the tests), and each file that lies in it
    directly is one; its checks are the test files (``classname``). In an export of GitHub's checks a commit is one
    candidate. Formats: ``check_runs``, ``jobs`` and ``workflow_runs`` of the REST API, the list of ``gh run list
    --json``, or one such object a line.

    Args:
        oracle: the name of the check that counts; without one all checks of a candidate together.

    Raises:
        BadInput: a file is not what its name says or too large, there is nothing in it, or no check has that name.
    """
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in (".xml", ".json", ".jsonl"))
    if not files or len(files) > MOST:
        remedy = "Name a file or a folder of up to 20,000 .xml, .json or .jsonl files."
        raise BadInput(f"{path} holds {len(files) or 'no'} verdicts files", remedy=remedy)
    found: dict[str, dict[str, Verdict]] = {}
    for file in files:
        if file.stat().st_size > LARGEST:
            raise BadInput(f"{file} has {file.stat().st_size} bytes", remedy="64 MiB at most: split it.")
        own = file if file.parent == path or file == path else file.parent
        if file.suffix == ".xml":
            checks = found.setdefault(str(own), {})
            for one in _junit(file, str(own)):
                checks[one.check] = _both(checks[one.check], one) if one.check in checks else one
    for one in _github([file for file in files if file.suffix != ".xml"]):
        found.setdefault(one.candidate, {})[one.check] = one
    return _candidates(found, oracle, path)


def _candidates(
    found: Mapping[str, Mapping[str, Verdict]], oracle: str, path: Path
) -> tuple[list[Seen], dict[str, float]]:
    names = sorted({name for checks in found.values() for name in checks})
    if oracle and oracle not in names:
        known = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        raise BadInput(f"{path} has no check called {oracle!r}", remedy=f"Known: {known or 'none'}.")
    rows, times = list[Seen](), dict[str, list[float]]()
    for candidate, checks in found.items():
        said = {name: one.passed for name, one in checks.items() if one.passed is not None}
        took = {name: one.seconds for name, one in checks.items() if one.seconds is not None}
        if oracle:
            good = said.pop(oracle, None)
            whole = took.pop(oracle, None)
        else:
            good = all(said.values()) if said else None
            whole = sum(took.values()) if took else None
        for name, seconds in (took | ({} if whole is None else {VERIFY: whole})).items():
            times.setdefault(name, []).append(seconds)
        if said or good is not None:
            rows.append(Seen(candidate, said, good))
    if not rows:
        raise BadInput(f"{path} holds no verdict", remedy="Give JUnit files, or an export of GitHub's checks.")
    return rows, {name: sum(each) / len(each) for name, each in times.items()}


def _junit(file: Path, candidate: str) -> Iterator[Verdict]:
    """A verdict for each test file: failed where one of its tests failed, none where all were skipped."""
    state: dict[str, list[float]] = {}  # passed, failed, seconds
    test: list[str] = []
    outcome = [""]

    def begin(tag: str, attributes: dict[str, str]) -> None:
        if tag == "testcase":
            test[:] = [(attributes.get("classname") or attributes.get("file") or file.stem)[:NAME]]
            outcome[0] = "passed"
            state.setdefault(test[0], [0, 0, 0.0])[2] += _number(attributes.get("time", ""))
        elif tag in ("failure", "error") and test:
            outcome[0] = "failed"
        elif tag == "skipped" and test and outcome[0] == "passed":
            outcome[0] = "skipped"

    def end(tag: str) -> None:
        if tag == "testcase" and test:
            if outcome[0] != "skipped":
                state[test[0]][outcome[0] == "failed"] += 1
            test.clear()

    def refuse(*_: object) -> None:
        raise BadInput(f"{file} declares a document type", remedy="JUnit files have none: it is not read.")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler, parser.StartDoctypeDeclHandler = begin, end, refuse
    try:
        parser.Parse(file.read_bytes(), True)
    except expat.ExpatError as error:
        raise BadInput(f"{file} is no XML: {error}", remedy="Give JUnit files, or name another folder.") from error
    for name, (passed, failed, seconds) in state.items():
        yield Verdict(candidate, name, None if not passed + failed else not failed, seconds)


def _both(one: Verdict, other: Verdict) -> Verdict:
    """What two JUnit files of a candidate say of one test file, as of two versions of Python: one failure fails it."""
    said = [each.passed for each in (one, other) if each.passed is not None]
    return one._replace(passed=all(said) if said else None, seconds=(one.seconds or 0.0) + (other.seconds or 0.0))


def _github(files: Sequence[Path]) -> Iterator[Verdict]:
    """Of the entries of one name and commit, in whichever files, the one that began last counts; without times the
    first, as GitHub lists the newest first."""
    entries = list[dict[str, object]]()
    for file in files:
        text = file.read_text(errors="replace")
        try:
            lines = [text] if file.suffix == ".json" else [line for line in text.splitlines() if line.strip()]
            whole = [json.loads(line) for line in lines]
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{file} is no JSON: {str(error)[:100]}", remedy="Give what `gh` exports.") from error
        pages = [page for one in whole for page in (one if isinstance(one, list) else [one])]
        entries += [entry for page in pages for entry in _entries(page)]
    entries.reverse()
    for entry in sorted(entries, key=_begun):
        commit = entry.get("head_sha") or entry.get("headSha")
        name = entry.get("name") or entry.get("workflowName") or entry.get("context")
        if isinstance(commit, str) and isinstance(name, str):
            ended = str(entry.get("conclusion") or entry.get("state") or "").lower()
            yield Verdict(commit[:NAME], name[:NAME], CONCLUSIONS.get(ended), _took(entry))


def _entries(page: object) -> list[dict[str, object]]:
    """The checks of one page of an export, in whichever list they stand."""
    if not isinstance(page, dict):
        return []
    for field in ("check_runs", "jobs", "workflow_runs"):
        if isinstance(page.get(field), list):
            return [entry for entry in page[field] if isinstance(entry, dict)]
    return [page]


def _begun(entry: Mapping[str, object]) -> str:
    fields = ("started_at", "startedAt", "run_started_at", "created_at", "createdAt")
    return next((str(entry[field]) for field in fields if entry.get(field)), "")


def _took(entry: Mapping[str, object]) -> float | None:
    ends = [entry.get(f) or entry.get(g) for f, g in (("started_at", "startedAt"), ("completed_at", "completedAt"))]
    try:
        start, end = (datetime.fromisoformat(str(text).replace("Z", "+00:00")) for text in ends)
        return max((end - start).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None


def _number(text: str) -> float:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return 0.0
    return value if 0 <= value < 1e9 else 0.0
