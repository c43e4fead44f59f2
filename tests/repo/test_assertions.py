"""A run of the whole suite fails where an assertion of a test file never ran."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HOLLOW = """
import pytest

def test_of_nothing():
    for value in []:
        assert value > 0

@pytest.mark.parametrize("n", [1, 2])
def test_sound(n):
    assert n

@pytest.mark.skip("no GPU here")
def test_left_out():
    assert helper()

def helper():
    assert True
    return True
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of one test file that loads the same check."""
    (tmp_path / "tests").mkdir()
    shutil.copy(Path(__file__).parents[1] / "assertions.py", tmp_path / "tests")
    (tmp_path / "tests" / "conftest.py").write_text('pytest_plugins = ["tests.assertions"]')
    (tmp_path / "tests" / "test_hollow.py").write_text(HOLLOW)
    ini = "[pytest]\ntestpaths = tests\npythonpath = .\nenable_assertion_pass_hook = true\n"
    (tmp_path / "pytest.ini").write_text(f"{ini}addopts = --import-mode=importlib -p no:cacheprovider\n")
    return tmp_path


def run(project: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments], cwd=project, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("processes", [(), ("-n", "2")])
def test_assertion_that_never_ran_fails_the_run(project: Path, processes: tuple[str, ...]) -> None:
    code, out = run(project, *processes)
    assert code == 1
    assert "assertions that never ran" in out
    assert [line for line in out.splitlines() if line.startswith("tests/test_hollow.py:")] == ["tests/test_hollow.py:6"]


def test_nothing_is_said_of_a_part_of_the_tests(project: Path) -> None:
    assert run(project, "-k", "sound")[0] == 0


def test_all_assertions_held(project: Path) -> None:
    file = project / "tests" / "test_hollow.py"
    file.write_text(HOLLOW.replace("in []", "in [1]"))
    assert run(project)[0] == 0
