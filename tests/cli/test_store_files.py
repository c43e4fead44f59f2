"""clew store gc, redact, verify and merge, on the files of runs that lie on the shelf beside the store."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from clew.core.errors import UnknownName
from clew.core.records import Annotation
from clew.serve.gateway.run_files import noted
from clew.store import open_store
from clew.worlds.workspace import Scan, TreeShelf, restore
from clew.worlds.workspace.tree_upkeep import erase

SECRET = "TOKEN=hunter2-and-more-of-it\n"


def note(store, run: str, number: int | str, snapshot) -> None:
    told = {"tree": snapshot.tree, "state": snapshot.state, "left": 0}
    store.annotate([noted(run, number, told)])
    store.commit()


@pytest.fixture
def filed(store, tmp_path) -> tuple[Path, list[str], list[str]]:
    """A store two runs of which have files, noted long ago: one that a tag keeps, one that nothing does."""
    opened, shelf, work = open_store(store), TreeShelf(tmp_path / "files"), tmp_path / "work"
    (work / "config").mkdir(parents=True)
    (work / "shared.py").write_text("in both runs\n")
    (work / "__init__.py").write_text("")
    scan, trees = Scan(work, shelf), []
    runs = opened.run_ids()[:2]
    for number, run in enumerate(runs):
        (work / "own.py").write_text(f"of run {number}\n" * 50)
        (work / "config" / "secrets.env").write_text(SECRET + f"{number}\n")
        (work / "copy.txt").write_text(SECRET + f"{number}\n")
        snapshot = scan.snapshot()
        trees.append(snapshot.tree)
        note(opened, run, number, snapshot)
    opened.close()
    old(shelf)
    return store, runs, trees


def old(shelf: TreeShelf) -> None:
    """As if the last snapshot was long ago."""
    for mark in (shelf.folder / "recent").iterdir():
        os.utime(mark, (1, 1))


def ungroup(store: Path) -> None:
    """Take the groups away that would keep the runs."""
    db = sqlite3.connect(store)
    with db:
        db.execute("DELETE FROM grp")
    db.close()


def size_of(shelf: TreeShelf) -> int:
    return sum(path.stat().st_size for path in shelf.folder.glob("??/*"))


def test_gc_lists_and_removes_the_files_that_only_removed_runs_need(clew, filed, tmp_path):
    store, runs, trees = filed
    shelf = TreeShelf(tmp_path / "files")
    clew("store", "tag", "keep", runs[1], "--store", store)
    ungroup(store)
    before = size_of(shelf)
    listed = json.loads(clew("store", "gc", "--store", store, "--json").output)
    assert runs[0] in listed["runs"]
    assert runs[1] not in listed["runs"]
    assert listed["files"] >= 4
    assert size_of(shelf) == before
    assert (
        f"{listed['files']} files of runs with {listed['bytes']:,} bytes"
        in clew("store", "gc", "--store", store).output
    )
    done = json.loads(clew("store", "gc", "--yes", "--store", store, "--json").output)
    assert (done["files"], done["bytes"]) == (listed["files"], listed["bytes"])
    assert size_of(shelf) == before - listed["bytes"]
    restore(shelf, trees[1], tmp_path / "back")
    assert (tmp_path / "back" / "own.py").read_text().startswith("of run 1")
    assert json.loads(clew("store", "verify", "--store", store, "--json").output)["faults"] == []
    assert json.loads(clew("store", "gc", "--store", store, "--json").output)["files"] == 0


def test_gc_keeps_what_a_store_beside_needs_and_refuses_where_it_cannot_read_one(clew, filed, tmp_path):
    store, _, trees = filed
    shelf = TreeShelf(tmp_path / "files")
    shutil.copy(store, tmp_path / "beside without a suffix")
    ungroup(store)
    done = json.loads(clew("store", "gc", "--yes", "--store", store, "--json").output)
    assert (done["files"], bool(done["runs"])) == (0, True)
    for number, tree in enumerate(trees):
        restore(shelf, tree, tmp_path / f"back{number}")
    (tmp_path / "other.sqlite").touch()
    sqlite3.connect(tmp_path / "other.sqlite").execute("CREATE TABLE foreign_one (a)").connection.close()
    assert json.loads(clew("store", "gc", "--store", store, "--json").output)["files"] == 0
    whole = (tmp_path / "beside without a suffix").read_bytes()
    (tmp_path / "broken.db").write_bytes(whole[:100] + b"\xff" * 4000 + whole[4100:])
    (tmp_path / "beside without a suffix").unlink()
    refused = clew("store", "gc", "--yes", "--store", store, code=None)
    assert refused.exit_code != 0
    assert "broken.db" in refused.output
    restore(shelf, trees[0], tmp_path / "still")


def test_gc_keeps_snapshots_that_a_run_is_about_to_name(clew, filed, tmp_path):
    store, _, _ = filed
    shelf = TreeShelf(tmp_path / "files")
    (tmp_path / "work" / "fresh.py").write_text("just now\n")
    snapshot = Scan(tmp_path / "work", TreeShelf(tmp_path / "files")).snapshot()
    ungroup(store)
    assert json.loads(clew("store", "gc", "--yes", "--store", store, "--json").output)["runs"]
    restore(shelf, snapshot.tree, tmp_path / "back")
    old(shelf)
    assert json.loads(clew("store", "gc", "--yes", "--store", store, "--json").output)["bytes"] > 0
    assert size_of(shelf) == 0


def test_a_redacted_file_is_gone_from_all_snapshots_and_the_rest_comes_back(clew, filed, tmp_path):
    store, runs, trees = filed
    line = ("store", "redact", runs[0], "--files", "config/secrets.env", "--store", store)
    asked = clew(*line, input="n\n", code=130)
    assert "copy.txt" in asked.output
    told = json.loads(clew(*line, "--yes", "--json").output)
    assert told["paths"] == ["config/secrets.env", "copy.txt"]
    assert len(told["erased"]) == 1
    shelf = TreeShelf(tmp_path / "files")
    kept = b"".join(path.read_bytes() for path in shelf.folder.rglob("*") if path.is_file())
    assert (SECRET + "0\n").encode() not in kept
    assert (SECRET + "1\n").encode() in kept
    assert json.loads(clew("store", "verify", "--store", store, "--json").output)["faults"] == []
    missing = list[str]()
    restore(shelf, trees[0], tmp_path / "back", erased=missing)
    assert sorted(missing) == ["config/secrets.env", "copy.txt"]
    assert (tmp_path / "back" / "shared.py").is_file()
    assert "config/secrets.env" in dict(shelf.walk(trees[0]))
    (tmp_path / "work" / "config" / "secrets.env").write_text(SECRET + "0\n")
    again = Scan(tmp_path / "work", shelf).snapshot()
    with pytest.raises(UnknownName, match=r"config/secrets\.env was erased from the shelf"):
        restore(shelf, again.tree, tmp_path / "again")
    assert "the contents were erased before" in clew(*line, "--yes").output


def test_the_copy_that_git_keeps_of_a_redacted_file_goes_too(clew, filed, tmp_path):
    store, runs, _ = filed
    work, shelf = tmp_path / "work", TreeShelf(tmp_path / "files")
    for words in (["init", "-q"], ["add", "copy.txt"]):
        subprocess.run(["git", *words], cwd=work, check=True, env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    opened = open_store(store)
    note(opened, runs[1], 7, snapshot := Scan(work, shelf).snapshot())
    opened.close()
    told = json.loads(
        clew("store", "redact", runs[1], "--files", "copy.txt", "--yes", "--store", store, "--json").output
    )
    missing = list[str]()
    restore(shelf, snapshot.tree, tmp_path / "back", erased=missing)
    assert sorted(missing) == told["paths"]
    assert [path for path in missing if path.startswith(".git/objects/")]
    assert (tmp_path / "back" / ".git" / "index").is_file()


def test_what_redact_cannot_find_is_named(clew, filed, tmp_path):
    store, runs, _ = filed
    line = ("store", "redact", runs[0], "--yes", "--store", store, "--files")
    assert "has content at nothing.txt" in clew(*line, "nothing.txt", code=2).output
    assert "has content at __init__.py" in clew(*line, "__init__.py", code=2).output  # all empty files are one
    told = json.loads(clew(*line, "config", "--json").output)
    assert len(told["erased"]) == 1
    bare = open_store(store).run_ids()[-1]
    done = clew("store", "redact", bare, "--yes", "--store", store, "--files", "own.py", code=2)
    assert "was recorded without its files" in done.output


def test_verify_names_the_run_and_the_file_whose_content_was_altered_or_lost(clew, filed, tmp_path):
    store, runs, trees = filed
    shelf = TreeShelf(tmp_path / "files")
    entries = dict(shelf.walk(trees[0]))
    altered, lost = (Path(shelf._place(entries[name].key)) for name in ("own.py", "copy.txt"))
    altered.chmod(0o644)
    altered.write_text("other")
    lost.unlink()
    found = clew("store", "verify", "--store", store, code=1).output
    assert f"{runs[0]}: the files: own.py: the object {entries['own.py'].key} was changed on the disk" in found
    assert "the shelf has no object" in found
    assert "2 faults" in found
    opened = open_store(store)
    opened.annotate([Annotation("run", "files", run=runs[1], params="00000009", data='{"tree": "../../etc"}')])
    opened.close()
    found = clew("store", "verify", "--store", store, code=1).output
    assert f"{runs[1]}: an annotation of files that is damaged" in found
    assert clew("store", "gc", "--yes", "--store", store, code=2).output  # nobody knows what it needed
    shutil.rmtree(shelf.folder)
    assert (
        "there is no files/ beside the store, and its runs name snapshots: 1"
        in clew("store", "verify", "--store", store, code=1).output
    )
    assert not shelf.folder.exists()


def test_merge_takes_the_files_along_and_erasures_win(clew, filed, tmp_path):
    store, _, trees = filed
    shelf = TreeShelf(tmp_path / "files")
    secret = next(entry.key for path, entry in shelf.walk(trees[0]) if path == "copy.txt")
    home = tmp_path / "home"
    home.mkdir()
    told = json.loads(clew("store", "merge", store, "--store", home / "all.db", "--json").output)
    assert told[str(store)]["bytes of files"] == size_of(shelf)
    here = TreeShelf(home / "files")
    for number, tree in enumerate(trees):
        restore(here, tree, tmp_path / f"back{number}")
    assert json.loads(clew("store", "verify", "--store", home / "all.db", "--json").output)["faults"] == []
    erase(shelf, [secret])
    again = json.loads(clew("store", "merge", store, "--store", home / "all.db", "--json").output)
    assert "bytes of files" not in again[str(store)]
    assert secret not in TreeShelf(home / "files")
