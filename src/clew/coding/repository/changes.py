"""What past commits changed and what they said of it. The ranking compares a bug report with them.

Only the history before a snapshot may be read: a later commit could be the fix.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from clew.coding.repository.git import Git
from clew.core.errors import BadInput

COMMITS = 1000  # the newest that are read
MESSAGE = 2000  # characters of a message that are read
FILES = 10  # a commit that changes more says little of any
FIRST = re.compile(rb"\x01(?=[0-9a-f]{40,64}\0)")  # of a commit in a log; no message holds it, since none holds a NUL


class Change(NamedTuple):
    """A commit: its id, its message, the files it changed."""

    commit: str
    message: str
    files: tuple[str, ...]

    @property
    def subject(self) -> str:
        return self.message.partition("\n")[0]


def changes(git: Git, before: str) -> list[Change]:
    """The newest commits up to ``before`` (itself too) that change 1 to ``FILES`` files, newest first; none where there
    is no history. Merges are left out."""
    form = "--format=%x01%H%x00%B%x00"
    words = ("log", "--no-merges", "--no-renames", "--name-only", "-z", "-n", str(COMMITS), form)
    try:
        told = git.run(*words, "--end-of-options", before)
    except BadInput:  # no commit yet, or a history of which a part is missing
        return []
    out = []
    for block in FIRST.split(told)[1:]:
        commit, message, *names = block.split(b"\0")
        files = [name.lstrip(b"\n").decode("utf-8", "surrogateescape") for name in names if name.strip(b"\n")]
        if 1 <= len(files) <= FILES:
            out.append(Change(commit.decode(), message[:MESSAGE].decode("utf-8", "replace").strip(), tuple(files)))
    return out
