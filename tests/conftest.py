"""What all tests share: data outside the repository, and a closing word on what did not run and why."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path

import hypothesis
import pytest

from clew.core import registry

pytest_plugins = ["tests.assertions"]

# A run holds a million objects of tests and libraries: to look for cycles among them as often as usual took a tenth.
gc.set_threshold(50_000, 20, 20)

UNTIMED = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("untimed", **UNTIMED)  # a busy machine fails no test
hypothesis.settings.load_profile("untimed")

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
HEAVY = (  # those that take longest first: what one process has alone at the end, the others wait for
    "view/browser", "cli/test_every_verb", "docs/test_pages", "docs/test_readme", "reproduce/test_e16",
    "coding/test_git", "cli/test_references", "train", "harness/test_resume", "serve", "coding", "cli",
    "engine", "audit",
)  # fmt: skip


def group_of(nodeid: str) -> str:
    """Which tests run in one process, for several of them: a file's tests share what its fixtures made."""
    name = nodeid.partition("::")[0]
    group = next((group for start, group in TOGETHER.items() if name.startswith(start)), name)
    return nodeid if group == "tests/docs/test_pages.py" else group  # pages of the docs share nothing


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist, whose own groups pytest 9 does not see
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroup(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Folders whose tests take long come first, so that no process is left with them at the end."""
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
