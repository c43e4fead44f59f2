"""Each example runs as a program, in an empty folder, with warnings as errors, and says what it promises to show."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT

SAYS = {
    "compare_credit": r"bellman: +\d+ of \d+ steps valued.*the worst run lost most at: \{'grpo': '\w+@\d+'",
    "endpoint": r"attempts of the first ask: \[\(503, 'warming up'\), \(200, ''\)\].*without the server: 10 Calls",
    "fork_at_token": r"recorded: .*\[[1-9]\d* forced, [1-9]\d* sampled\].*given whole: I would rather not\. \[forced\]",
    "resume_killed": r"killed with [1-9]\d* Calls .*\n16 runs, 16 ended.*\n16 of 16 records .* 0 faults",
    "sub_agents": r"20 replays of \d+ Calls, 0 asked of the model.*the child now found: {\"text\": \"bridges 0\"}",
    "tools": r"11 Calls replayed, no tool called\ntold 60 nuts: .*3 Calls shared",
}


ELSEWHERE = {"plain_coder"}  # an agent of `clew run --command`; tests/serve/test_program_world.py runs it


def test_every_example_is_here():
    assert {p.stem for p in (ROOT / "examples").glob("*.py")} == {*SAYS, *ELSEWHERE}


@pytest.mark.whole
@pytest.mark.parametrize("name", sorted(SAYS))
def test_example(name, tmp_path):
    command = [sys.executable, "-W", "error", ROOT / "examples" / f"{name}.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(SAYS[name], done.stdout, re.DOTALL), done.stdout
