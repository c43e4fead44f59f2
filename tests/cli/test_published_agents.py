"""Published coding agents, unmodified, where they are installed: recorded, checked out, forked, replayed, stopped.

``CLEW_AGENTS`` names the folder in which they are; the beginning of ``benchmarks/coding_agents.py``, which drives them
where there is no network, says how they come there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.coding_agents import AGENTS, HERE, MARKS, found

FOLDER = Path(os.environ["CLEW_AGENTS"]).resolve() if os.environ.get("CLEW_AGENTS") else None
THERE = {one.name for one in found(FOLDER)}
# what each is known to draw anew, some of which another machine or day may leave alone
MASKED = {
    "mini-swe-agent": {"ls: the folder above"},
    "Claude Code": {"field metadata", "date in a prompt"},
    "Codex": {"codex: item", "codex: chunk", "codex: date", "field prompt_cache_key", "field client_metadata"},
}


@pytest.mark.parametrize("name", [one.name for one in AGENTS])
def test_an_agent_is_recorded_forked_and_replayed_as_it_is(name: str, tmp_path: Path) -> None:
    if name not in THERE:
        pytest.skip(f"did not run: {name} is not installed in the folder that CLEW_AGENTS names")
    told = tmp_path / "told.json"
    line = [sys.executable, HERE / "benchmarks" / "coding_agents.py", FOLDER, "--only", name, "--json", told]
    done = subprocess.run(
        [*map(str, line), "--keep", str(tmp_path / "kept")], capture_output=True, text=True, timeout=900
    )
    assert told.is_file(), done.stderr
    (row,) = json.loads(told.read_text())
    assert {mark: bool(row[mark]) for mark in MARKS} == dict.fromkeys(MARKS, True), (tmp_path / "kept").as_posix()
    assert set(row["masked"]) >= MASKED[name]
    assert all("recorded on" in note or "variables" in note for note in row["named"]), row["named"]
