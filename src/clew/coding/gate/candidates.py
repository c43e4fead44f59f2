"""Candidates in a repository as a world: each action runs one of the user's commands and gives its verdict.

``clew gate`` opens it. Commands run in the sandbox, on a copy of the repository's files; the state is that copy, so
that runs restore and fork. Only with ``outside`` do they run in the repository itself, without a sandbox, and nothing
restores. Without ``outside`` the user's own files must never change.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shlex
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT

from clew.coding.kernels.runs import ended
from clew.coding.repository.git import Git, only_regular
from clew.core.errors import BadInput, UnknownName, WorldError
from clew.core.keys import state_key
from clew.core.protocols import Restores, World
from clew.core.reading import Record
from clew.core.registry import make_ref
from clew.core.values import Observation, Task, ToolCall, ToolSpec
from clew.sandbox.archives import executables, pack
from clew.sandbox.sandbox import Limits, Sandbox

MIB = 1 << 20
LARGEST = 5 * MIB  # of a candidate's file: no person reads more, and no model writes it
MOST = 256 * MIB
TAIL = 600  # characters of a command's output that are kept


class Checks:
    """A repository, the critics and the oracle of what is changed there.

    Args:
        oracle: command whose verdict counts; exit status 0 is good, 1 broken, anything else (a crash, a limit)
            undecided. Of pytest 2 is broken too: it says so where a module does not import.
        critics: cheap commands; ``{file}`` stands for the candidate's file. Their verdicts are read alike.
        refine: command that changes the files: makes the next candidate.
        folder: the repository.
        outside: run everything in the repository itself, as this user, without a sandbox.
        wall: seconds of one command at most.
    """

    def __init__(self, oracle: str, critics: Sequence[str] = (), refine: str = "", folder: str = ".",
                 outside: bool = False, wall: float = 600.0) -> None:  # fmt: skip
        self.oracle, self.critics, self.refine, self.wall = oracle, tuple(critics), refine, wall
        self.folder, self.outside = str(Path(folder).resolve()), outside
        for command in (oracle, *critics, *([refine] if refine else [])):
            try:
                words = shlex.split(command)
            except ValueError as error:
                raise BadInput(f"{command!r} is no command: {error}", remedy="Close its quotes.") from error
            if not words:
                raise BadInput("a critic or the oracle is empty", remedy="Give a command, as in 'pytest -q'.")
        if len(set(self.critics)) < len(self.critics):
            raise BadInput("a critic is given twice", remedy="Name each command once.")
        given = {"oracle": oracle, "critics": self.critics, "refine": refine, "folder": self.folder}
        defaults = {"critics": (), "refine": "", "outside": False, "wall": 600.0}
        self.ref = make_ref("checks", {**given, "outside": outside, "wall": wall}, defaults)
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

    def open(self, task: Task) -> World:
        return CheckWorld(self, task)

    async def judge(self, task: Task, run: Record, world: World | None) -> Mapping[str, float]:
        """``belief`` that the candidate is good; ``reward``: the utility, where the oracle spoke or nothing ships."""
        ends = [json.loads(c.text) for c in run.calls if c.kind == "note" and c.action == "gate end"]
        if not ends:
            return {}
        end = ends[-1]
        return {"belief": end["belief"]} | ({"reward": end["utility"]} if end["utility"] is not None else {})


def listed(folder: Path) -> list[str]:
    """The files of a repository: those git knows or would take. Without git, or in a folder that the repository around
    it ignores, all that is not hidden."""
    try:
        names = Git(folder).names(folder)
    except BadInput:
        names = []
    return names or only_regular(folder, _seen(folder))


def _seen(folder: Path) -> Iterator[str]:
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


class CheckWorld:
    """One candidate. Actions: ``critic COMMAND``, ``verify``, ``refine``."""

    tools: Sequence[ToolSpec] = ()

    def __init__(self, checks: Checks, task: Task) -> None:
        self._checks, self._file = checks, str(task.data["file"])
        self.restores: Restores = "none" if checks.outside else "exact"
        self._parcel, self._count = b"", 0
        if not checks.outside:
            folder = Path(checks.folder)
            files: dict[str, bytes | str | Path] = {name: folder / name for name in listed(folder)}
            if "content" in task.data:
                files[self._file] = str(task.data["content"])
            self._parcel = pack(files)
            if len(self._parcel) > MOST:
                raise BadInput(
                    f"{checks.folder} holds {len(self._parcel) // MIB} MiB",
                    remedy="256 MiB fit the sandbox: list what is not needed in .gitignore, or ask for --outside.",
                )
        elif "content" in task.data:
            raise BadInput("a variant outside of the sandbox would overwrite the file", remedy="Leave --outside out.")

    @property
    def state_key(self) -> bytes:
        if self._checks.outside:
            return state_key(self._checks.folder, str(self._count))
        return state_key(self._file, hashlib.sha256(self._parcel).hexdigest())

    def observe(self) -> Observation:
        return Observation(f"candidate {self._file}")

    async def step(self, action: str | ToolCall) -> Observation:
        """Run a command on the candidate.

        Raises:
            WorldError: no such action.
        """
        word, _, rest = str(action).partition(" ")
        commands = {"verify": self._checks.oracle, "refine": self._checks.refine, "critic": rest}
        if word not in commands or not commands[word] or (word == "critic" and rest not in self._checks.critics):
            raise WorldError(f"{str(action)[:60]!r} is no check", remedy="Use critic COMMAND, verify or refine.")
        command = commands[word].replace("{file}", shlex.quote(self._file))
        self._count += word == "refine"
        code, limit, said, seconds = await (
            self._outside(command) if self._checks.outside else self._inside(command, word)
        )
        passed, why = verdict(command, code, limit)
        found = {"passed": passed, "why": why, "seconds": round(seconds, 4), "tail": said[-TAIL:]}
        return Observation(json.dumps(found, ensure_ascii=False))

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


def verdict(command: str, code: int | None, limit: str) -> tuple[bool | None, str]:
    """What an exit status says: passed, failed, or None with the reason: one that did not finish has found nothing."""
    if code is None:
        return None, f"ended for its limit: {limit}"
    if code == 0:
        return True, ""
    broken = {1, 2} if "pytest" in command else {1}
    if code in broken:
        return False, f"exit {code}"
    names = {126: "cannot be executed", 127: "is not installed here"}
    told = ended(code)  # by a signal, or with a status that says nothing
    return None, told if "SIG" in told else f"exit {code}: {names.get(code, 'neither passed nor failed')}"
