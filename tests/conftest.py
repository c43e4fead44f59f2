"""What all tests share: data outside the repository, and a closing word on what did not run and why."""

from __future__ import annotations

import gc
import json
import re
import signal
from collections import Counter
from pathlib import Path

import hypothesis
import pytest

from clew.core import registry

pytest_plugins = ["tests.assertions"]

# A run holds a million objects of tests and libraries: to look for cycles among them as often as usual took a tenth.
gc.set_threshold(50_000, 20, 20)

# A script's `&` starts programs with SIGINT ignored, what they start inherits it, and tests interrupt what they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

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


QUICK = "not whole"
"""The marker expression of `make test`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep-durations", action="store_true", help="write tests/durations.json at the end")


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


INSTALLS = (
    (r"CLEW_AGENTS", "CLEW_AGENTS=FOLDER, where that agent is installed"),
    (r"lang(graph|mem|chain)|autogen|smolagents|pydantic_ai", "make frameworks"),
    (r"bubblewrap|bwrap|control group|user namespaces|mounted", "apt-get install bubblewrap"),
    (r"Chromium", "apt-get install chromium"),
    (r"PostgreSQL", "apt-get install postgresql"),
    (r"gcc|objdump|g\+\+|C compiler", "apt-get install gcc g++ binutils"),
    (r"gymnasium|textworld|inspect", "make extras"),
    (r"make (\w+)", r"make \1"),
    (r"verl\b", "pip install verl==0.9.1"),
    (r"TRL|trl\b", "pip install -e '.[trl]'"),
    (r"Ray\b", "pip install -e '.[ray]'"),
    (r"(CLEW_\w+=\d+)", r"\1 make test-all"),
    (r"CUDA|nvcc|GPU", "a machine with an NVIDIA GPU and its toolkit"),
    (r"AVX2|x86|\bArm\b", "another processor"),
    (r"\bshared\b", "a copy of the project's data in ../shared"),
)
"""What a reason for not running says -> what brings it, printed beside it."""


def remedy(reason: str) -> str:
    """The one line that lets a skipped test run; empty where none is known."""
    for pattern, line in INSTALLS:
        if found := re.search(pattern, reason):
            return found.expand(line)
    named = re.search(r"(\w[\w.-]*) is not installed", reason)
    return f"pip install {named[1]}" if named else ""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List what did not run, by reason, with the line that installs it: a skipped test has proved nothing."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[re.sub(r"^(Skipped: )?((did not run|NOT RUN): )?", "", reason)] += 1
    if reasons or config.option.markexpr:
        terminalreporter.section("did not run")
        for reason, count in reasons.most_common():
            line = remedy(reason)
            terminalreporter.line(f"{count:4d} test{'s' * (count > 1)}: {reason}{f'  ->  {line}' if line else ''}")
        if config.option.markexpr == QUICK:
            terminalreporter.line("   and the tests that are marked `whole`: they take longest  ->  make test-all")
    if config.option.keep_durations:
        keep_durations(terminalreporter)


def keep_durations(reporter: pytest.TerminalReporter) -> None:
    """Write what each file and the 60 slowest tests took, in seconds of this machine, for `make check` and readers."""
    files: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for report in (r for reports in reporter.stats.values() for r in reports if isinstance(r, pytest.TestReport)):
        files[report.nodeid.partition("::")[0]] += report.duration
        tests[report.nodeid] += report.duration
    kept = {
        "files": {name: round(files[name], 1) for name in sorted(files)},
        "slowest": {name: round(seconds, 1) for name, seconds in tests.most_common(60)},
    }
    (Path(__file__).parent / "durations.json").write_text(json.dumps(kept, indent=1) + "\n")
