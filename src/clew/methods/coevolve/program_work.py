"""Work of the engine whose genomes are programs in Python: performed in the sandbox, graded outside it.

It is passed to ``red_queen.evolve`` where a proposer writes code. A program gets one input and prints one answer, which
is compared here with the answer that is wanted: what else it prints, reads or claims counts for nothing. It must never
be run in this process, and wanted answers must never enter the sandbox.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from clew.core.errors import BadInput
from clew.core.keys import value_digest
from clew.methods.coevolve.workplace import Job, Made, Role, Said
from clew.sandbox.sandbox import Limits, Sandbox, Verdict

ROLE, LONGEST = "program", 32_000  # characters of a program
COMMAND = ("python3", "-I", "program.py")


class Case(NamedTuple):
    """What a program is given on standard input and as ``input.json``, and the JSON that it should print."""

    given: object
    wanted: object


class ProgramWork:
    """As ``Work``, with one role, ``program``, whose outcome is ground truth.

    Several programs of a batch run side by side, each in a sandbox of its own; one that is killed loses its own outcome
    and no other. ``kinds`` counts how programs ended, and so does the archive's budget: "right", "wrong", "no answer",
    "exit" (an error), or the limit that ended it ("wall", "processes", "memory", ...).

    Args:
        cases: each is a task. box: where programs run; default: five seconds and 256 MiB.
        together: programs that run at once.

    Raises:
        BadInput: there is no case.
    """

    def __init__(self, cases: Sequence[Case], box: Sandbox | None = None, together: int = 2) -> None:
        if not cases or together < 1:
            raise BadInput("no case to perform", remedy="Give inputs with the answers that are wanted.")
        self.cases, self.box = tuple(cases), box or Sandbox(Limits(wall=5, cpu=5, memory=256 << 20))
        self.roles: Sequence[Role] = (Role(ROLE, len(self.cases)),)
        self.slots: Mapping[str, str] = {}
        self.kinds: dict[str, int] = {}
        self._turns = asyncio.Semaphore(together)

    async def perform(self, jobs: Sequence[Job]) -> Sequence[Made]:
        """As ``Work``."""
        return list(await asyncio.gather(*(self._made(job) for job in jobs)))

    async def judge(self, slot: str, genome: object, artefacts: Sequence[object]) -> Said:
        """As ``Work``: there is no judge."""
        raise BadInput(f"programs have no judge {slot!r}", remedy="Their outcome is ground truth.")

    async def label(self, slot: str, artefacts: Sequence[object]) -> Said:
        """As ``Work``: there is nothing to label."""
        return Said([None] * len(artefacts))

    async def feedback(self, workspace: Mapping[str, object], luck: int) -> Mapping[str, object]:
        """As ``Work``: nothing; a proposer sees a program's counts."""
        return {}

    async def _made(self, job: Job) -> Made:
        case, source = self.cases[job.task], job.genome
        if not isinstance(source, str) or len(source) > LONGEST:
            return self._ended("length", False)
        files = {"program.py": source, "input.json": json.dumps(case.given)}
        async with self._turns:
            verdict = await self.box.arun(list(COMMAND), files, stdin=json.dumps(case.given).encode())
        kind, right = _graded(verdict, case.wanted)
        return self._ended(kind, right)

    def _ended(self, kind: str, right: bool) -> Made:
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        return Made(outcome=int(right), cost={f"programs that ended {kind}": 1})


def _graded(verdict: Verdict, wanted: object) -> tuple[str, bool]:
    """How a program ended, and whether its last line is the wanted answer, as JSON of equal type."""
    if verdict.code is None or verdict.code:
        return verdict.limit or "exit", False
    lines = verdict.stdout.decode("utf-8", "replace").strip().splitlines()
    try:
        said = json.loads(lines[-1]) if lines else None
        right = bool(lines) and value_digest(said) == value_digest(wanted)
    except (ValueError, RecursionError, TypeError):
        return "no answer", False
    return ("right" if right else "wrong" if lines else "no answer"), right
