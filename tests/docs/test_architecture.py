"""docs/architecture.md says what the code does: the layers of the import test, the files that small programs pass."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.docs.pages import DOCS, ROOT, blocks
from tests.repo.test_imports import FLOORS

PAGE = DOCS / "architecture.md"


def test_the_layers_are_those_of_the_import_rule():
    [drawn] = [block.text for block in blocks(PAGE) if block.kind == "text"]
    assert [set(line.split()) for line in reversed(drawn.splitlines())] == FLOORS
    there = {p.name for p in (ROOT / "src" / "clew").iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert there <= set().union(*FLOORS)


@pytest.mark.whole
def test_the_ways_are_those_that_are_taken():
    """Row by row but for the numbers: the engine's thread and the loop's may meet a file in either order."""
    pytest.importorskip("torch", reason="did not run: torch is not installed")
    command = [sys.executable, ROOT / "tools" / "architecture.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    text = PAGE.read_text()
    written = [
        text.partition(f"<!-- {name} -->\n")[2].partition(f"\n<!-- /{name} -->")[0] for name in ("training", "request")
    ]
    for now, then in zip(done.stdout.strip().split("\n\n"), written, strict=True):
        assert rows(now) == rows(then), "the way changed; if that is meant: python tools/architecture.py --write"


def rows(table: str) -> list[str]:
    found = [line.split("|", 2)[2].strip() for line in table.splitlines()[2:]]
    assert len(found) > 5
    return sorted(found)
