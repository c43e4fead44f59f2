"""Folders whose files come back: snapshots of all that is in one, restored into fresh folders, and a world of them."""

from clew.worlds.workspace.tree_patches import Patch, patches
from clew.worlds.workspace.tree_restore import restore
from clew.worlds.workspace.tree_scan import Bounds, Scan, Snapshot
from clew.worlds.workspace.tree_shelf import TreeShelf
from clew.worlds.workspace.workspace import Workspace, WorkspaceWorld, tree_of

__all__ = [
    "Bounds",
    "Patch",
    "Scan",
    "Snapshot",
    "TreeShelf",
    "Workspace",
    "WorkspaceWorld",
    "patches",
    "restore",
    "tree_of",
]
