"""Makes tasks of repairs from a local repository: by mutation of its code, or by its own past fixes; proves each one.

``clew repairs`` calls it. A task is written only where, in the sandbox, the named tests fail before its reference patch
and pass with it, and the others pass in both: each looked at twice, so that a test that comes out by chance is not
named. A problem statement must never say where the fault is: only what the tests say of it.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from clew.coding.repairs.begin_trees import leaves
from clew.coding.repairs.mutants import mutants
from clew.coding.repairs.named_tests import Outcomes, Wanted
from clew.coding.repairs.repair_rows import Row, files_of, in_source
from clew.coding.repairs.row_case import Ground, RowCase
from clew.coding.repository.git import Git
from clew.coding.repository.languages import is_test, language, left_out
from clew.coding.repository.past_fixes import fixes, masked
from clew.core.errors import BadInput, ClewError

SHOWN, LINES, WIDTH = 8, 6, 300  # tests, lines of each and letters of a line that a statement tells
LARGEST = 400_000  # bytes of a file that is mutated
LEFT = frozenset(("setup.py", "conf.py", "noxfile.py", "versioneer.py", "_version.py"))
NAMED = re.compile(r"<\S+ testMethod=\w+>")  # unittest's, in a message
HOW = {"missing": "does not run", "failed": "fails", "error": "breaks", "skipped": "is skipped"}
SLOWER, SPARE = 5.0, 10.0  # how much longer than as they are tests may take with a variant: times, and CPU seconds
PAST = 20  # past fixes that are looked at for each task that is wanted
DRAWS = 100  # variants that are drawn for each task that is wanted, at most


class Candidate(NamedTuple):
    """What may become a task. key: its name among those that were tried. row: as far as it is known. tests: the files
    of its tests; empty for all that the command runs."""

    key: str
    row: Row
    tests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Proof:
    """What a candidate came to: its row, or why it is left out. unsteady: tests that came out in two ways, unnamed."""

    key: str
    row: Row | None = None
    why: str = ""
    unsteady: int = 0


class Maker:
    """Makes tasks of one repository at its HEAD.

    Args:
        git: the repository. name: ``owner/name`` or ``name``, as rows name it. clone: its path, as rows keep it.
        ground: where all of it runs; its command is how tests are run.
        within: what the paths of changed files begin with; empty: any.
    """

    def __init__(
        self, git: Git, name: str, clone: str, ground: Ground, seed: int = 0, within: Sequence[str] = ()
    ) -> None:
        self.git, self.name, self.clone, self.ground, self.seed = git, name, clone, ground, seed
        self.head, self.within = git.commit("HEAD"), tuple(within)
        self._steady: frozenset[str] | None = None
        self._tight = ground  # for variants, which may never end: bounds by what the tests take as they are
        self._short = name.replace("/", "__")

    # ---- candidates ------------------------------------------------------------------------------------------------

    def mutated(self, n: int) -> Iterator[Candidate]:
        """Variants of the repository with one place changed, in an order that the seed decides.

        Raises:
            BadInput: no file can be changed.
        """
        entries = [e for e in self.git.entries(self.head) if self._mutable(e.path) and e.size <= LARGEST]
        sources = {entry.path: content for entry, content in self.git.contents(entries)}
        if not sources:
            raise BadInput(f"{self.git.folder} has no Python source to change", remedy="Name another repository.")
        rng, known = random.Random(self.seed), set[str]()
        paths = sorted(sources)
        weights = [sources[path].count(b"\n") + 1 for path in paths]
        for _ in range(DRAWS * (n + 10)):
            path = rng.choices(paths, weights)[0]
            try:
                text = sources[path].decode()
                other = next(iter(mutants(text, 1, rng.getrandbits(32))), text)
            except (UnicodeDecodeError, BadInput):  # of another Python, or none
                continue
            key = hashlib.sha256(f"{self.head} {path} {other}".encode()).hexdigest()[:10]
            if other == text or key in known:
                continue
            known.add(key)
            made = self._row(f"mutation-{key}", self.head, "")
            yield Candidate(key, replace(made, bug_patch=unified(path, text, other), patch=unified(path, other, text)))

    def _mutable(self, path: str) -> bool:
        if language(path) != "python" or _tests(path) or left_out(path) or path.rpartition("/")[2] in LEFT:
            return False
        if path in files_of([*(self._steady or ())]):
            return False
        return path.endswith(".py") and path.startswith(self.within or ("",))

    def fixed(self, n: int) -> Iterator[Candidate]:
        """Past commits that fix something and change tests with it, newest first."""
        for fix in fixes(self.git, PAST * n):
            changed = self.git.run("diff-tree", "-r", "--no-renames", "--name-only", "-z", fix.parent, fix.commit)
            paths = [name.decode("utf-8", "surrogateescape") for name in changed.split(b"\0")[:-1]]
            tests = [path for path in paths if _tests(path)]
            source = [path for path in paths if not _tests(path)]
            if not tests or not source or not any(path.startswith(self.within or ("",)) for path in source):
                continue
            row = self._row(f"fix-{fix.commit[:10]}", fix.parent, fix.report)
            patch, brought = (self._patch(fix.parent, fix.commit, some) for some in (source, tests))
            files = tuple(path for path in tests if path.endswith(".py") and not path.endswith("conftest.py"))
            if files and patch and brought:
                yield Candidate(fix.commit[:10], replace(row, patch=patch, test_patch=brought), files)

    def _patch(self, old: str, new: str, paths: Sequence[str]) -> str:
        words = ("diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv")
        return self.git.run(*words, old, new, "--", *paths).decode("utf-8", "surrogateescape")

    def _row(self, kind: str, commit: str, statement: str) -> Row:
        named = f"{self._short}-{kind}"
        return Row(named, self.name, commit, statement, test_command=self.ground.command, clone=self.clone)

    # ---- proof -----------------------------------------------------------------------------------------------------

    async def sound(self) -> int:
        """How many tests pass at HEAD, twice.

        Raises:
            BadInput: none does.
        """
        return len(await self._base())

    async def _base(self) -> frozenset[str]:
        """The tests that pass at HEAD, twice."""
        if self._steady is None:
            case = RowCase(self._row("base", self.head, "base"), self.ground)
            ran = [await self._ran(case, case.begin, ()) for _ in range(2)]
            self._steady = frozenset(_good(ran[0]) & _good(ran[1]))
            cpu = min(self.ground.limits.cpu, SLOWER * max(one.cpu for one in ran) + SPARE)
            self._tight = self.ground._replace(limits=replace(self.ground.limits, cpu=cpu, wall=4 * cpu))
            if not self._steady:
                why = _unrun(ran[0]) or next(iter(ran[0].errors.values()), "no test was found")[:300]
                remedy = "Show what they need: --readable VENV; of a package in src/: --verify 'PYTHONPATH=src pytest'."
                raise BadInput(f"no test of {self.git.folder} passes in the sandbox: {why}", remedy=remedy)
        return self._steady

    async def proven(self, candidate: Candidate) -> Proof:
        """The candidate as a task, with the names of its tests and what a reporter would say; or why it is none."""
        try:
            return await self._proven(candidate)
        except (BadInput, ClewError) as error:
            return Proof(candidate.key, why=error.message[:200])

    async def _proven(self, candidate: Candidate) -> Proof:
        key, row, own = candidate.key, candidate.row, bool(candidate.row.test_patch)
        if not own:
            await self._base()
        case = RowCase(row, self.ground if own else self._tight)
        before = await self._ran(case, case.begin, candidate.tests)
        if before.ended:
            return Proof(key, why=f"the tests reach the limit {before.ended} before the fix")
        if own:
            with_fix = await self._ran(case, case.solved() or "", candidate.tests)
            if why := _unrun(with_fix):
                return Proof(key, why=f"the tests do not run with the fix: {why}")
            right = _good(with_fix)
        else:
            right = {*await self._base()}
        fail = sorted(right - _good(before))
        if not fail:
            return Proof(key, why="no test notices it")
        kept = sorted(right & _good(before))
        if not kept and not own:
            return Proof(key, why="every test fails with it")
        row = replace(row, fail_to_pass=tuple(fail), pass_to_pass=tuple(kept))
        row = replace(row, problem_statement=statement(row, before))
        return await self._checked(key, row)

    async def _checked(self, key: str, row: Row) -> Proof:
        """The row, judged as a run would be: what began, and what the reference solution makes of it."""
        case = RowCase(row, self.ground)
        begun, solved = await case.judged(case.begin), await case.judged(case.solved() or "")
        fail = [n for n in row.fail_to_pass if n in {*solved.ran.good([n])} and not begun.ran.good([n])]
        kept = [n for n in row.pass_to_pass if n in {*solved.ran.good([n])} and begun.ran.good([n])]
        lost = len(row.fail_to_pass) + len(row.pass_to_pass) - len(fail) - len(kept)
        if begun.ran.ended:
            return Proof(key, why=f"the tests reach the limit {begun.ran.ended} before the fix")
        if begun.ran.meddled or solved.ran.meddled:
            return Proof(key, why="a test that must fail is reported to pass")
        if not fail:
            return Proof(key, why=f"its tests come out in two ways{f' ({why})' if (why := _unrun(solved.ran)) else ''}")
        return Proof(key, replace(row, fail_to_pass=tuple(fail), pass_to_pass=tuple(kept)), unsteady=lost)

    async def _ran(self, case: RowCase, tree: str, files: Sequence[str]) -> Outcomes:
        """What the tests say of a snapshot, with the row's tests in it."""
        wanted = await asyncio.to_thread(case.over, tree)
        there = await asyncio.to_thread(leaves, self.ground.shelf, case.tests)
        chosen = [file for file in files if file in there] or list(case.command.paths)
        beside = files[0].rpartition("/")[0] if files else next(iter(case.command.paths), "")
        beside = beside if beside not in there else beside.rpartition("/")[0]
        return await case.ran(Wanted(wanted.tree, chosen, wanted.new, True, beside if chosen else None))


def _tests(path: str) -> bool:
    """Whether a path is of tests, as a single file of them at the root is too."""
    return is_test(path) or path.rpartition("/")[2] in ("test.py", "tests.py")


def _good(ran: Outcomes) -> set[str]:
    return {name for name in ran.good([*ran.each]) if not in_source(name)}


def _unrun(ran: Outcomes) -> str:
    """Why tests did not run; empty where some did."""
    if ran.ended:
        return f"the limit {ran.ended} was reached"
    return "" if ran.each and not ran.lacking else (ran.lacking or ran.said.strip()[-200:] or "no test was found")


def statement(row: Row, before: Outcomes) -> str:
    """What a reporter would say: of a past fix its report and what is seen, of a mutation which tests fail and how."""
    outcomes, said = before.of(row.fail_to_pass), list[str]()
    for name in row.fail_to_pass[:SHOWN]:
        error = before.errors.get(name) or before.errors.get(name.partition("::")[0], "")
        lines = [line[:WIDTH] for line in masked(NAMED.sub("<a test>", error)).strip().splitlines()[:LINES]]
        if row.test_patch:
            said += ["", *(f"    {line}" for line in lines)] if lines else []
        else:
            said += [f"- {name} {HOW.get(outcomes[name], outcomes[name])}", *(f"      {line}" for line in lines)]
    if row.test_patch:
        seen = "\n".join(dict.fromkeys(said)).strip("\n")
        return row.problem_statement + (f"\n\nWhat is seen:\n\n{seen}" if seen else "")
    count = len(row.fail_to_pass)
    more = [f"- and {count - SHOWN} more"] if count > SHOWN else []
    one = "A test of this repository fails" if count == 1 else f"{count} tests of this repository fail"
    return "\n".join([f"{one}; the tests are right. Find the cause in the code and fix it.", "", *said, *more])


def unified(path: str, old: str, new: str) -> str:
    """A patch of one file that git applies."""
    before, after = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (old, new))
    lines = list(difflib.unified_diff(before, after, f"a/{path}", f"b/{path}"))
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
