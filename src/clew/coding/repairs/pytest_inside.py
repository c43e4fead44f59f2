"""Runs inside the sandbox, by the interpreter that a repository's tests need: pytest, and one report of its outcomes.

``named_tests`` passes the text of this file to ``python -c`` with an order on its input. No module of the repository
may be imported before pytest and its plug-ins are. It needs pytest and Python 3.7 alone, and imports nothing of Clew.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":  # before anything else is imported: the folder is where a repository's modules are
    here = os.getcwd()
    sys.path[:] = [p for p in sys.path if p not in ("", ".") and not f"{p}/".startswith(f"{here}/")]

import importlib.util
import json
import shutil
import unittest.mock  # noqa: F401 - tests use it, and no module of the repository shall take its place
from typing import Any

RANK = {"passed": 0, "xfailed": 1, "skipped": 2, "failed": 3, "error": 4}


class Report:
    """What came of the tests. It is written once, under the order's word, to the output that the process began with."""

    def __init__(self, token: str, log: str) -> None:
        self._token, self._out = token, os.dup(1)
        silent, self._log = os.open(os.devnull, os.O_RDWR), os.open(log, os.O_RDWR | os.O_CREAT, 0o600)
        for stream, place in ((0, silent), (1, silent), (2, self._log)):
            os.dup2(place, stream)
        self.outcomes: dict[str, str] = {}
        self.errors: dict[str, str] = {}
        self.said = ""

    def note(self, name: str, outcome: str, text: str = "") -> None:
        """Of the phases of a test the worst counts."""
        had = self.outcomes.get(name)
        if had is None or RANK[outcome] > RANK[had]:
            self.outcomes[name] = outcome
        if text and len(self.errors) < 200:
            self.errors.setdefault(name, text[:4000])

    def end(self) -> None:
        """Write it, and end the process: what was registered to run at its end does not."""
        size = os.lseek(self._log, 0, 2)
        os.lseek(self._log, max(0, size - 3000), 0)
        said = self.said or os.read(self._log, 3000).decode("utf-8", "replace")
        told = json.dumps({"outcomes": self.outcomes, "errors": self.errors, "said": said})
        data = f"\n{self._token}{told}\n".encode("ascii", "replace")
        while data:
            data = data[os.write(self._out, data) :]
        os._exit(0)


def text_of(found: Any) -> str:
    """The lines of a failure that say what was expected, else its message."""
    lines = str(found.longrepr).splitlines()
    marked = [line[1:].strip() for line in lines if line.startswith("E ")]
    crash = getattr(found.longrepr, "reprcrash", None)
    return "\n".join(marked) or (crash.message if crash else "\n".join(lines[-5:]))


def watch(pytest: Any, report: Report, places: list[str]) -> object:
    """The plug-in that notes outcomes; the repository's modules can be found once all other plug-ins are there."""

    class Watch:
        @pytest.hookimpl(tryfirst=True)  # type: ignore[untyped-decorator]
        def pytest_load_initial_conftests(self) -> None:
            sys.path[:0] = places

        def pytest_collectreport(self, report: Any, into: Report = report) -> None:
            if report.failed:
                into.note(report.nodeid, "error", text_of(report))

        def pytest_runtest_logreport(self, report: Any, into: Report = report) -> None:
            if report.failed:
                into.note(report.nodeid, "failed" if report.when == "call" else "error", text_of(report))
            elif report.skipped:
                into.note(report.nodeid, "xfailed" if hasattr(report, "wasxfail") else "skipped")
            elif report.when == "call":
                into.note(report.nodeid, "passed")

    return Watch()


def remove(paths: list[str]) -> None:
    """Take out modules that are new in the folder and would stand before installed ones of the same name."""
    for path in paths:
        name = os.path.basename(path).split(".")[0]
        try:
            known = name in sys.builtin_module_names or importlib.util.find_spec(name) is not None
        except (ImportError, ValueError, AttributeError):
            known = False
        if known and os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif known:
            os.unlink(path)


def main() -> None:
    """Read the order, run pytest, write the report."""
    order = json.loads(sys.stdin.read())
    report, folder = Report(order.pop("token"), order["log"]), os.getcwd()
    try:
        import pytest
    except ImportError as error:
        report.said = f"pytest cannot be imported: {error}"
        report.end()
    remove(order["new"])
    os.environ.update(order["env"])
    places = [folder] if order["path"] else []
    places += [os.path.abspath(p) for p in order["env"].get("PYTHONPATH", "").split(os.pathsep) if p]
    os.chdir(order["start"])
    try:
        pytest.main(order["args"], plugins=[watch(pytest, report, places)])
    except BaseException as error:
        report.said = f"{type(error).__name__}: {error}"
    report.end()


if __name__ == "__main__":
    main()
