"""The contract of tasksets whose tasks begin in files: a run gets a copy of a snapshot, and its last files are judged.

``WorkspaceWorld`` works for any of them, and who starts a foreign program in a task's files asks no more. Nothing that
a judge goes by may be in the snapshot that a task begins with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from clew.core.protocols import Taskset
from clew.core.values import Task
from clew.sandbox.sandbox import Sandbox
from clew.worlds.workspace.tree_shelf import TreeShelf


@runtime_checkable
class FileTasks(Taskset, Protocol):
    """A taskset whose tasks begin in files.

    shelf: where the snapshots lie. sandbox: runs an agent's commands, and judges. disk: bytes that the files of a run
    may have. steps: acts after which a run is over.
    """

    shelf: TreeShelf
    sandbox: Sandbox
    disk: int
    steps: int

    def begins(self, task: Task) -> str:
        """The key of the snapshot that a run of the task begins with."""
        ...

    async def judged(self, task: Task, tree: str) -> Mapping[str, float | None]:
        """The rewards of a run of the task that ended with the files of this snapshot; none where nothing judges.

        Raises:
            Undecided: they cannot be told.
        """
        ...
