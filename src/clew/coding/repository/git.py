"""Reads git repositories by plumbing commands alone.

The repository index calls it. A file is named by its path and its blob id, git's own digest of its content, so that
what was learnt of a content holds for every commit and working tree that has it. It must never check out or write
anything.
"""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from clew.core.errors import BadInput


class Entry(NamedTuple):
    """A file of a repository. ``size`` in bytes; ``disk`` where its content lies, if in the working tree."""

    path: str
    blob: str
    size: int
    disk: str = ""


class Git:
    """A repository: a working tree, or a bare one.

    Raises:
        BadInput: the folder does not exist, is not in a git repository, or git is not installed.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise BadInput(f"{folder} is not a folder", remedy="Name the folder of a git repository.")
        told = self.run("rev-parse", "--absolute-git-dir", "--is-bare-repository").decode().splitlines()
        self.home, self.bare = Path(told[0]), told[1] == "true"
        if not self.bare:
            self.folder = Path(self.run("rev-parse", "--show-toplevel").decode().rstrip("\n") or self.folder)

    def run(self, *words: str, given: bytes | None = None) -> bytes:
        """What a git command prints.

        Raises:
            BadInput: it failed; the message is git's own.
        """
        command = ["git", "-c", "core.quotePath=false", "-C", str(self.folder), *words]
        try:
            done = subprocess.run(command, input=given, capture_output=True, check=False)
        except FileNotFoundError:
            raise BadInput("git is not installed", remedy="Install it; repositories are read through it.") from None
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines() or [f"git {words[0]} failed"]
            remedy = "Make it one with `git init`, or name another folder." if "not a git" in said[0] else ""
            raise BadInput(f"{self.folder}: {said[0].removeprefix('fatal: ')}", remedy=remedy)
        return done.stdout

    def commit(self, name: str) -> str:
        """The full id of a commit.

        Raises:
            BadInput: the repository has none of that name.
        """
        try:
            return self.run("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}").decode().strip()
        except BadInput as error:
            raise BadInput(f"{self.folder}: there is no commit {name!r}", remedy="See `git log`.") from error

    def entries(self, commit: str = "") -> list[Entry]:
        """The files of a commit; without one those of the working tree, unsaved to git or not, ignored ones left out.

        Links and submodules are not files.
        """
        if commit or self.bare:
            listed = self.run("ls-tree", "-r", "-l", "-z", "--end-of-options", commit or "HEAD").split(b"\0")[:-1]
            return [e for line in listed if (e := _tree_entry(line)) is not None]
        changed = set(_paths(self.run("ls-files", "-m", "-o", "-d", "--exclude-standard", "-z")))
        found = []
        for line in self.run("ls-files", "-s", "-z").split(b"\0")[:-1]:
            head, _, name = line.partition(b"\t")
            mode, blob, stage = head.decode().split()
            path = name.decode(errors="surrogateescape")
            if mode.startswith("100") and stage == "0" and path not in changed:
                found.append((path, blob))
        out = [self._on_disk(path, blob) for path, blob in found] + [self._on_disk(path) for path in sorted(changed)]
        return sorted(e for e in out if e is not None)

    def _on_disk(self, path: str, blob: str = "") -> Entry | None:
        """The entry of a file of the working tree; its blob id computed where git has not read this content yet."""
        place = f"{self.folder}/{path}"
        try:
            about = os.lstat(place)
            if not stat.S_ISREG(about.st_mode):
                return None
            if not blob:
                body = hashlib.sha1(b"blob %d\0" % about.st_size, usedforsecurity=False)
                large = about.st_size > 1 << 24
                body.update(str(about.st_mtime_ns).encode() if large else Path(place).read_bytes())
                blob = body.hexdigest()
        except OSError:  # gone or closed to us since it was listed
            return None
        return Entry(path, blob, about.st_size, place)

    def contents(self, entries: Sequence[Entry]) -> Iterator[tuple[Entry, bytes]]:
        """Each entry with its content; one that has vanished from the working tree meanwhile is left out."""
        stored = [e for e in entries if not e.disk]
        for entry in entries:
            if entry.disk:
                try:
                    yield entry, Path(entry.disk).read_bytes()
                except OSError:
                    continue
        if not stored:
            return
        command = ["git", "-C", str(self.folder), "cat-file", "--batch"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for entry in stored:  # one at a time: two full pipes would wait for each other
                process.stdin.write(entry.blob.encode() + b"\n")
                process.stdin.flush()
                head = process.stdout.readline().split()
                if len(head) == 3:
                    yield entry, process.stdout.read(int(head[2]) + 1)[:-1]


def _paths(listed: bytes) -> list[str]:
    return [name.decode(errors="surrogateescape") for name in listed.split(b"\0")[:-1]]


def _tree_entry(line: bytes) -> Entry | None:
    head, _, name = line.partition(b"\t")
    mode, kind, blob, size = head.decode().split()
    if kind != "blob" or not mode.startswith("100") or not size.isdigit():  # git writes BAD where the blob is absent
        return None
    return Entry(name.decode(errors="surrogateescape"), blob, int(size))
