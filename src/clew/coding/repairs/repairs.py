"""Repairs: tasks of fixing a repository, each begun in a fresh copy of it, and judged by tests that no agent changes.

``repairs(file='tasks.jsonl')`` names it, and so does ``--data`` with a file of such rows. A verdict rests on what
became of each named test, and stands only where the reference solution passes and the beginning does not:
what cannot be told here is undecided. Nothing of the patches, of the names of tests or of their files may come into a
task or its files.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from clew.coding.repairs.folder_case import FolderCase, folders_in
from clew.coding.repairs.repair_rows import are_repairs, rows_in
from clew.coding.repairs.row_case import Ground, Judged, RowCase, hide
from clew.core.errors import BadInput, Undecided, UnknownName, WorldError
from clew.core.keys import derive
from clew.core.protocols import World
from clew.core.reading import Record
from clew.core.registry import make_ref
from clew.core.sources import placed
from clew.core.values import Task
from clew.sandbox.sandbox import MIB, Limits, Sandbox
from clew.worlds.workspace import TreeShelf, WorkspaceWorld, last_tree
from clew.worlds.workspace.workspace import SHELF

WAIT = 0.02  # seconds after which one looks again
SPLITS = ("train", "eval", "test")


class Repairs:
    """Tasks of fixing repositories, of a file of SWE-bench's rows or a folder of Harbor's task folders.

    Args:
        file: a file of rows (JSON lines, or one JSON list), a task's folder, or a folder of such.
        clones: folder in which the repositories lie, as ``owner/name``, ``owner__name`` or ``name``, bare or not, or
            several; default: the one that a row names, else the folder of ``file`` and ``clones`` in it. Nothing is
            ever fetched.
        command: how tests are run; default: what a row says, else ``python -m pytest``.
        readable: folders of this machine that commands and tests see, read-only, as a virtual environment with what
            the tests need (the Python that it was made of is seen too); default: the Python of this process.
        held_out: share of the tasks whose rows name no split that are kept for eval, and as much for test.
        provided: of task folders, that what their image brings (packages, variables) is there, in ``readable``.
        steps: acts after which a run is over. seconds: of one command, wall and CPU. test_seconds: CPU of one run
            of tests; its wall time is bounded by four times as much. memory: bytes of one command, or run of tests.
            disk: bytes that the files of a run may have.
        shelf: folder of the snapshots; default: ``.clew/files``, beside the default store.

    Raises:
        BadInput: the file holds no task, a row lacks a field, or a bound is no bound. MissingExtra: bubblewrap is not
        installed.
    """

    def __init__(
        self,
        file: str,
        clones: str | Sequence[str] = (),
        command: str = "",
        readable: Sequence[str] = (),
        held_out: float = 0.0,
        provided: bool = False,
        steps: int = 100,
        seconds: float = 120.0,
        test_seconds: float = 600.0,
        memory: int = 2048 * MIB,
        disk: int = 1024 * MIB,
        shelf: str = "",
    ) -> None:
        if steps < 1 or not 0 <= held_out <= 0.5:
            raise BadInput(f"steps is {steps}, held_out {held_out}", remedy="At least 1 step, a share of at most 0.5.")
        self.file = Path(placed(Path(file).expanduser()))
        self.steps, self.disk, self.held_out = steps, disk, held_out
        self.shelf = TreeShelf(Path(placed(shelf or SHELF)))
        limits = Limits(seconds, seconds, memory, 512, min(disk, 1 << 30), disk, 1024, MIB)
        places = [Path(one).expanduser().absolute() for one in ([clones] if isinstance(clones, str) else clones)]
        folders = folders_in(self.file) if self.file.is_dir() else []
        seen = Sandbox(limits, readable or None).readable
        links = {path: target for one in folders for path, target in one.links.items()}
        links = {path: target for path, target in links.items() if not any(one.is_relative_to(path) for one in seen)}
        self.sandbox = Sandbox(limits, seen, links=links)
        tests = Limits(4 * test_seconds, test_seconds, memory, 512, min(disk, 1 << 30), disk, 1024, MIB)
        beside = [self.file.parent, self.file.parent / "clones"]
        ground = Ground(self.shelf, self.sandbox, tests, places, command, {})
        for place in (self.file, self.shelf.folder, *places):
            hide(place, self.sandbox)
        self._cases: dict[str, RowCase | FolderCase] = {}
        if folders:
            self._cases = {c.id: c for c in (one.case(ground, beside, provided) for one in folders)}
        else:
            self._cases = {row.instance_id: RowCase(row, ground, beside) for row in rows_in(self.file)}
        self._known: dict[tuple[str, str], Judged] = {}
        self._asking = set[tuple[str, str]]()
        self._places = threading.BoundedSemaphore(max(1, len(os.sched_getaffinity(0))))
        given: dict[str, Any] = {"file": str(self.file), "clones": tuple(map(str, places)), "command": command}
        given |= {
            "readable": tuple(map(os.path.abspath, readable)),
            "held_out": held_out,
            "provided": provided,
            "steps": steps,
        }
        given |= {"seconds": seconds, "test_seconds": test_seconds, "memory": memory, "disk": disk}
        self.ref = make_ref("repairs", given | {"shelf": str(self.shelf.folder)}, Repairs)

    def __repr__(self) -> str:
        return f"<Repairs {self.file.name}>"

    @property
    def about(self) -> str:
        """What the file holds, in a line: how many tasks, and how many are left out for which reason."""
        lost = Counter(why for case in self._cases.values() if (why := case.refused))
        told = "; ".join(f"{count}, as {why}" for why, count in lost.most_common(3))
        left = f", {lost.total()} of them left out: {told}" if lost else ""
        return f"{self.file.name}: {len(self._cases)} repairs{left}"

    # ---- tasks -----------------------------------------------------------------------------------------------------

    fits = staticmethod(are_repairs)  # asked by verbs that are given data

    def sample(self, n: int, seed: int = 0, split: str = "train") -> list[Task]:
        """``n`` tasks of a split in an order that the seed decides, each once; all of them where there are fewer.

        Tasks that cannot be judged here are left out; see ``about``.

        Raises:
            BadInput: no such split, no task in it, or the clone of a task is missing.
        """
        if split not in SPLITS or n < 0:
            raise BadInput(f"{n} tasks of {split!r}", remedy=f"Ask for zero or more, of {', '.join(SPLITS)}.")
        good = [name for name, case in self._cases.items() if not case.refused]
        mine = [name for name in good if self._split(name) == split]
        if not mine:
            if not good:
                remedy = "Name the folder of the clones with clones='...'; docs/repairs.md says what can be judged."
                raise BadInput(self.about, remedy=remedy)
            remedy = "Keep some for it: repairs(file=..., held_out=0.1); or give rows a field split."
            raise BadInput(f"{self.file.name} has no task of the split {split}", remedy=remedy)
        drawn = random.Random(derive(seed, "repairs", split)).sample(mine, min(n, len(mine)))
        for name in drawn:
            self._cases[name].check()
        return [self.find(name) for name in drawn]

    def _split(self, name: str) -> str:
        if (told := self._cases[name].split) in SPLITS:
            return told
        at = random.Random(derive(0, "split", name)).random()
        return "test" if at < self.held_out else "eval" if at < 2 * self.held_out else "train"

    def find(self, task_id: str) -> Task:
        """A task by its id, which is the row's ``instance_id`` or the folder's name.

        Raises:
            UnknownName: there is none. BadInput: it cannot be judged here, with the reason.
        """
        case = self._case(task_id)
        if case.refused:
            raise BadInput(f"{task_id} cannot be judged here: {case.refused}", remedy="See docs/repairs.md.")
        return Task(case.id, case.prompt, limits=case.limits)

    def _case(self, task_id: str) -> RowCase | FolderCase:
        if task_id not in self._cases:
            remedy = f"The first are {', '.join([*self._cases][:3])}."
            raise UnknownName(f"{self.file.name} has no task {task_id[:80]!r}", remedy=remedy)
        return self._cases[task_id]

    def begins(self, task: Task) -> str:
        """The key of the snapshot that a run of the task begins with; it is made when it is first asked for.

        Raises:
            BadInput: the clone is missing or lacks the commit, or a patch does not apply.
        """
        return self._case(task.id).begin

    def open(self, task: Task) -> WorkspaceWorld:
        return WorkspaceWorld(self, task)

    # ---- verdicts --------------------------------------------------------------------------------------------------

    async def judge(self, task: Task, run: Record, world: World | None) -> Mapping[str, float | None]:
        """``judged`` of the files as the run left them."""
        return await self.judged(task, last_tree(self, task, run, world))

    async def judged(self, task: Task, tree: str) -> Mapping[str, float | None]:
        """``reward`` 1 where all tests that have to pass do, else 0; ``fail_to_pass`` and ``pass_to_pass``, the shares
        of the named tests that pass; ``meddled`` 1 where a test that must fail was reported to pass.

        Raises:
            Undecided: a limit was reached, the reference solution does not pass here, or the beginning does.
        """
        case = self._case(task.id)
        async with self._turn():
            found = await case.judged(tree)
        if found.ran.ended:
            raise Undecided(f"the limit {found.ran.ended} was reached by the tests of {task.id}")
        if why := await (self._already_good(case) if found.good else self._not_sound(case)):
            raise Undecided(f"{task.id} cannot be judged here: {why}", found.shares)
        return {"reward": found.reward, **found.shares}

    async def _already_good(self, case: RowCase | FolderCase) -> str:
        """Why a pass says nothing; empty where it does: the tests do not pass at the beginning."""
        return "its tests pass before anything is changed" if (await self._control(case, case.begin)).good else ""

    async def _not_sound(self, case: RowCase | FolderCase) -> str:
        """Why a failure says nothing; empty where it does: the tests pass with the reference solution."""
        try:
            solved = await asyncio.to_thread(case.solved)
        except (BadInput, WorldError) as error:
            return f"its reference solution cannot be had: {error.message}"
        found = await self._control(case, solved or case.begin)
        if found.good if solved else case.sound(found.ran):
            return ""
        ran = found.ran
        reason = f"the limit {ran.ended} was reached" if ran.ended else ran.lacking or ran.said.strip()[-200:]
        bad = next((name for name, one in ran.each.items() if one not in ("passed", "xfailed", "skipped")), "")
        what = "its reference solution does not pass" if solved else "its tests do not run at the beginning"
        return f"{what} ({reason or bad or 'not every named test ran'})"

    async def _control(self, case: RowCase | FolderCase, tree: str) -> Judged:
        """What the tests say of a snapshot by which verdicts are checked; asked once."""
        asked = (case.id, tree)
        while asked in self._asking:
            await asyncio.sleep(WAIT)
        if asked not in self._known:
            self._asking.add(asked)
            try:
                async with self._turn():
                    self._known[asked] = await case.judged(tree)
            finally:
                self._asking.discard(asked)
        return self._known[asked]

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """A place among the runs of tests at one time, of whatever event loop: more of them than cores would only reach
        their limits."""
        while not self._places.acquire(blocking=False):
            await asyncio.sleep(WAIT)
        try:
            yield
        finally:
            self._places.release()
