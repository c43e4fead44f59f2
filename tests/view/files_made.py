"""Runs in a folder as the world ``workspace`` records them, made by hand: without a sandbox, and with any files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clew.store import Keeper, Run
from clew.store.contract import Script, fork_at
from clew.worlds.workspace import Scan, TreeShelf, restore
from clew.worlds.workspace.tree_states import content_state

TASKSET = "workspace(folder='/nowhere')"
HOSTILE = [
    "new\nline.txt",
    "bidi\u202etxt.exe",
    "<script>window.hit=1<",
    "<img src=x onerror=window.hit=2>.py",
    "tab\there",
    "100%25 ?a=b&c#d%uDCE9",
    "quote\"'`.txt",
    " leading",
    "zero\u200bwidth",
    os.fsdecode(b"latin-\xe9"),
    "n" * 255,
]
EVIL = "<script>window.hit=3</script>\u202e\x1b[31mred\u2066\n"
Change = Callable[[Path], object]


class FolderRun:
    """Writes a run whose acts change a folder, each followed by a snapshot onto the shelf beside the store."""

    def __init__(self, store: Keeper, place: Path, name: str, script: Script | None = None) -> None:
        self.folder = place / f"work-{name}"
        self.shelf = TreeShelf(place / "files")
        self.script = script or Script(store, name, taskset=TASKSET, prompt="fix the failing test")
        self.store, self.states = store, dict[str, bytes]()

    def begin(self, change: Change) -> FolderRun:
        """The files that the run begins with."""
        self.folder.mkdir()
        self.scan = Scan(self.folder, self.shelf)
        change(self.folder)
        self.script.put("open", text="", **self._kept())
        return self

    def step(self, said: str, change: Change = lambda folder: None) -> FolderRun:
        """A reply, and an act that changes the files."""
        self.script.ask("and now?", said)
        change(self.folder)
        self.script.put("act", action=said, text="(exit status 0)", started=1e9, seconds=0.2, **self._kept())
        return self

    def end(self) -> Run:
        self.script.end("returned")
        self.store.commit()
        return Run(self.store, self.script.run)

    def fork(self, seq: int, name: str) -> FolderRun:
        """A branch at a Call, with the files that stood there in a folder of its own."""
        source = Run(self.store, self.script.run)
        kept = [call for call in source.calls[:seq] if call.snapshot]
        tree = json.loads(self.store.blob(kept[-1].snapshot))[1]
        place = self.folder.parent
        other = FolderRun(self.store, place, name, fork_at(self.store, source, seq, run=name, taskset=TASKSET))
        restore(self.shelf, tree, other.folder)
        other.scan = Scan(other.folder, self.shelf)
        return other

    def _kept(self) -> dict[str, Any]:
        tree = self.scan.snapshot().tree
        state = content_state(self.shelf, tree, self.states)
        return {"state": state, "snapshot": self.store.put_blob(json.dumps(["toy", tree, 9]).encode())}


def write(**files: str | bytes | None) -> Change:
    """Write files, or remove those that are None; in a name ``__`` stands for a slash and ``_py`` for ``.py``."""

    def change(folder: Path) -> None:
        for name, text in files.items():
            path = folder / name.replace("__", "/").replace("_py", ".py").replace("_txt", ".txt")
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                path.unlink()
            else:
                path.write_bytes(text if isinstance(text, bytes) else text.encode())

    return change


TOTAL = '''"""Sums and means of numbers."""


def total(numbers):
    """The sum of some numbers."""
    return sum(numbers) + 1


def mean(numbers):
    """Their mean; 0 where there are none."""
    if not numbers:
        return 0
    return total(numbers) / len(numbers)


def spread(numbers):
    return max(numbers) - min(numbers)
'''
LOOP = "    result = 0\n    for number in numbers:\n        result += number\n    return result\n"


def project(folder: Path) -> None:
    """A small project: a module with a mistake, its test, a note."""
    write(src__total_py=TOTAL, src__empty_py="", notes_txt="one\ntwo\n", test_py="assert total([1]) == 1\n")(folder)
    (folder / "run.sh").write_text("true\n")
    (folder / "run.sh").chmod(0o644)


def git(folder: Path) -> None:
    """What ``git init`` leaves, a little of it."""
    for name in ("HEAD", "objects/aa/1", "refs/heads/main"):
        (folder / ".git" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / ".git" / name).write_text("x")


def tidy(folder: Path) -> None:
    """Changes of every kind: a link, a mode, a file that goes, a folder that stays empty, bytes that are no text."""
    os.symlink("../src/total.py", folder / "link.py")
    (folder / "run.sh").chmod(0o755)
    (folder / "notes.txt").unlink()
    (folder / "made" / "empty").mkdir(parents=True)
    (folder / "made" / "data.bin").write_bytes(bytes(range(256)) * 20)


def family(store: Keeper, place: Path) -> tuple[FolderRun, FolderRun]:
    """A run of five acts and a branch from its second reply; both mend the same function, in two ways."""
    first = FolderRun(store, place, "first").begin(project)
    first.step("ls")  # 2: changes nothing
    first.step("mend", write(src__total_py=TOTAL.replace(" + 1", "")))  # 4
    first.step("git init", git)  # 6
    first.step("tidy", tidy)  # 8
    first.step("touch", lambda folder: os.utime(folder / "test.py", (1, 1)))  # 10: changes nothing but a time
    other = first.fork(3, "second")
    other.step("mend by a loop", write(src__total_py=TOTAL.replace("    return sum(numbers) + 1\n", LOOP)))
    other.step("note", write(notes_txt="one\nTWO\nthree\n"))
    first.end()
    other.end()
    return first, other
