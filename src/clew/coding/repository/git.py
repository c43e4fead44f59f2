"""The one door to git: reads repositories by plumbing commands alone, and trusts nothing that lies in one.

The repository index and the gate call it; no other file of Clew starts git. A repository's configuration can name
programs to run (a file system monitor, filters, text converters, hooks, transports), under keys that no list ever has
all of. So git is never shown it: each command works in a view, a folder of Clew's own with a configuration of a few
lines, which borrows objects, refs and index from the repository. Beyond that the kernel refuses git any process of its
own, so that even a program named by some way unknown here cannot start. Git must never check out or write anything,
read the user's environment or configuration, or run past its bounds of time and memory.

A file is named by its path and its blob id, git's own digest of its content, so that what was learnt of a content holds
for every commit and working tree that has it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import resource
import select
import shutil
import stat
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from clew.core.errors import BadInput
from clew.sandbox.seccomp import refuse_children

WALL = 300.0  # seconds that a command may take, and that one object may
MOST = 1 << 28  # bytes that a command may print: trees can be nested so that their listing never ends
MEMORY = 4 << 30  # bytes of data that git may hold; files that it maps are not counted
BORROWED = ("refs", "packed-refs", "reftable", "shallow", "info")
CONFIG = """[core]
\trepositoryformatversion = 1
\tbare = {bare}
\tquotePath = false
[extensions]
\tobjectFormat = {digest}
"""
ENVIRONMENT = {
    "PATH": os.defpath,
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
}


class Entry(NamedTuple):
    """A file of a repository. ``size`` in bytes; ``disk`` where its content lies, if in the working tree."""

    path: str
    blob: str
    size: int
    disk: str = ""


class Git:
    """A repository: a working tree, or a bare one.

    Attributes:
        folder: the root of the working tree, or the bare repository. home: the folder that git calls its own.

    Raises:
        BadInput: the folder does not exist, is not in a git repository, or git is not installed.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise BadInput(f"{folder} is not a folder", remedy="Name the folder of a git repository.")
        self.folder, self.home = _found(self.folder)
        self.bare = self.folder == self.home
        common = _common(self.home)
        self._view = view = Path(tempfile.mkdtemp(prefix="clew-git-"))
        weakref.finalize(self, shutil.rmtree, view, ignore_errors=True)
        for name in BORROWED:
            (view / name).symlink_to(common / name)
        for shared in () if self.bare else self.home.glob("sharedindex.*"):
            (view / shared.name).symlink_to(shared)
        config = CONFIG.format(bare=str(self.bare).lower(), digest=_digest(common / "objects"))
        if (common / "reftable").is_dir():
            config += "\trefStorage = reftable\n"
        (view / "config").write_text(config)
        self._env = ENVIRONMENT | {
            "HOME": str(view),
            "GIT_DIR": str(view),
            "GIT_OBJECT_DIRECTORY": str(common / "objects"),
            "GIT_INDEX_FILE": str(self.home / "index"),
        }
        if not self.bare:
            self._env["GIT_WORK_TREE"] = str(self.folder)

    def _start(self, words: Sequence[str], below: Path | None, said: int, given: int) -> subprocess.Popen[bytes]:
        """Git on these words in a folder of the working tree, without configuration, processes or environment."""
        head = self._view / "HEAD"
        now = _head(self.home)
        if not head.exists() or head.read_text() != now:
            fresh = head.with_name(f"HEAD.{threading.get_ident()}")
            fresh.write_text(now)
            fresh.replace(head)  # in one step: another thread may be reading it
        process = subprocess.Popen(
            [_program(), *words],
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=said,
            env=self._env,
            cwd=below or self.folder,
            preexec_fn=refuse_children(),
        )
        with suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MEMORY, MEMORY))
        return process

    def run(self, *words: str, below: Path | None = None) -> bytes:
        """What a git command prints.

        Args:
            below: the folder of the working tree it runs in; default its root.

        Raises:
            BadInput: it failed, the message is git's own; or it reached a bound.
        """
        with tempfile.TemporaryFile() as errors, self._start(words, below, errors.fileno(), subprocess.DEVNULL) as git:
            assert git.stdout is not None
            late = threading.Timer(WALL, git.kill)
            late.start()
            try:
                out = git.stdout.read(MOST + 1)
            finally:
                over = not late.is_alive()
                late.cancel()
                if over or len(out) > MOST:
                    git.kill()
            code = git.wait()
            errors.seek(0)
            told = errors.read(1 << 16).decode(errors="replace").strip()
        if over or len(out) > MOST:
            bound = f"took longer than {WALL:.0f} s" if over else f"printed more than {MOST >> 20} MiB"
            raise BadInput(f"{self.folder}: git {words[0]} {bound}", remedy="Is this repository what it says it is?")
        if code:
            lines = "".join(c if c.isprintable() or c == "\n" else "?" for c in told).splitlines()
            said = (lines or [f"git {words[0]} failed with status {code}"])[0].removeprefix("fatal: ")
            raise BadInput(f"{self.folder}: {said}", remedy="See `git fsck`.")
        return out

    def commit(self, name: str) -> str:
        """The full id of a commit.

        Raises:
            BadInput: the repository has none of that name.
        """
        try:
            return self.run("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}").decode().strip()
        except (BadInput, ValueError) as error:
            raise BadInput(f"{self.folder}: there is no commit {name!r}", remedy="See `git log`.") from error

    def entries(self, commit: str = "") -> list[Entry]:
        """The files of a commit; without one those of the working tree, unsaved to git or not, ignored ones left out.

        Links and submodules are not files; a name that leads out of the repository is none of its files.
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
        regular = _Regular(self.folder)
        out = [self._on_disk(regular, path, blob) for path, blob in found]
        return sorted([*(e for e in out if e is not None), *self.on_disk(sorted(changed))])

    def on_disk(self, paths: Iterable[str]) -> list[Entry]:
        """The entries of files of the working tree that git has not read as they are; what is none is left out."""
        regular = _Regular(self.folder)
        return [entry for path in paths if (entry := self._on_disk(regular, path)) is not None]

    def _on_disk(self, regular: _Regular, path: str, blob: str = "") -> Entry | None:
        """The entry of a file of the working tree; its blob id computed where git has not read this content yet."""
        about = regular(path)
        if about is None:
            return None
        place = f"{self.folder}/{path}"
        if not blob:
            body = hashlib.sha1(b"blob %d\0" % about.st_size, usedforsecurity=False)
            content = str(about.st_mtime_ns).encode() if about.st_size > 1 << 24 else _content(place, about.st_size)
            if content is None:  # gone or closed to us since it was listed
                return None
            body.update(content)
            blob = body.hexdigest()
        return Entry(path, blob, about.st_size, place)

    def names(self, below: Path) -> list[str]:
        """The regular files below a folder of the working tree that git knows or would take, relative to it."""
        listed = _paths(self.run("ls-files", "-z", "--cached", "--others", "--exclude-standard", below=below))
        return only_regular(below, listed)

    def contents(self, entries: Sequence[Entry]) -> Iterator[tuple[Entry, bytes]]:
        """Each entry with its content; one that has vanished from the working tree meanwhile is left out."""
        stored = [e for e in entries if not e.disk]
        for entry in entries:
            if entry.disk and (content := _content(entry.disk, entry.size)) is not None:
                yield entry, content
        if not stored:
            return
        with self._start(["cat-file", "--batch"], None, subprocess.DEVNULL, subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            ready = select.poll()  # select() takes no descriptor above 1023
            ready.register(process.stdout, select.POLLIN)
            try:
                for entry in stored:  # one at a time: two full pipes would wait for each other
                    process.stdin.write(entry.blob.encode() + b"\n")
                    process.stdin.flush()
                    if not ready.poll(WALL * 1000):
                        raise BadInput(f"{self.folder}: an object cannot be read", remedy="See `git fsck`.")
                    head = process.stdout.readline().split()
                    if len(head) == 3:
                        yield entry, process.stdout.read(int(head[2]) + 1)[:-1]
            except BrokenPipeError:
                raise BadInput(f"{self.folder}: git ended while it read objects", remedy="See `git fsck`.") from None
            finally:
                process.kill()


class _Regular:
    """Tells which names are regular files within a folder. A link anywhere on a name's way leads out of it."""

    def __init__(self, root: Path) -> None:
        self.root = os.path.realpath(root)
        self.within = functools.cache(self._within)

    def __call__(self, name: str) -> os.stat_result | None:
        parts = name.split("/")
        if not parts[0] or ".." in parts or not self.within("/".join(parts[:-1])):
            return None
        try:
            about = os.lstat(f"{self.root}/{name}")
        except (OSError, ValueError):
            return None
        return about if stat.S_ISREG(about.st_mode) else None

    def _within(self, parent: str) -> bool:
        place = os.path.normpath(f"{self.root}/{parent}")
        return os.path.realpath(place) == place


def only_regular(folder: Path, names: Iterable[str]) -> list[str]:
    """Those of these relative names that are regular files of this folder, sorted; none is reached by a link."""
    regular = _Regular(folder)
    return sorted(name for name in set(names) if regular(name) is not None)


@functools.cache
def _program() -> str:
    """Git's program by its full path, so that none is taken from a folder of the repository.

    Raises:
        BadInput: it is not installed.
    """
    path = os.pathsep.join(filter(os.path.isabs, os.get_exec_path()))
    found = shutil.which("git", path=path)
    if found is None:
        raise BadInput("git is not installed", remedy="Install it; repositories are read through it.")
    return found


def _found(folder: Path) -> tuple[Path, Path]:
    """The root of the repository that holds a folder, and git's own folder: the same where it is bare.

    Raises:
        BadInput: there is none.
    """
    start = folder.resolve()
    for place in (start, *start.parents):
        mark = place / ".git"
        told = _line(mark)
        home = place / told[8:].strip() if told.startswith("gitdir: ") else mark
        if _is_home(home):
            return place, home.resolve()
        if _is_home(place):
            return place, place
    raise BadInput(f"{folder}: not a git repository", remedy="Make it one with `git init`, or name another folder.")


def _is_home(folder: Path) -> bool:
    with suppress(OSError, ValueError):
        common = _common(folder)
        return os.path.lexists(folder / "HEAD") and (common / "objects").is_dir() and (common / "refs").is_dir()
    return False


def _common(home: Path) -> Path:
    """Where objects and refs lie: with a linked working tree not in its own folder."""
    return (home / _line(home / "commondir")).resolve()


def _line(path: Path) -> str:
    """What a short text file says; nothing where there is none, or where it is no regular file."""
    told = _content(str(path), 4096, follow=True) or b""
    return told[:4096].decode(errors="surrogateescape").strip("\r\n").replace("\0", "")


def _head(home: Path) -> str:
    """What HEAD says, in git's words; of anything else, an unborn branch."""
    link = os.readlink(home / "HEAD") if (home / "HEAD").is_symlink() else ""
    told = f"ref: {link}" if link.startswith("refs/") else _line(home / "HEAD")
    good = re.fullmatch(r"ref:\s*refs/[^\x00-\x20\x7f]+\s*|[0-9a-f]{40}(?:[0-9a-f]{24})?\s*", told)
    return (told if good else "ref: refs/heads/master") + "\n"


def _digest(objects: Path) -> str:
    """The digest that names a repository's objects, told by the length of the first name found."""
    with suppress(OSError):
        for folder in [objects / "pack", *(p for p in objects.iterdir() if len(p.name) == 2)]:
            for name in os.listdir(folder) if folder.is_dir() else ():
                long = re.fullmatch(r"(?:pack-)?([0-9a-f]{38,64})(?:\.\w+)?", name)
                if long:
                    return "sha256" if len(long[1]) > 40 else "sha1"
    return "sha1"


def _content(place: str, size: int, follow: bool = False) -> bytes | None:
    """The first ``size`` bytes of a regular file; None of anything else: a pipe would never end, a link leads out."""
    try:
        fd = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(size)


def _paths(listed: bytes) -> list[str]:
    return [name.decode(errors="surrogateescape") for name in listed.split(b"\0")[:-1]]


def _tree_entry(line: bytes) -> Entry | None:
    head, _, name = line.partition(b"\t")
    mode, kind, blob, size = head.decode().split()
    path = name.decode(errors="surrogateescape")
    if kind != "blob" or not mode.startswith("100") or path.startswith("/") or ".." in path.split("/"):
        return None
    if not size.isdigit():  # git writes BAD where the blob is absent
        return None
    return Entry(path, blob, int(size))
