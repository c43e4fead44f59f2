"""What the rooms of the house may know of each other, beyond which way imports run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "clew"
HANDLES = ("_run", "_state")  # how LiveRun, Path and what is made of them hold the run's state


def members_read(tree: ast.AST) -> set[str]:
    """Members of a RunState that a file reads: of what is annotated as one, or held as agents' objects hold it."""
    named = {
        place.arg if isinstance(place, ast.arg) else ast.unparse(place.target)
        for place in ast.walk(tree)
        if isinstance(place, (ast.arg, ast.AnnAssign))
        and place.annotation is not None
        and "RunState" in ast.unparse(place.annotation)
    }
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and (
            ast.unparse(node.value) in named
            or (isinstance(node.value, ast.Attribute) and node.value.attr in HANDLES and "LiveRun" in ast.unparse(tree))
        )
    }


@pytest.mark.whole
def test_outside_its_room_at_most_five_members_of_a_runs_state_are_read():
    read = {
        path.relative_to(SOURCE).as_posix(): members_read(ast.parse(path.read_text()))
        for path in sorted(SOURCE.rglob("*.py"))
        if path.parent != SOURCE / "harness" / "run"
    }
    assert {path: sorted(names) for path, names in read.items() if len(names) > 5} == {}
    assert read["harness/verdicts.py"], "the check sees what is read"


def test_members_of_a_runs_state_are_counted_as_they_are_read():
    text = "def f(run: RunState | None, other: int): return run.seq, run.world.close(), other.real"
    assert members_read(ast.parse(text)) == {"seq", "world"}
    assert members_read(ast.parse("def f(run: LiveRun): return run._run.clock")) == {"clock"}
