"""Globs over what changed between two snapshots, and what changed in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from clew.core.errors import BadInput
from clew.worlds.workspace import Scan, TreeShelf
from clew.worlds.workspace.tree_edits import edited, glob, told

MATCHES = {
    "tests/**": ("tests/a.py", "tests/deep/er/b.py", "tests/new folder/\n.py"),
    "tests/*": ("tests/a.py", "tests/deep"),
    "**/test_*.py": ("test_x.py", "a/test_x.py", "a/b/test_y.py"),
    "src/?.py": ("src/a.py",),
    "src/[ab].py": ("src/a.py", "src/b.py"),
    "src/[!a].py": ("src/b.py",),
    "a.b+c": ("a.b+c",),
    "[x": ("[x",),
    "**": ("a", "a/b"),
}
MISSES = {
    "tests/**": ("tests", "mytests/a.py", "a/tests/a.py"),
    "tests/*": ("tests/deep/b.py", "test/a.py"),
    "**/test_*.py": ("test_x.pyc", "a/test/x.py", "contest_x.py"),
    "src/?.py": ("src/ab.py", "src//.py"),
    "src/[ab].py": ("src/c.py", "src/ab.py"),
    "src/[!a].py": ("src/a.py", "src//.py"),
    "a.b+c": ("axb+c", "a.bbc"),
}


@pytest.mark.parametrize("pattern", MATCHES)
def test_a_glob_matches_whole_paths(pattern):
    assert [path for path in MATCHES[pattern] if not glob(pattern).fullmatch(path)] == []
    assert [path for path in MISSES.get(pattern, ()) if glob(pattern).fullmatch(path)] == []


@pytest.mark.parametrize("pattern", ["", "/", "/etc/passwd", "../x", "./x", "[b-a]"])
def test_what_no_path_can_match_is_refused(pattern):
    with pytest.raises(BadInput):
        glob(pattern)


def test_what_changed_leaves_out_what_programs_keep_for_themselves(tmp_path):
    folder, shelf = tmp_path / "folder", TreeShelf(tmp_path / "shelf")

    def state(**files: str | None) -> str:
        for name, text in files.items():
            path = Path(folder, name.replace("__", "/", 1))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink() if text is None else path.write_text(text)
        return Scan(folder, shelf).snapshot().tree

    (folder / ".git").mkdir(parents=True)
    (folder / "tests" / "__pycache__").mkdir(parents=True)
    before = state(tests__a="1", b="1", c="1")
    assert edited(shelf, before, before) == {}
    (folder / ".git" / "HEAD").write_text("x")
    (folder / "tests" / "__pycache__" / "a.pyc").write_text("x")
    assert edited(shelf, before, state(), "**") == {}
    assert set(edited(shelf, before, state(), ".git/**")) == {".git/HEAD"}
    after = state(tests__a="2", b=None, new="1")
    assert set(edited(shelf, before, after, "tests/**")) == {"tests/a"}
    assert told(shelf, before, after) == "-b  +new  *tests/a"
    assert told(shelf, before, after, 1) == "-b and 2 more"
    assert told(shelf, after, after) == ""
