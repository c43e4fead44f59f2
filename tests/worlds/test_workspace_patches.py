"""Patches between two snapshots: every kind of change is told, within bounds, and git's own files in one line."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from clew.worlds.workspace import Patch, Scan, TreeShelf, patches
from clew.worlds.workspace.tree_changes import changes, each_change
from clew.worlds.workspace.tree_lines import Hunk, counts, hunks, lines_of
from clew.worlds.workspace.tree_upkeep import erase


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


def applied(before: list[str], found: list[Hunk]) -> list[str]:
    """The second text, made of the first and of what changed; each kept line is checked on both sides."""
    after, at = list[str](), 0
    for hunk in found:
        start = hunk.old - any(sign in " -" for sign, _ in hunk.rows)
        after += before[at:start]
        at = start
        assert hunk.new == len(after) + any(sign in " +" for sign, _ in hunk.rows)
        for sign, line in hunk.rows:
            if sign in " -":
                assert before[at] == line
                at += 1
            if sign in " +":
                after.append(line)
    return after + before[at:]


@pytest.mark.parametrize("around", [0, 3])
def test_hunks_turn_the_first_text_into_the_second(around):
    rng = random.Random(around)
    for _ in range(200):
        before, after = ([str(rng.randrange(6)) for _ in range(rng.randrange(40))] for _ in range(2))
        if rng.random() < 0.7:  # most texts are edits of each other
            after = list(before)
            for _ in range(rng.randrange(4)):
                at = rng.randrange(len(after) + 1)
                after[at : at + rng.randrange(3)] = [str(rng.randrange(6)) for _ in range(rng.randrange(3))]
        found = hunks(before, after, around)
        assert found is not None
        assert applied(before, found) == after
        assert (found == []) is (before == after)
        added, removed = counts(found)
        assert added - removed == len(after) - len(before)


def test_a_long_file_is_compared_where_it_changed_and_a_comparison_ends():
    lines = [f"line {i}" for i in range(50_000)]
    changed = [*lines[:30_000], "new", *lines[30_001:]]
    assert counts(hunks(lines, changed, 3)) == (1, 1)
    assert hunks(lines, lines[::-1], 3) is None
    other = [line if i % 2 else f"x{i}" for i, line in enumerate(lines[:4000])]
    found = hunks(lines[:4000], other, 3)  # takes more steps than a comparison has: what is left counts as replaced
    assert applied(lines[:4000], found) == other
    assert counts(found)[0] > 2000


def test_a_text_that_is_no_utf8_or_ends_without_newline_is_told_apart(told):
    told(lambda work: (work / "latin").write_bytes(b"caf\xe9\n"))
    found = told(lambda work: (work / "latin").write_bytes(b"caf\xe8"))
    assert found["latin"].text == "@@ -1 +1,2 @@\n-caf\udce9\n+caf\udce8\n+(no newline at the end)"
    assert counts(hunks(lines_of(b"one"), lines_of(b"one\n"), 3)) == (0, 0)


def test_what_was_erased_is_named_and_the_rest_is_shown(tmp_path):
    shelf, work = TreeShelf(tmp_path / "shelf"), tmp_path / "work"
    work.mkdir()
    scan = Scan(work, shelf)
    (work / "secret").write_text("hunter2\n")
    (work / "other").write_text("one\n")
    before = scan.snapshot().tree
    erase(shelf, [entry.key for path, entry in shelf.walk(before) if path == "secret"])
    (work / "secret").write_text("changed\n")
    (work / "other").write_text("two\n")
    seen = TreeShelf(tmp_path / "shelf", readonly=True)
    found = {patch.path: patch.text for patch in patches(seen, before, scan.snapshot().tree)}
    assert found == {"secret": "before: erased from all snapshots", "other": "@@ -1 +1 @@\n-one\n+two"}


def test_a_shelf_that_is_only_read_makes_nothing(tmp_path):
    TreeShelf(tmp_path / "none", readonly=True)
    assert not (tmp_path / "none").exists()


def test_changes_are_found_one_by_one_a_folder_before_what_it_holds(tmp_path):
    shelf, work = TreeShelf(tmp_path / "shelf"), tmp_path / "work"
    for name in ("a/b/c", "a-b", "d"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(name)
    tree = Scan(work, shelf).snapshot().tree
    assert [path for path, _, _ in each_change(shelf, "", tree)] == ["a", "a/b", "a/b/c", "a-b", "d"]
    assert list(changes(shelf, "", tree)) == ["a", "a-b", "a/b", "a/b/c", "d"]
    assert list(each_change(shelf, tree, tree)) == []
