"""The README's program runs as it stands, and its two commands are in the Makefile."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT, blocks

pytestmark = pytest.mark.whole

README = ROOT / "README.md"


@pytest.mark.timeout(600)
def test_the_program_runs_as_it_stands(tmp_path):
    """In an empty folder, as a program of its own; the weights are those of the checkout, made if absent."""
    (program,) = [block.text for block in blocks(README) if block.kind == "python"]
    (tmp_path / "program.py").write_text(program)
    (ROOT / ".clew" / "models").mkdir(parents=True, exist_ok=True)
    (tmp_path / ".clew").mkdir()
    (tmp_path / ".clew" / "models").symlink_to(ROOT / ".clew" / "models")
    command = [sys.executable, "-W", "error", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=560, check=False)
    assert done.returncode == 0, done.stderr
    first, head, *threads = done.stdout.splitlines()
    success = re.fullmatch(r"(0\.\d\d|1\.00) \[\d\.\d\d, \d\.\d\d\] n=64", first)
    assert success, first
    assert 0.1 < float(success[1]) < 0.95
    assert re.fullmatch(r"run \w{12}  house-\d+  \d+ calls, \d+ shared", head), head
    assert len(threads) == 5
    assert threads[0].endswith("(recorded)")
    assert all(re.search(r"@\d+  > .+   reward [01]  \w+", thread) for thread in threads)


def test_the_program_is_about_ten_lines():
    (program,) = [block.text for block in blocks(README) if block.kind == "python"]
    code = [line for line in program.splitlines() if line.strip()]
    assert len(code) <= 20
    assert max(map(len, code)) <= 115


def test_the_two_commands_are_in_the_makefile():
    make = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^    make (\w+)", README.read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", make, re.MULTILINE), target
