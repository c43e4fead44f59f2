"""The filtered view of a repository, and the index behind it.

Diagnoses read it. The index is one SQLite file that maps a content (blob id and how it was read) to its ``Digest``. It
must never be stale: a changed file has another content and is read; unchanged content, at any commit, is not read
again.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from clew.coding.repository.digest import VERSION, Digest
from clew.coding.repository.git import Entry, Git
from clew.coding.repository.languages import left_out, read_as
from clew.coding.repository.workers import digests
from clew.core.errors import BadInput

LARGEST = 1_000_000  # bytes of a file that is read
APART = 400  # files to read from which on several processes share the work
LOT = 64  # files handed to a process at once


class Index:
    """Digests by content.

    Args:
        path: file to keep them in; None keeps them in memory. A file that cannot be written or is damaged is not
            used, and ``note`` says so: the index saves time only.
    """

    def __init__(self, path: Path | str | None = None) -> None:
        self.note = ""
        self.held: dict[str, Digest] = {}
        self.path = Path(path) if path is not None else None
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._open()) as base, base:
                base.execute("CREATE TABLE IF NOT EXISTS digest (key TEXT PRIMARY KEY, data BLOB)")
        except (OSError, sqlite3.Error) as error:
            self.note, self.path = f"no warm index: {self.path}: {error}", None

    def _open(self) -> sqlite3.Connection:
        assert self.path is not None
        return sqlite3.connect(self.path, timeout=10)

    def load(self, keys: Iterable[str]) -> None:
        """Bring the digests of these keys into memory, as far as they are kept."""
        wanted = [key for key in keys if key not in self.held]
        if self.path is None or not wanted:
            return
        try:
            with closing(self._open()) as base:
                for k in range(0, len(wanted), 500):
                    some = wanted[k : k + 500]
                    marks = ",".join("?" * len(some))
                    for key, data in base.execute(f"SELECT key, data FROM digest WHERE key IN ({marks})", some):
                        self.held[key] = Digest(data)
        except (sqlite3.Error, ValueError) as error:
            self.note = f"no warm index: {self.path}: {error}"

    def keep(self, found: dict[str, Digest]) -> None:
        self.held.update(found)
        if self.path is None or not found:
            return
        try:
            with closing(self._open()) as base, base:
                rows = [(key, d.packed) for key, d in found.items()]
                base.executemany("INSERT OR REPLACE INTO digest VALUES (?, ?)", rows)
        except sqlite3.Error as error:
            self.note = f"the index was not kept: {self.path}: {error}"


def key(entry: Entry) -> str:
    return f"{entry.blob}:{read_as(entry.path)}:{VERSION}"


class View:
    """The files of a repository that a diagnosis looks at.

    Args:
        repo: folder of a git repository; or a Git.
        commit: which snapshot; empty for the working tree (of a bare repository: HEAD).
        index: where digests are kept.
        progress: called with how many of how many files have been read.

    Attributes:
        files: entries by path. dropped: how many files were left out, by reason. digests: by path. listed: every entry
            that there was when the view was made.

    Raises:
        BadInput: not a git repository, no such commit, or no file is left to look at.
    """

    def __init__(
        self,
        repo: Path | str | Git,
        commit: str = "",
        index: Index | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.git = repo if isinstance(repo, Git) else Git(repo)
        self.commit = self.git.commit(commit) if commit else ""
        self.index = index or Index()
        self.dropped: Counter[str] = Counter()
        self.files: dict[str, Entry] = {}
        self.listed = self.git.entries(self.commit)
        for entry in self.listed:
            why = left_out(entry.path) or ("over 1 MB" if entry.size > LARGEST else "")
            if why:
                self.dropped[why] += 1
            else:
                self.files[entry.path] = entry
        read(self.git, list(self.files.values()), self.index, progress)
        self.digests = {p: self.index.held[key(e)] for p, e in self.files.items() if key(e) in self.index.held}
        for path in [
            p for p, e in self.files.items() if p not in self.digests or (e.size and not self.digests[p].lines)
        ]:
            self.dropped["binary"] += 1  # empty files stay: an empty __init__.py makes a package
            del self.files[path]
            self.digests.pop(path, None)
        if not self.files:
            raise BadInput(
                f"{self.git.folder}: no file to look at ({dict(self.dropped) or 'the repository is empty'})",
                remedy="Documentation, build output, dependencies, binary and very large files are not looked at.",
            )

    def present(self) -> View:
        """This view; where the working tree is another than when it was made, a new one."""
        same = self.commit or self.git.entries() == self.listed
        return self if same else View(self.git, "", self.index)

    def text(self, path: str) -> str:
        """The content of a file of the view, undecodable bytes replaced."""
        for _, content in self.git.contents([self.files[path]]):
            return content.decode("utf-8", "replace")
        return ""


def read(git: Git, entries: Sequence[Entry], index: Index, progress: Callable[[int, int], None] | None = None) -> None:
    """Make sure that the index has the digest of every entry; several processes read where there is much to read."""
    wanted = {key(e): e for e in entries}
    index.load(wanted)
    missing = {k: e for k, e in wanted.items() if k not in index.held}
    if not missing:
        return
    told = Counter[str]()

    def take(lot: list[tuple[str, Digest]]) -> None:
        index.keep(dict(lot))
        told["read"] += len(lot)
        if progress:
            progress(told["read"], len(missing))

    workers = min(len(os.sched_getaffinity(0)), 4) if len(missing) >= APART else 0
    digests(_lots(git, missing), take, workers)


def _lots(git: Git, missing: dict[str, Entry]) -> Iterator[list[tuple[str, str, bytes]]]:
    """(key, how it is read, content) of what is missing, some files at a time."""
    names = {(e.blob, e.path): k for k, e in missing.items()}
    lot: list[tuple[str, str, bytes]] = []
    for entry, content in git.contents(list(missing.values())):
        lot.append((names[entry.blob, entry.path], read_as(entry.path), content))
        if len(lot) == LOT:
            yield lot
            lot = []
    yield lot
