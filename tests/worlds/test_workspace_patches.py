"""Patches between two snapshots: every kind of change is told, within bounds, and git's own files in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clew.worlds.workspace import Patch, Scan, TreeShelf, patches


@pytest.fixture
def told(tmp_path: Path):
    shelf, work = TreeShelf(tmp_path / "shelf"), tmp_path / "work"
    work.mkdir()
    scan = Scan(work, shelf)

    def between(change) -> dict[str, Patch]:
        before = scan.snapshot().tree
        change(work)
        return {patch.path: patch for patch in patches(shelf, before, scan.snapshot().tree)}

    return between


def test_lines_modes_links_folders_and_kinds(told):
    def begin(work: Path) -> None:
        (work / "a.py").write_text("one\ntwo\n")
        (work / "run.sh").write_text("x")
        (work / "run.sh").chmod(0o644)
        (work / "gone").mkdir()
        os.symlink("a.py", work / "link")
        (work / "kind").write_text("file")

    first = told(begin)
    assert first["a.py"] == Patch("a.py", "+", "@@ -0,0 +1,2 @@\n+one\n+two")
    assert first["link"].text == "a link to a.py"
    assert first["gone"].text == "folder"

    def change(work: Path) -> None:
        (work / "a.py").write_text("one\nthree\n")
        (work / "run.sh").chmod(0o755)
        (work / "gone").rmdir()
        (work / "link").unlink()
        os.symlink("/etc/passwd", work / "link")
        (work / "kind").unlink()
        (work / "kind").mkdir()

    second = told(change)
    assert second["a.py"] == Patch("a.py", "*", "@@ -1,2 +1,2 @@\n one\n-two\n+three")
    assert second["run.sh"].text == "mode 644 became 755"
    assert second["gone"] == Patch("gone", "-", "folder")
    assert second["link"].text == "a link to a.py became a link to /etc/passwd"
    assert second["kind"].text == "a file of 4 bytes became a folder"


def test_what_is_binary_long_or_wide_is_bounded(told):
    def begin(work: Path) -> None:
        (work / "binary").write_bytes(b"\0\1")
        (work / "long").write_text("\n" * 5000)
        (work / "wide").write_text("x" * 100_000)
        (work / "many").write_text("".join(f"{i}\n" for i in range(3000)))

    found = told(begin)
    assert found["binary"].text == "0 bytes became 2, binary or too long to compare by lines"
    assert found["long"].text.startswith("0 bytes became 5,000")
    assert max(map(len, found["wide"].text.splitlines())) <= 401
    assert found["many"].text.endswith("more lines")
    assert len(found["many"].text.splitlines()) == 201


def test_git_is_told_in_one_line_wherever_it_lies(told):
    def begin(work: Path) -> None:
        for place in (".git", "inner/.git", "inner/__pycache__"):
            (work / place / "objects").mkdir(parents=True)
            (work / place / "HEAD").write_text("ref: refs/heads/main")
        (work / ".gitignore").write_text("made")

    found = told(begin)
    assert set(found) == {".git", "inner", "inner/.git", "inner/__pycache__", ".gitignore"}
    assert found[".git"].text == "3 entries changed, which a program keeps for itself"
