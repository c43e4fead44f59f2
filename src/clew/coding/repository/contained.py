"""A folder that may be no repository, or none to be trusted, seen as one: what a diagnosis of a run's files looks at.

``run_tools`` asks for it. A folder that an agent worked in can name another repository as its own (by a file or link in
place of ``.git``, by links in it, by alternates), and git would tell what lies there. Nothing outside the folder may be
read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from clew.coding.repository.git import Entry, Git, only_regular
from clew.core.errors import BadInput

OTHERS = ("commondir", "objects/info/alternates", "objects/info/http-alternates")  # files that name another repository


def contained(folder: Path) -> Git:
    """A folder as git sees it, where it is a repository that lies in it whole; else as it lies there.

    Raises:
        BadInput: git is not installed.
    """
    home = folder.resolve() / ".git"
    try:
        git = Git(folder) if _whole(home) else None
    except BadInput:
        git = None
    return git if git is not None and git.home == home else Plain(folder)


def _whole(home: Path) -> bool:
    """Whether git's own folder is a real one, with no link in it and no other repository named by it."""
    if home.is_symlink() or not home.is_dir() or any(os.path.lexists(home / name) for name in OTHERS):
        return False
    for place, folders, files in os.walk(home):
        if any(os.path.islink(f"{place}/{name}") for name in (*folders, *files)):
            return False
    return True


class Plain(Git):
    """A folder as it lies, without history: its regular files that are not hidden, none reached by a link."""

    def __init__(self, folder: Path) -> None:
        self.folder = self.home = folder.resolve()
        self.bare = False

    def run(self, *words: str, below: Path | None = None) -> bytes:
        """Raises BadInput: there is no repository to ask."""
        raise BadInput(f"{self.folder} is no repository", remedy="Make it one with `git init`.")

    def entries(self, commit: str = "") -> list[Entry]:
        """The files, whatever the commit."""
        return self.on_disk(sorted(visible(self.folder)))

    def names(self, below: Path) -> list[str]:
        return only_regular(below, visible(below))

    def contents(self, entries: Sequence[Entry]) -> Iterator[tuple[Entry, bytes]]:
        """Each entry with its content; one that is gone by now is left out."""
        yield from super().contents([entry for entry in entries if entry.disk])


def visible(folder: Path) -> Iterator[str]:
    """Names below a folder of what is not hidden; however deep it is, and past no link."""
    waiting = [""]
    while waiting:
        above = waiting.pop()
        with suppress(OSError), os.scandir(folder / above) as found:
            for entry in found:
                if not entry.name.startswith(".") and entry.name != "__pycache__":
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{above}{entry.name}/")
                    else:
                        yield above + entry.name
