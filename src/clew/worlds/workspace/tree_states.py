"""What the files of a snapshot hold, as a digest by which two states of a workspace are told apart or found equal.

``WorkspaceWorld`` calls it. Times are left out, and so are files that note times themselves though nobody changed
anything: git's index and Python's caches. A snapshot holds them all the same.
"""

from __future__ import annotations

import json
from collections.abc import MutableMapping

from clew.core.keys import digest, encode
from clew.worlds.workspace.tree_shelf import FOLDER, TreeShelf

STATE = b"clew.files.1"
CACHES = ("__pycache__", ".pytest_cache")
GIT = frozenset(("HEAD", "objects", "refs"))  # names by which a folder of git is known


def content_state(shelf: TreeShelf, tree: str, known: MutableMapping[str, bytes]) -> bytes:
    """The digest of a listing, 16 bytes; equal for folders that hold the same.

    Args:
        known: digests of listings that were looked at before, by key; it is added to, so that a folder that did not
            change is not read again.

    Raises:
        UnknownName, BadRecord: the shelf lacks an object, or it is damaged.
    """
    if (found := known.get(tree)) is not None:
        return found
    entries = shelf.listing(tree)
    git = {entry.name for entry in entries} >= GIT
    held = []
    for entry in entries:
        if entry.name in CACHES or entry.name.endswith(".pyc") or (git and entry.name == "index"):
            continue
        inner = content_state(shelf, entry.key, known).hex() if entry.kind == FOLDER else entry.state
        held.append([entry.name, entry.kind, entry.mode, inner])
    known[tree] = digest(STATE, encode(json.dumps(held, separators=(",", ":"))))
    return known[tree]
