"""A check of the whole test run: every `assert` of a test file must have held at least once, or the run fails.

`conftest.py` loads it as a plugin. An assertion in a loop over nothing, or behind a condition that never holds, looks
like a proof and proves nothing. What a skipped test would have asserted is left out. Nothing is checked where only a
part of the tests ran or where a test failed (what stands after a failed assertion never runs).
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from _pytest.assertion import util

Place = tuple[str, int]
"""A test file, relative to the repository, and the line its assertion begins on."""

ROOT = Path(__file__).resolve().parents[1]
held: set[Place] = set()
skipped: dict[str, set[str]] = defaultdict(set)
"""Test file -> functions of it that were skipped; "" where the file was skipped as a whole."""


def pytest_assertion_pass(item: pytest.Item, lineno: int, orig: str, expl: str) -> None:
    file = item.location[0]
    held.add((file, lineno))
    # pytest writes out the values of each assertion that holds, which makes a property test several times slower. So we
    # stop listening, until the next test, once all that this test can assert has held.
    if all((file, line) in held for line in of_test(item.path, item.location[2])):
        util._assertion_pass = None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    of_test(item.path, item.location[2])  # read here: threads of the test must not parse, which CPython 3.11 mixes up


@cache
def of_test(path: Path, test: str) -> list[int]:
    """Lines of the assertions in a test, named as pytest names it, and in its file's helpers."""
    test = test.partition("[")[0].rpartition(".")[2]
    return [line for line, function in asserted(path) if function == test or not function.startswith("test_")]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped:
        skipped[report.location[0]].add(report.location[2].partition("[")[0].rpartition(".")[2])


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        skipped[report.nodeid.partition("::")[0]].add("")


@cache
def asserted(path: Path) -> list[tuple[int, str]]:
    """Line and function of each assertion that a test file would run itself."""

    def walk(node: ast.AST, function: str) -> Iterator[tuple[int, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Assert):
                yield child.lineno, function
            named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not function
            yield from walk(child, child.name if named else function)

    for _ in range(20):
        with suppress(SystemError):  # CPython 3.11, where a thread that a test left behind parses at the same moment
            return list(walk(ast.parse(path.read_text()), ""))
    return list(walk(ast.parse(path.read_text()), ""))


def never_ran() -> list[str]:
    """`file:line` of each assertion of `tests/` that did not hold once, sorted."""
    out = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name = path.relative_to(ROOT).as_posix()
        left_out = skipped.get(name, set())
        for line, function in asserted(path):
            # A helper of the file may be called by the skipped tests alone.
            excused = "" in left_out or function in left_out or (left_out and not function.startswith("test_"))
            if not excused and (name, line) not in held:
                out.append(f"{name}:{line}")
    return out


def whole(config: pytest.Config) -> bool:
    """Whether the run was asked for every test."""
    option = config.option
    return config.args == config.getini("testpaths") and not (option.keyword or option.markexpr or option.deselect)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist, which may be absent
def pytest_testnodedown(node: object) -> None:
    """With several processes: what held in one of them arrives here as it ends."""
    held.update((file, line) for file, line in getattr(node, "workeroutput", {}).get("held", ()))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["held"] = sorted(held)
    elif exitstatus == 0 and whole(session.config) and never_ran():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    if whole(terminalreporter.config) and not terminalreporter.stats.get("failed") and (missing := never_ran()):
        terminalreporter.section("assertions that never ran")
        for place in missing:
            terminalreporter.line(place)
