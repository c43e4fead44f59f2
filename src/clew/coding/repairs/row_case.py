"""A task of repairs from a row: what it begins with, what its reference solution makes, and how its files are judged.

``Repairs`` has one for each row, ``clew repairs`` proves one before it writes it. The tests that judge lie in a
snapshot of their own, which no run begins with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from clew.coding.repairs.begin_trees import Leaves, begun, changed, clone_of, committed, grown, leaves
from clew.coding.repairs.laid_over import Held, held, laid_over, new_modules
from clew.coding.repairs.named_tests import Command, Outcomes, Wanted, read_command, run_tests
from clew.coding.repairs.repair_rows import Row, files_of, in_source, paths_of
from clew.coding.repository.git import Git
from clew.core.errors import BadInput
from clew.core.values import Limits as TaskLimits
from clew.sandbox.sandbox import Limits, Sandbox
from clew.worlds.workspace import TreeShelf

COMMAND = "python -m pytest"


class Ground(NamedTuple):
    """What cases of a taskset share. shelf: of the snapshots. sandbox: where all of it runs. limits: of a run of tests.
    clones: folders of local repositories. command: how tests are run; empty where the row or the default says. found:
    the repositories that were looked for, by name and place, or why there is none."""

    shelf: TreeShelf
    sandbox: Sandbox
    limits: Limits
    clones: Sequence[Path]
    command: str
    found: dict[tuple[str, str], Git | BadInput]


class Judged(NamedTuple):
    """What the tests say of files. reward: 1 where all that have to pass do. shares: parts of the verdict, by name.
    ran: what came of the tests."""

    reward: float
    shares: dict[str, float]
    ran: Outcomes

    @property
    def good(self) -> bool:
        """Whether nothing is left to be done."""
        return self.reward >= 1.0


class RowCase:
    """A row over its local clone, which is looked for when it is first needed.

    Args:
        beside: folders in which clones are looked for where the user names none.
    """

    limits = TaskLimits()

    def __init__(self, row: Row, ground: Ground, beside: Sequence[Path] = ()) -> None:
        self.row, self._ground, self._beside = row, ground, beside
        self.id, self.prompt, self.split = row.instance_id, row.problem_statement, row.split

    @property
    def refused(self) -> str:
        """Why the task cannot be done here; empty where it can."""
        if self.row.refused:
            return self.row.refused
        try:
            hide(self.git.home, self._ground.sandbox)
        except BadInput as error:
            return error.message
        return ""

    @property
    def git(self) -> Git:
        """The clone.

        Raises:
            BadInput: there is none.
        """
        known, name = self._ground.found, (self.row.repo, self.row.clone)
        if name not in known:
            try:
                known[name] = self._find()
            except BadInput as error:
                known[name] = error
        found = known[name]
        if isinstance(found, BadInput):
            raise found
        return found

    def _find(self) -> Git:
        if not self._ground.clones and self.row.clone and Path(self.row.clone).is_dir():
            return Git(self.row.clone)
        return clone_of(self.row.repo, self._ground.clones or self._beside)

    def check(self) -> None:
        """Raises BadInput where the clone lacks the commit."""
        self.git.commit(self.row.base_commit)

    @cached_property
    def _base(self) -> str:
        return committed(self.git, self.row.base_commit, self._ground.shelf)

    @property
    def begin(self) -> str:
        """The snapshot that a run begins with: the base commit, broken where the task is by mutation."""
        return begun(self._ground.shelf, self._ground.sandbox, self._base, self.row.bug_patch)

    @property
    def tests(self) -> str:
        """The snapshot of the base commit with the tests that judge."""
        return changed(self._ground.shelf, self._ground.sandbox, self._base, self.row.test_patch)

    @cached_property
    def command(self) -> Command:
        """How its tests are run."""
        there = [*leaves(self._ground.shelf, self.tests)]
        return read_command(self._ground.command or self.row.test_command or COMMAND, there)

    @cached_property
    def held(self) -> Held:
        names = [n for n in (*self.row.fail_to_pass, *self.row.pass_to_pass) if not in_source(n)]
        return held(files_of(names), paths_of(self.row.test_patch), paths_of(self.row.patch))

    def solved(self) -> str | None:
        """The snapshot with the reference solution in it; None where the row has none."""
        if not self.row.patch.strip():
            return None
        return changed(self._ground.shelf, self._ground.sandbox, self.begin, self.row.patch)

    def over(self, tree: str) -> Wanted:
        """The run of tests that judges a snapshot: with the original tests laid over it."""
        shelf = self._ground.shelf
        last, tests, begin = (leaves(shelf, one) for one in (tree, self.tests, self.begin))
        files = [file for file in files_of((*self.row.fail_to_pass, *self.row.pass_to_pass)) if file in tests]
        new = new_modules(last, begin, [*tests, *paths_of(self.row.patch)])
        judged = laid_over(last, tests, begin, self.held)
        beside = files[0].rpartition("/")[0] if files else ""
        return Wanted(grown(shelf, judged), files, [path for path in new if path in _tops(judged)], True, beside)

    async def ran(self, wanted: Wanted) -> Outcomes:
        """What comes of tests, by the row's command."""
        return await run_tests(self._ground.shelf, self._ground.sandbox, self._ground.limits, self.command, wanted)

    async def judged(self, tree: str) -> Judged:
        """What the named tests say of a snapshot."""
        return self.weighed(await self.ran(await asyncio.to_thread(self.over, tree)))

    def weighed(self, ran: Outcomes) -> Judged:
        """What a run of the tests comes to by the names of the row."""
        fail, kept = self.row.fail_to_pass, self.row.pass_to_pass
        shares = {"fail_to_pass": len(ran.good(fail)) / len(fail)}
        if kept:
            shares["pass_to_pass"] = len(ran.good(kept)) / len(kept)
        if ran.meddled:
            shares["meddled"] = 1.0
        return Judged(float(not ran.meddled and set(shares.values()) == {1.0}), shares, ran)

    def sound(self, ran: Outcomes) -> bool:
        """Whether what began can be judged here, of a row without a solution: the tests that have to stay do pass."""
        return ran.reported and not ran.lacking and len(ran.good(self.row.pass_to_pass)) == len(self.row.pass_to_pass)


def hide(path: Path, sandbox: Sandbox) -> None:
    """Refuse what nobody may read who works on a task.

    Raises:
        BadInput: it lies in a folder that commands in the sandbox see.
    """
    for seen in sandbox.readable:
        if path.resolve().is_relative_to(seen.resolve()):
            told = f"{path} lies in {seen}, which agents would read"
            raise BadInput(told, remedy="Move it, or name less with readable='...'.")


def _tops(found: Leaves) -> set[str]:
    """Every entry of the root and of its folders, by path."""
    return {"/".join(path.split("/")[:n]) for path in found for n in (1, 2)}
