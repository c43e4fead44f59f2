"""Folders whose files come back: snapshots of everything in a folder, kept by content, restored into fresh folders."""

from clew.worlds.workspace.tree_patches import Patch, patches
from clew.worlds.workspace.tree_restore import restore
from clew.worlds.workspace.tree_scan import Bounds, Scan, Snapshot
from clew.worlds.workspace.tree_shelf import TreeShelf

__all__ = ["Bounds", "Patch", "Scan", "Snapshot", "TreeShelf", "patches", "restore"]
