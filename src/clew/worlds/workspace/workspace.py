"""Workspace: a folder of the user's as a world, in which an agent works by a shell in the sandbox.

``workspace(folder='.')`` names it. Each run works on a copy of its own, and each act is followed by a snapshot of all
files, so that a fork begins with the very files that stood there and no command is ever run twice. The folder itself is
read once and must never be written to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from clew.core.errors import BadInput, WorldError
from clew.core.keys import state_key
from clew.core.protocols import World
from clew.core.reading import Record
from clew.core.registry import make_ref
from clew.core.values import Observation, Task, ToolCall, ToolSpec
from clew.sandbox.hosts import Hosts, written
from clew.sandbox.network import Network
from clew.sandbox.sandbox import MIB, Limits, Sandbox, Verdict, own_folder
from clew.sandbox.scratch import Scratch
from clew.worlds.bases import Exact, alive, foreign, load
from clew.worlds.judging import world_acts
from clew.worlds.workspace.file_tasks import FileTasks
from clew.worlds.workspace.file_tools import Said, asked_of, tools
from clew.worlds.workspace.tree_restore import restore
from clew.worlds.workspace.tree_scan import Bounds, Scan
from clew.worlds.workspace.tree_shelf import TreeShelf
from clew.worlds.workspace.tree_states import content_state

SHELF = ".clew/files"  # beside the store that a command line takes where it names none
LONGEST_TASK = 4000  # characters
PINNED = {  # what git and Python would write of the moment, so that equal acts lead to equal files
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "user.name",
    "GIT_CONFIG_VALUE_0": "agent",
    "GIT_CONFIG_KEY_1": "user.email",
    "GIT_CONFIG_VALUE_1": "agent@localhost",
    "PYTHONDONTWRITEBYTECODE": "1",
}


class Workspace:
    """A folder as a world; each task is a sentence of what is to be done in it, and its own id.

    Args:
        folder: what every run begins with; read when the world is made.
        task: what is to be done, for lines that name no ``--task``.
        verify: a command whose exit status 0, in a copy of the files at the end of a run, is the reward 1; without one
            runs have no reward.
        over: a folder whose files are laid over that copy before ``verify`` runs, so that an agent that changes the
            tests changes nothing; it must lie outside ``folder``.
        steps: acts after which a run is over. seconds: of one command, wall and CPU. memory: bytes of one command.
        disk: bytes that the folder may hold.
        hosts: what commands may reach, each as HOST:PORT, by the proxy that HTTPS_PROXY names; without any, nothing.
            An address that is none of the open internet has to be named itself. ``verify`` reaches nothing.
        readable: folders and files of this machine that commands see, read-only, at their own path, as a virtual
            environment; default: the Python of this process.
        shelf: folder of the snapshots; default: ``.clew/files``, beside the default store.
        tree: key of the snapshot that every run begins with, in references; made of ``folder`` where it is empty.

    Raises:
        BadInput: the folder is not there, is a home folder or a root, or a bound is no bound. WorldError: the folder
        holds more than a snapshot may. MissingExtra: bubblewrap is not installed.
    """

    def __init__(
        self,
        folder: str = ".",
        task: str = "",
        verify: str = "",
        over: str = "",
        steps: int = 50,
        seconds: float = 60.0,
        memory: int = 2048 * MIB,
        disk: int = 1024 * MIB,
        readable: Sequence[str] = (),
        hosts: Sequence[str] = (),
        shelf: str = "",
        tree: str = "",
    ) -> None:
        if steps < 1:
            raise BadInput(f"steps is {steps}", remedy="Give at least 1.")
        self.folder, self.over = Path(folder).absolute(), Path(over).absolute() if over else None
        self.task, self.verify, self.steps, self.disk = task, verify, steps, disk
        self.hosts = Hosts(hosts)
        self.shelf = TreeShelf(Path(shelf or SHELF).absolute())
        limits = Limits(seconds, seconds, memory, 512, min(disk, 1 << 30), disk, 1024, MIB)
        self.sandbox = Sandbox(limits, readable or None)
        self.tree = tree or self._begin()
        given: dict[str, Any] = {
            "folder": str(self.folder),
            "task": task,
            "verify": verify,
            "over": str(self.over or ""),
        }
        given |= {"steps": steps, "seconds": seconds, "memory": memory, "disk": disk}
        given |= {
            "readable": tuple(readable),
            "hosts": tuple(map(written, self.hosts.pairs)),
            "shelf": str(self.shelf.folder),
            "tree": self.tree,
        }
        self.ref = make_ref("workspace", given, Workspace)

    def __repr__(self) -> str:
        return f"<Workspace {self.folder.name}>"

    def _begin(self) -> str:
        if not self.folder.is_dir() or self.folder in (Path("/"), Path.home()):
            remedy = "Name the folder of one project, as in workspace(folder='path')."
            raise BadInput(f"{self.folder} is no folder, or is a root or a home folder", remedy=remedy)
        home = self.folder.resolve()
        if self.over is not None and (not self.over.is_dir() or self.over.resolve().is_relative_to(home)):
            told = f"over names {self.over}, which is no folder, or lies where agents would see it"
            raise BadInput(told, remedy=f"Name a folder outside {self.folder}.")
        inside, skip = self.shelf.folder.resolve(), frozenset[str]()
        if inside == home or home.is_relative_to(inside):
            raise BadInput(f"the shelf {inside} is {self.folder} or holds it", remedy="Name another: shelf='...'.")
        if inside.is_relative_to(home):
            skip = frozenset((inside.relative_to(home).parts[0],))
        return Scan(self.folder, self.shelf, Bounds(file=self.disk, total=self.disk), skip).snapshot().tree

    # ---- tasks -----------------------------------------------------------------------------------------------------

    def sample(self, n: int, seed: int = 0, split: str = "train") -> list[Task]:
        """The one task of the world, whatever ``n`` and ``seed`` are.

        Raises:
            BadInput: the world was made without one.
        """
        if not self.task:
            remedy = "Add it: --task 'fix the failing test', or workspace(task='...')."
            raise BadInput("nothing says what is to be done in the workspace", remedy=remedy)
        return [self.find(self.task)][:n]

    def find(self, task_id: str) -> Task:
        """The task of a sentence.

        Raises:
            BadInput: it is empty or very long.
        """
        if not task_id.strip() or len(task_id) > LONGEST_TASK:
            remedy = f"Write what is to be done, in at most {LONGEST_TASK} characters."
            raise BadInput(f"a task of {len(task_id)} characters", remedy=remedy)
        return Task(task_id, task_id)

    def open(self, task: Task) -> WorkspaceWorld:
        return WorkspaceWorld(self, task)

    def begins(self, task: Task) -> str:
        """Every task begins with the folder as it was read."""
        return self.tree

    async def judge(self, task: Task, run: Record, world: World | None) -> Mapping[str, float | None]:
        """``judged`` of the files as the run left them."""
        return await self.judged(task, last_tree(self, task, run, world))

    async def judged(self, task: Task, tree: str) -> Mapping[str, float | None]:
        """``reward`` 1 where ``verify`` ends with 0 in a copy of these files; nothing without ``verify``."""
        return {"reward": float((await verified(self, tree, self.verify)).ok)} if self.verify else {}


class WorkspaceWorld(Exact):
    """One run's own copy of the files that its task begins with. ``tree``: key of the snapshot of its present files."""

    def __init__(self, taskset: FileTasks, task: Task) -> None:
        self._set, self.tree = taskset, taskset.begins(task)
        self._name, self._left, self._closed = f"{self.tree} {task.id}", taskset.steps, False
        self._hosts = taskset.hosts if isinstance(taskset, Workspace) else Hosts(())
        self.tools: Sequence[ToolSpec] = tools(str(self._hosts))
        self._place: Scratch | None = None
        self._scan: Scan | None = None
        self._states: dict[str, bytes] = {}

    @property
    def state_key(self) -> bytes:
        """What the files hold, without times and without what only git's index and Python's caches know."""
        return state_key("workspace", content_state(self._set.shelf, self.tree, self._states).hex())

    def observe(self) -> Observation:
        return Observation("", None, self._left <= 0)

    async def step(self, action: str | ToolCall) -> Observation:
        """Perform a shell command, as text or by the tool ``bash``, or one of the file tools.

        A command that passes a bound of the folder, and one that is given up, changes nothing.

        Raises:
            WorldError: the steps are used up, or the world is closed.
        """
        alive(self._left <= 0 or self._closed, action)
        said = await self._performed(action)
        self._left -= 1
        seen = self.observe()._replace(text=said)
        return seen._replace(call_id=action.id) if isinstance(action, ToolCall) else seen

    async def _performed(self, action: str | ToolCall) -> str:
        try:
            asked = asked_of(action)
        except BadInput as error:
            return f"error: {error.message}"
        folder, done = self._ready(), False
        try:
            if isinstance(asked, str):
                with Network(self._hosts, self._set.disk) as network:
                    env = PINNED | network.env
                    ran = await self._set.sandbox.arun(asked, folder=folder, env=env, doors=network.doors)
                said = "\n".join(filter(None, (told(ran), network.told())))
            else:
                ran = await self._set.sandbox.arun(asked.argv, folder=folder, env=PINNED, stdin=asked.stdin)
                said = asked.answer(Said(ran.ok, ran.stdout, ran.stderr))
            assert self._scan is not None
            self.tree = self._scan.snapshot().tree
            done = True
        except WorldError as error:
            return f"error: {error.message}; the files are as they were before"
        finally:
            if not done:
                self._drop()
        return said

    @contextmanager
    def files(self) -> Iterator[Path]:
        """The folder with the present files, for a tool that looks at them; what it changes there is undone."""
        folder = self._ready()
        try:
            yield folder
        finally:
            same = False
            with suppress(WorldError):
                same = self._scan is not None and self._scan.snapshot().tree == self.tree
            if not same:
                self._drop()

    def _ready(self) -> Path:
        """The folder that holds ``tree``, made where there is none."""
        if self._place is None:
            self._place = Scratch("workspace")
            folder = self._place.path / "box"
            restore(self._set.shelf, self.tree, folder)
            own_folder(folder)
            self._scan = Scan(folder, self._set.shelf, Bounds(file=self._set.disk, total=self._set.disk))
        return self._place.path / "box"

    def _drop(self) -> None:
        if self._place is not None:
            self._place.close()
        self._place = self._scan = None

    def snapshot(self) -> bytes:
        return json.dumps([self._name, self.tree, self._left]).encode()

    def restore(self, snapshot: bytes) -> None:
        """Raises WorldError where the snapshot is not one of this task."""
        _, tree, left = load(snapshot, self._name, 3)
        if not isinstance(tree, str) or not isinstance(left, int):
            raise foreign()
        self._drop()
        self.tree, self._left = tree, left

    def close(self) -> None:
        self._drop()
        self._closed = True


async def verified(taskset: FileTasks, tree: str, command: str, limits: Limits | None = None) -> Verdict:
    """What a command comes to in a fresh copy of a snapshot, with the folder laid over it that a workspace names.

    Args:
        limits: instead of the taskset's.
    """
    with Scratch("verify") as place:
        copy = place / "box"
        restore(taskset.shelf, tree, copy)
        if isinstance(taskset, Workspace) and taskset.over is not None:
            _lay_over(taskset.over, copy)
        own_folder(copy)
        return await taskset.sandbox.arun(command, folder=copy, env=PINNED, limits=limits)


def last_tree(taskset: FileTasks, task: Task, run: Record, world: World | None) -> str:
    """The snapshot of the files as a run left them, of its world where that is open, else of its record."""
    if isinstance(world, WorkspaceWorld):
        return world.tree
    kept = [call.snapshot for call in world_acts(run) if call.snapshot]
    return tree_of(run.store.blob(kept[-1])) if kept else taskset.begins(task)


def tree_of(snapshot: bytes) -> str:
    """The tree that a snapshot of a workspace names; empty where it is of another world."""
    try:
        found = json.loads(snapshot)
    except (ValueError, RecursionError):
        return ""
    good = isinstance(found, list) and len(found) == 3 and isinstance(found[1], str) and len(found[1]) == 32
    return found[1] if good else ""


def told(verdict: Verdict) -> str:
    """What an agent is told of a command: its output, cut in the middle, and how it ended."""
    pieces = [_cut(data.decode("utf-8", "replace")) for data in (verdict.stdout, verdict.stderr)]
    text = "\n".join(piece.rstrip("\n") for piece in pieces if piece)
    end = f"ended: the limit {verdict.limit} was reached" if verdict.code is None else f"exit status {verdict.code}"
    return f"{text}\n({end})" if text else f"({end})"


def _cut(text: str, most: int = 8000) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[{len(text) - most:,} characters are left out]\n{text[-half:]}"


def _lay_over(source: Path, copy: Path) -> None:
    """Put the files of a folder into another, in place of what is there; no link of the copy is followed."""
    for place, folders, files in os.walk(source):
        inner = copy / Path(place).relative_to(source)
        for name in folders:
            if (inner / name).is_symlink() or ((inner / name).exists() and not (inner / name).is_dir()):
                (inner / name).unlink()
            (inner / name).mkdir(exist_ok=True)
        for name in files:
            (inner / name).unlink(missing_ok=True)
            (inner / name).write_bytes(Path(place, name).read_bytes())
            (inner / name).chmod(Path(place, name).stat().st_mode & 0o777)
