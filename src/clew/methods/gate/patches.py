"""What a run changed in its files as a candidate of the gate: each check runs on a fresh copy of the run's files.

``clew gate --run`` opens it, by ``Checks.patch``. The files come from the snapshots of the run, and its workspace says
what commands may use and which files are laid over the copy. Nothing that a check does there is kept.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

from clew.core.errors import BadInput, WorldError
from clew.core.keys import state_key
from clew.core.values import Observation, Task, ToolCall
from clew.methods.gate.said import Commands, asked, observed
from clew.worlds.bases import Exact, foreign
from clew.worlds.workspace import FileTasks
from clew.worlds.workspace.tree_edits import edited
from clew.worlds.workspace.tree_shelf import FOLDER, TreeShelf
from clew.worlds.workspace.tree_states import content_state
from clew.worlds.workspace.workspace import verified


def patch_task(shelf: TreeShelf, run: str, before: str, after: str) -> Task:
    """The candidate that a run's files are, compared with those that it began with.

    Args:
        before, after: keys of snapshots.

    Raises:
        BadInput: no file differs.
    """
    changed = edited(shelf, before, after)
    names = {path: new.key for path, (_, new) in sorted(changed.items()) if new is not None and new.kind != FOLDER}
    gone = sorted(path for path, (old, new) in changed.items() if new is None and old and old.kind != FOLDER)
    if not names and not gone:
        raise BadInput(f"run {run} changed no file", remedy="Name a run that did, or another call: --run RUN@CALL.")
    told = hashlib.sha256(json.dumps([sorted(names.items()), gone]).encode()).hexdigest()[:24]
    data: dict[str, Any] = {"run": run, "before": before, "tree": after, "names": list(names), "content": told}
    return Task(run, f"check what run {run} changed", data)


class PatchWorld(Exact):
    """One such candidate. Actions: ``critic COMMAND``, ``verify``."""

    def __init__(self, workspace: FileTasks, commands: Commands, task: Task) -> None:
        self._place, self._commands, self._id, self._closed = workspace, commands, task.id, False
        self._tree, self._names = str(task.data["tree"]), [str(name) for name in task.data["names"]]
        self._content = str(task.data["content"])
        self._held = content_state(workspace.shelf, self._tree, {}).hex()

    @property
    def state_key(self) -> bytes:
        """The changed files' names and all that the files hold, so that equal ends of runs are verified once."""
        return state_key("patch", *self._names, self._held)

    def observe(self) -> Observation:
        return Observation(f"candidate {self._id}")

    async def step(self, action: str | ToolCall) -> Observation:
        """Run a command on a fresh copy of the files.

        Raises:
            WorldError: no such action, or the world is closed.
        """
        if self._closed:
            raise WorldError(f"{str(action)[:60]!r} after the end", remedy="Open the candidate again.")
        _, command = asked(self._commands, str(action), self._names)
        wall = self._commands.wall
        limits = replace(self._place.sandbox.limits, wall=wall, cpu=4 * wall)
        found = await verified(self._place, self._tree, command, limits)
        said = (found.stdout + found.stderr).decode(errors="replace")
        limit = found.limit if found.code is None else ""
        return observed(command, found.code, limit, said, found.seconds, self._content)

    def snapshot(self) -> bytes:
        return json.dumps([self._id, self._tree]).encode()

    def restore(self, snapshot: bytes) -> None:
        """Raises WorldError where the snapshot is of another candidate: no check changes anything."""
        if snapshot != self.snapshot():
            raise foreign()
