"""Folders whose files come back: snapshots of all that is in one, restored into fresh folders, and a world of them."""

from clew.worlds.workspace.file_tasks import FileTasks
from clew.worlds.workspace.tree_patches import Patch, patches
from clew.worlds.workspace.tree_restore import restore
from clew.worlds.workspace.tree_scan import Bounds, Scan, Snapshot
from clew.worlds.workspace.tree_shelf import TreeShelf
from clew.worlds.workspace.workspace import Workspace, WorkspaceWorld, last_tree, tree_of, verified

__all__ = [
    "Bounds",
    "FileTasks",
    "Patch",
    "Scan",
    "Snapshot",
    "TreeShelf",
    "Workspace",
    "WorkspaceWorld",
    "last_tree",
    "patches",
    "restore",
    "tree_of",
    "verified",
]
