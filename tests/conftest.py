"""What all tests share: data outside the repository, and a closing word on what did not run and why."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from clew.core import registry

pytest_plugins = ["tests.assertions"]

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data next to the repository; tests that need it do not run where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("did not run: ../shared is absent")
    return SHARED


@pytest.fixture(autouse=True)
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    monkeypatch.setattr(registry, "_local", {kind: dict(things) for kind, things in registry._local.items()})


TOGETHER = {"tests/view/browser": "browser"}  # they share one small quickstart and one browser
HEAVY = (
    "view/browser",
    "docs/test_readme",
    "train",
    "harness/test_resume",
    "serve",
    "engine",
    "cli",
    "audit",
    "coding",
)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For several processes: a file's tests share what its fixtures made, pages of the docs share nothing.

    Folders whose tests take long come first, so that no process is left with them at the end.
    """
    for item in items:
        name = item.location[0].replace("\\", "/")
        group = next((group for start, group in TOGETHER.items() if name.startswith(start)), name)
        if group != "tests/docs/test_pages.py":
            item.add_marker(pytest.mark.xdist_group(group))
    order = {start: place for place, start in enumerate(HEAVY)}
    items.sort(key=lambda i: min((p for s, p in order.items() if i.location[0].startswith(f"tests/{s}")), default=99))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List skipped tests by reason: a skipped test has proved nothing and must not look as if it had."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason.removeprefix("Skipped: ").removeprefix("did not run: ")] += 1
    if reasons:
        terminalreporter.section("did not run")
        for reason, count in reasons.most_common():
            terminalreporter.line(f"{count:4d} test{'s' * (count > 1)}: {reason}")
