"""A program that Clew did not write as the world of a run: each act hands it answers and gives what it asks next.

``clew run --command`` puts ``Programs`` around a world of files (``workspace``, ``repairs``) or around data. Each run
starts the program anew in the sandbox, in files of its own, with the task as its input. The kind is ``caller``: to
fork a run the program is started again and given its recorded answers, and each state of its files is compared with the
recorded one. The program must never reach a judge's material, another run's line, or a network.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import weakref
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from clew.core.errors import BadInput, ClewError, WorldError
from clew.core.keys import state_key
from clew.core.protocols import Restores, Taskset, World
from clew.core.reading import Record
from clew.core.registry import build, make_ref
from clew.core.values import Observation, StopReason, Task, ToolCall, ToolSpec
from clew.sandbox.sandbox import Limits, Sandbox, Verdict, own_folder
from clew.sandbox.scratch import Scratch
from clew.serve.programs.commanded import EXCHANGE, Told
from clew.serve.programs.hub import Hub
from clew.serve.programs.launch import PORT, started, visible, words_of
from clew.serve.programs.line import Line, read
from clew.serve.programs.open_requests import OpenRequests
from clew.worlds.bases import alive
from clew.worlds.judging import world_acts
from clew.worlds.workspace import Bounds, FileTasks, Scan, restore
from clew.worlds.workspace.tree_states import content_state

SECONDS = 1800.0
AT_ONCE = 8
SHOWN = 4000  # characters of what a program printed that are kept


class Programs:
    """The tasks of another taskset, worked on by a program.

    Args:
        world: that taskset, or a reference to it.
        command: the program's command line. ``{task}`` stands for the prompt, which is also on its standard input and
            in ``CLEW_TASK``; the model's address is in ``OPENAI_BASE_URL`` and ``ANTHROPIC_BASE_URL``.
        seconds: how long one run of the program may take, wall and CPU.
        readable: further folders and files of this machine that the program sees, read-only.
        at_once: programs that run at the same time.

    Raises:
        BadInput: the command is none, or its program is not there. MissingExtra: bubblewrap is not installed.
    """

    def __init__(
        self,
        world: str | Taskset,
        command: str,
        seconds: float = SECONDS,
        readable: Sequence[str] = (),
        at_once: int = AT_ONCE,
    ) -> None:
        if at_once < 1 or not 0 < seconds < 1e7:
            raise BadInput("a program's bounds are not positive", remedy="Give seconds and at_once above 0.")
        self.inner: Taskset = build("tasksets", world) if isinstance(world, str) else world
        self.words, self.command, self.seconds = words_of(command), command, seconds
        self.files = self.inner if isinstance(self.inner, FileTasks) else None
        limits = self.files.sandbox.limits if self.files is not None else Limits(memory=2 << 30, processes=512)
        limits = replace(limits, wall=seconds, cpu=seconds, open_files=1024)
        shown = [*(self.files.sandbox.readable if self.files is not None else ()), *visible(self.words)]
        links = dict(self.files.sandbox.links) if self.files is not None else {}
        self.sandbox = Sandbox(limits, [*map(Path, readable), *shown], links=links)
        if self.files is not None:
            self.shelf = self.files.shelf
        self._threads = ThreadPoolExecutor(at_once, "clew-program")
        self._scans = ThreadPoolExecutor(2, "clew-scan")  # of its own: a program holds its thread while it waits
        self._hub: Hub | None = None
        given: dict[str, Any] = {"world": self.inner.ref, "command": shlex.join(self.words)}
        given |= {"seconds": seconds, "readable": tuple(os.path.abspath(path) for path in readable)}
        self.ref = make_ref("program", given, {"seconds": SECONDS, "readable": ()})

    def __repr__(self) -> str:
        return f"<Programs {self.words[0]} in {self.inner!r}>"

    def sample(self, n: int, seed: int = 0, split: str = "train") -> list[Task]:
        return self.inner.sample(n, seed, split)

    def find(self, task_id: str) -> Task:
        return self.inner.find(task_id)

    def open(self, task: Task) -> ProgramWorld:
        return ProgramWorld(self, task)

    async def judge(self, task: Task, run: Record, world: World | None) -> Mapping[str, float | None]:
        """The verdict of the taskset on the files as the program left them, or, without files, on the record."""
        if self.files is None:
            return await self.inner.judge(task, run, None)
        if isinstance(world, ProgramWorld):
            tree = world.tree
        else:
            kept = [Told.read(call.text).tree for call in world_acts(run)]
            tree = kept[-1] if kept else self.files.begins(task)
        return await self.files.judged(task, tree)

    def hub(self) -> Hub:
        if self._hub is None:
            self._hub = Hub()
            weakref.finalize(self, self._hub.stop)
        return self._hub

    def start(self, task: Task, line: Line, folder: Path, cancel: int) -> Future[Verdict]:
        """Run the program for a task, in a thread of the few that there are.

        Args:
            cancel: a descriptor that becomes readable when the program shall be ended.
        """
        words, env = started(self.words, task.prompt, line.name)

        def run() -> Verdict:
            doors = {PORT: self.hub().socket}
            return self.sandbox.run(words, folder=folder, env=env, stdin=task.prompt, doors=doors, cancel=cancel)

        return self._threads.submit(run)

    async def scanned(self, scan: Scan) -> str:
        """The key of a snapshot, taken in a thread."""
        return (await asyncio.get_running_loop().run_in_executor(self._scans, scan.snapshot)).tree


class ProgramWorld:
    """One run's program, in files of its own. ``tree``: key of the snapshot of its files when it asked last, or empty.

    Its one action is ``exchange`` with answers to what was asked; what it shows is ``Told``.
    """

    restores: Restores = "caller"
    tools: Sequence[ToolSpec] = ()

    def __init__(self, taskset: Programs, task: Task) -> None:
        self._set, self._task, self._files = taskset, task, taskset.files
        self.tree = self._files.begins(task) if self._files is not None else ""
        self._open = OpenRequests()
        self._place: Scratch | None = None
        self._scan: Scan | None = None
        self._line: Line | None = None
        self._program: Future[Verdict] | None = None
        self._work: asyncio.Future[Verdict] | None = None
        self._cancel = (-1, -1)
        self._over = self._closed = False
        self._said, self._states = b"", dict[str, bytes]()

    @property
    def state_key(self) -> bytes:
        """What the files hold, as of a workspace; without files what was said so far."""
        if self._files is None:
            return state_key("program", self._task.id, self._said.hex())
        return state_key("workspace", content_state(self._files.shelf, self.tree, self._states).hex())

    def observe(self) -> Observation:
        return Observation("", None, self._over)

    def step(self, action: str | ToolCall) -> Awaitable[Observation]:
        """Hand the program its answers; what it asks next, or how it ended.

        Raises:
            WorldError: this is no exchange, or the program has ended.
        """
        alive(self._over or self._closed, action)
        return self._step(action)

    async def _step(self, action: str | ToolCall) -> Observation:
        answers = _answers(action)
        if self._work is None:
            self._start()
        assert self._line is not None
        assert self._work is not None
        more = partial(self._line.requests, self._work)
        for given, it in zip(answers, await self._open.answered(answers, more), strict=True):
            said = read(given)
            message = None if isinstance(said, ClewError) else said.message
            self._open.history.answered(it.exchange.thread, message)
            self._line.answer(it.exchange, said)
            self._said = state_key("program", self._said.hex(), str(given.get("key")), json.dumps(given.get("message")))
        asked, self._open.late = self._open.late or await more(), []
        if self._scan is not None:
            self.tree = await self._set.scanned(self._scan)
        if asked:
            told = Told(tuple(map(self._open.take, asked)), tuple(it.key for it in asked))
        else:
            told, self._over = _ended(await self._work), True
        told = told._replace(tree=self.tree, differs=self._open.differs)
        call_id = action.id if isinstance(action, ToolCall) else None
        return Observation(told.text(), None, self._over, call_id=call_id)

    def _start(self) -> None:
        self._place = Scratch("program")
        folder = self._place.path / "box"
        folder.mkdir()
        if self._files is not None:
            restore(self._files.shelf, self.tree, folder)
            self._scan = Scan(folder, self._files.shelf, Bounds(file=self._files.disk, total=self._files.disk))
        own_folder(folder)
        self._line, self._cancel = self._set.hub().open(), os.pipe()
        self._program = self._set.start(self._task, self._line, folder, self._cancel[0])
        self._work = asyncio.wrap_future(self._program)

    def close(self) -> None:
        """End the program, if it has not ended, and remove its files."""
        if self._closed:
            return
        self._closed = True
        if self._line is not None:
            self._set.hub().close(self._line)
        if self._program is not None:
            os.close(self._cancel[1])  # which ends the program
            self._program.add_done_callback(self._tidy)

    def _tidy(self, _: Future[Verdict]) -> None:
        """Called once the program's thread is done with both, in that thread or here."""
        os.close(self._cancel[0])
        if self._place is not None:
            self._place.close()


def _answers(action: str | ToolCall) -> list[dict[str, Any]]:
    try:
        found = json.loads(action.arguments)["answers"] if isinstance(action, ToolCall) else None
        good = all(isinstance(one["request"], int) for one in found or ())
    except (ValueError, TypeError, KeyError, RecursionError):
        found = None
    if not isinstance(action, ToolCall) or action.name != EXCHANGE or not isinstance(found, list) or not good:
        told = "the world of a program was given something else than answers"
        raise WorldError(told, remedy="Its agent is clew.serve.programs.commanded:commanded.")
    return found


def _ended(verdict: Verdict) -> Told:
    output = (verdict.stdout + b"\n" * bool(verdict.stderr) + verdict.stderr).decode("utf-8", "replace").strip()
    late = verdict.limit in ("wall", "cpu")
    how = f"the limit {verdict.limit} was reached" if late or verdict.code is None else f"exit status {verdict.code}"
    stop = StopReason.TIME_LIMIT if late else "" if verdict.code == 0 else StopReason.PROGRAM_FAILED
    return Told((), ended=how, code=verdict.code, output=output[-SHOWN:], stop=str(stop))
