"""Candidates in a repository as a world: each action runs one of the user's commands and gives its verdict.

``clew gate`` opens it. A candidate is a file, a diff, a commit or what the working tree holds. Commands run in the
sandbox, on a copy of the repository's files; the state is that copy, so that runs restore and fork. Only with
``outside`` do they run in the repository itself, without a sandbox, and nothing restores. Without ``outside`` the
user's own files must never change.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shlex
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT

from clew.coding.repository.contained import visible
from clew.coding.repository.git import Entry, Git, only_regular
from clew.core.errors import BadInput, UnknownName
from clew.core.keys import state_key
from clew.core.protocols import Restores, World
from clew.core.reading import Record
from clew.core.registry import build, make_ref
from clew.core.values import Observation, Task, ToolCall, ToolSpec
from clew.methods.gate.patches import PatchWorld, patch_task
from clew.methods.gate.said import asked, observed
from clew.sandbox.archives import contents, executables, pack
from clew.sandbox.sandbox import Limits, Sandbox
from clew.worlds.workspace import Workspace

MIB = 1 << 20
LARGEST = 5 * MIB  # of a candidate's file: no person reads more, and no model writes it
MOST = 256 * MIB


class Checks:
    """A repository, the critics and the oracle of what is changed there.

    Args:
        oracle: command whose verdict counts; exit status 0 is good, 1 broken, anything else (a crash, a limit)
            undecided. Of pytest 2 is broken too: it says so where a module does not import.
        critics: cheap commands; ``{file}`` stands for the changed files. Their verdicts are read alike.
        refine: command that changes the files: makes the next candidate.
        folder: the repository.
        outside: run everything in the repository itself, as this user, without a sandbox.
        wall: seconds of one command at most.
        workspace: the world of the runs whose changes are candidates, by reference; empty where none are.
    """

    def __init__(self, oracle: str, critics: Sequence[str] = (), refine: str = "", folder: str = ".",
                 outside: bool = False, wall: float = 600.0, workspace: str = "") -> None:  # fmt: skip
        self.oracle, self.critics, self.refine, self.wall = oracle, tuple(critics), refine, wall
        self.folder, self.outside = str(Path(folder).resolve()), outside
        self.workspace: Workspace | None = build("tasksets", workspace) if workspace else None
        for command in (oracle, *critics, *([refine] if refine else [])):
            try:
                words = shlex.split(command)
            except ValueError as error:
                raise BadInput(f"{command!r} is no command: {error}", remedy="Close its quotes.") from error
            if not words:
                raise BadInput("a critic or the oracle is empty", remedy="Give a command, as in 'pytest -q'.")
        if len(set(self.critics)) < len(self.critics):
            raise BadInput("a critic is given twice", remedy="Name each command once.")
        given: dict[str, object] = {"oracle": oracle, "critics": self.critics, "refine": refine, "folder": self.folder}
        defaults = {"critics": (), "refine": "", "outside": False, "wall": 600.0, "workspace": ""}
        given |= {"outside": outside, "wall": wall, "workspace": workspace}
        self.ref = make_ref("checks", given, defaults)
        self.box = None if outside else Sandbox()

    def sample(self, n: int, seed: int = 0, split: str = "train") -> list[Task]:
        raise BadInput("candidates are not drawn", remedy="Name a file: checks.find('src/module.py').")

    def find(self, task_id: str) -> Task:
        """The candidate in which this file is what was changed.

        Raises:
            UnknownName: no such file. BadInput: it is no text of up to 5 MB.
        """
        path = Path(self.folder, task_id)
        if not path.is_file() or not path.resolve().is_relative_to(self.folder):
            raise UnknownName(f"there is no file {task_id} in {self.folder}", remedy="Name a file of the repository.")
        if path.stat().st_size > LARGEST:
            raise BadInput(f"{task_id} has {path.stat().st_size} bytes", remedy="A candidate has 5 MB at most.")
        content = path.read_bytes()
        try:
            content.decode()
        except UnicodeDecodeError:
            content += b"\0"
        if b"\0" in content:
            raise BadInput(f"{task_id} is no text", remedy="Name a source file.")
        return Task(task_id, f"check {task_id}", data={"file": task_id})

    def variant(self, task_id: str, content: str) -> Task:
        """As ``find``, with other content in the file than lies there; its run's record keeps it."""
        name = f"{self.find(task_id).id}~{hashlib.sha256(content.encode()).hexdigest()[:10]}"
        return Task(name, f"check {task_id}", data={"file": task_id, "content": content})

    def diff(self, text: bytes) -> Task:
        """The candidate that a diff makes of the files as they lie here; git applies it, inside the sandbox.

        Raises:
            BadInput: it does not apply, changes nothing or no text, or the commands are to run outside of a sandbox.
        """
        if self.box is None:
            raise BadInput("a diff outside of the sandbox would change the files", remedy="Leave --outside out.")
        if len(text) > LARGEST:
            raise BadInput(f"the diff has {len(text)} bytes", remedy="A candidate has 5 MB at most.")
        folder = Path(self.folder)
        before = tree(folder)
        parcel = packed(before, folder)
        room = 3 * len(parcel) + 64 * MIB
        limits = Limits(wall=60.0, memory=1024 * MIB, disk=room, file_size=room)
        done = self.box.run(["git", "apply", "-"], parcel, limits=limits, stdin=text, keep=["."])
        if not done.ok:
            said = done.stderr.decode(errors="replace").strip().splitlines() or [str(done)]
            raise BadInput(f"the diff does not apply: {said[0][:200]}", remedy="Make it with `git diff` against this.")
        old = contents(parcel)
        now = {name: content for name, content in done.files.items() if content != old.get(name)}
        gone = sorted(set(before) - set(done.files))
        if large := [name for name, content in now.items() if len(content) > LARGEST]:
            raise BadInput(f"the diff changes {large[0]}, which has over 5 MB", remedy="A candidate has 5 MB at most.")
        try:
            files = {name: content.decode() for name, content in sorted(now.items())}
        except UnicodeDecodeError as error:
            raise BadInput("the diff changes a file that is no text", remedy="A candidate is source code.") from error
        return _task(f"diff~{hashlib.sha256(text).hexdigest()[:10]}", {"files": files, "gone": gone})

    def revision(self, name: str) -> Task:
        """The candidate that a commit is, or the last commit of a range ``A..B``, compared with what was before it.

        Raises:
            BadInput: there is no such commit, or nothing was changed.
        """
        git, (base, _, head) = Git(self.folder), name.partition("..")
        commit = git.commit(head or name)
        if self.box is None:
            raise BadInput(
                "a commit outside of the sandbox would have to be checked out", remedy="Leave --outside out."
            )
        try:
            before = git.commit(base if head else f"{commit}^")
        except BadInput:
            if head:
                raise
            before = ""  # a repository's first commit changes all that it holds
        changes = _changes(git, self.folder, git.entries(before) if before else [], git.entries(commit))
        return _task(f"commit {commit[:12]}", {"commit": commit, **changes})

    def working(self) -> Task:
        """The candidate that the working tree is, compared with its last commit.

        Raises:
            BadInput: nothing was changed, or this is no git repository.
        """
        git = Git(self.folder)
        changes = _changes(git, self.folder, git.entries(git.commit("HEAD")), git.entries())
        return _task("working tree", changes)

    def patch(self, run: str, before: str, after: str) -> Task:
        """The candidate that the files of a run are, compared with those that it began with; by keys of snapshots.

        Raises:
            BadInput: no file differs, or the checks were made without the runs' workspace.
        """
        if self.workspace is None:
            raise BadInput("these checks know no workspace", remedy="Name it: checks(workspace='workspace(...)', ...).")
        return patch_task(self.workspace.shelf, run, before, after)

    def open(self, task: Task) -> World:
        if self.workspace is not None and "tree" in task.data:
            return PatchWorld(self.workspace, self, task)
        return CheckWorld(self, task)

    async def judge(self, task: Task, run: Record, world: World | None) -> Mapping[str, float]:
        """``reward``: 1 where the oracle passed what was shipped, 0 where it passed nothing; runs of the earlier gate
        have a ``belief`` and a ``utility`` instead."""
        ends = [json.loads(c.text) for c in run.calls if c.kind == "note" and c.action == "gate end"]
        if not ends:
            return {}
        end = ends[-1]
        found = {"belief": end.get("belief"), "reward": end.get("utility", end.get("reward"))}
        return {name: value for name, value in found.items() if value is not None}


def _task(name: str, data: dict[str, object]) -> Task:
    if not any(data.get(key) for key in ("files", "names", "gone")):
        raise BadInput(f"{name} changes nothing", remedy="Name a diff, a commit or a file that does.")
    return Task(name, f"check {name}", data=data)


def _changes(git: Git, folder: str, before: Sequence[Entry], after: Sequence[Entry]) -> dict[str, object]:
    """The names in a folder whose content is another than before, and those that are gone."""
    inside, old, new = _inside(git, folder), {e.path: e.blob for e in before}, {e.path: e.blob for e in after}
    names = {inside(path) for path, blob in new.items() if old.get(path) != blob}
    gone = {inside(path) for path in old.keys() - new.keys()}
    return {"names": sorted(n for n in names - {""} if not n.startswith(".clew/")), "gone": sorted(gone - {""})}


def listed(folder: Path) -> list[str]:
    """The files of a repository: those git knows or would take. Without git, or in a folder that the repository around
    it ignores, all that is not hidden."""
    try:
        names = Git(folder).names(folder)
    except BadInput:
        names = []
    return names or only_regular(folder, visible(folder))


def tree(folder: Path) -> dict[str, bytes | str | Path]:
    """The files that a candidate is packed with, by name; without the folder in which Clew keeps its runs."""
    return {name: folder / name for name in listed(folder) if not name.startswith(".clew/")}


def _inside(git: Git, folder: str) -> Callable[[str], str]:
    """A path of the repository as one of this folder; empty where it lies elsewhere."""
    below = os.path.relpath(folder, os.path.realpath(git.folder))
    start = "" if below == "." else f"{below}/"
    return lambda path: path.removeprefix(start) if path.startswith(start) else ""


def packed(files: Mapping[str, bytes | str | Path], folder: Path) -> bytes:
    """The files as the sandbox takes them.

    Raises:
        BadInput: they are too large for it.
    """
    parcel = pack(files)
    if len(parcel) > MOST:
        remedy = "256 MiB fit the sandbox: list what is not needed in .gitignore, or ask for --outside."
        raise BadInput(f"{folder} holds {len(parcel) // MIB} MiB", remedy=remedy)
    return parcel


class CheckWorld:
    """One candidate. Actions: ``critic COMMAND``, ``verify``, ``refine``."""

    tools: Sequence[ToolSpec] = ()

    def __init__(self, checks: Checks, task: Task) -> None:
        data = task.data
        self._checks, self._count, self._parcel, self._id = checks, 0, b"", task.id
        self._known: tuple[bytes | None, str] = (None, "")  # the digest of a parcel, since unpacking it takes time
        given: dict[str, str] = data.get("files") or ({data["file"]: data["content"]} if "content" in data else {})
        self._names: list[str] = [data["file"]] if "file" in data else data.get("names") or sorted(given)
        self._gone: list[str] = data.get("gone") or []
        self.restores: Restores = "none" if checks.outside else "exact"
        if checks.outside and given:
            raise BadInput("a variant outside of the sandbox would overwrite the file", remedy="Leave --outside out.")
        if not checks.outside:
            folder = Path(checks.folder)
            files: dict[str, bytes | str | Path]
            if "commit" in data:
                git = Git(folder)
                inside = _inside(git, checks.folder)
                files = {n: text for e, text in git.contents(git.entries(data["commit"])) if (n := inside(e.path))}
            else:
                files = tree(folder)
            self._parcel = packed({n: c for n, c in (files | given).items() if n not in self._gone}, folder)

    @property
    def content(self) -> str:
        """What tells this candidate from others: the changed files with their contents, once refined all files."""
        if self._checks.outside or self._known[0] is not self._parcel:
            self._known = self._parcel, self._digest()
        return self._known[1]

    def _digest(self) -> str:
        if self._checks.outside:
            place = Path(self._checks.folder)
            found = {name: (place / name).read_bytes() for name in self._names if (place / name).is_file()}
        else:
            found = contents(self._parcel)
        names = found if self._count else [name for name in self._names if name in found]
        told = [(name, hashlib.sha256(found[name]).hexdigest()) for name in sorted(names)]
        return hashlib.sha256(json.dumps([told, self._gone]).encode()).hexdigest()[:24]

    @property
    def state_key(self) -> bytes:
        if self._checks.outside:
            return state_key(self._checks.folder, str(self._count))
        return state_key("\n".join(self._names), hashlib.sha256(self._parcel).hexdigest())

    def observe(self) -> Observation:
        return Observation(f"candidate {self._id}")

    async def step(self, action: str | ToolCall) -> Observation:
        """Run a command on the candidate.

        Raises:
            WorldError: no such action.
        """
        word, command = asked(self._checks, str(action), self._names)
        content = self.content
        self._count += word == "refine"
        code, limit, said, seconds = await (
            self._outside(command) if self._checks.outside else self._inside(command, word)
        )
        return observed(command, code, limit, said, seconds, content)

    async def _inside(self, command: str, word: str) -> tuple[int | None, str, str, float]:
        assert self._checks.box is not None
        room = 3 * len(self._parcel) + 64 * MIB
        wall = self._checks.wall
        limits = Limits(wall=wall, cpu=4 * wall, memory=4096 * MIB, processes=512, disk=room, file_size=room)
        keep = ["."] if word == "refine" else []
        found = await self._checks.box.arun(command, self._parcel, limits=limits, keep=keep)
        if word == "refine" and found.ok:
            self._parcel = pack(found.files, executables(self._parcel))
        text = (found.stdout + found.stderr).decode(errors="replace")
        return found.code, found.limit if found.code is None else "", text, found.seconds

    async def _outside(self, command: str) -> tuple[int | None, str, str, float]:
        start = time.monotonic()
        child = await asyncio.create_subprocess_shell(
            command, cwd=self._checks.folder, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, start_new_session=True
        )
        limit, said = "", b""
        try:
            said, _ = await asyncio.wait_for(child.communicate(), self._checks.wall)
        except TimeoutError:
            limit = "wall"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        code = None if limit else child.returncode
        return code, limit, said.decode(errors="replace"), time.monotonic() - start

    def snapshot(self) -> bytes:
        return self._parcel

    def restore(self, snapshot: bytes) -> None:
        self._parcel = snapshot

    def close(self) -> None:
        self._parcel = b""
