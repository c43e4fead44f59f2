"""The second world, section 7.4 of specs/E178: programs for integer functions against test suites that evolve.

A task is a function of an integer x, a sum of a few terms with whole coefficients. A solver's genome says which terms
it may use and how many visible cases it copies out as they are; its program for a task is fitted to the ten visible
cases.
A judge is a suite of inputs, and accepts a program that is right on all of them; truth is to be right on every input.
Gaming is to copy the visible cases. What the spec leaves open is said where it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from clew.core.keys import derive
from clew.methods.coevolve import Job, Made, Proposal, Role, Said, View
from clew.methods.coevolve.archive import Anchor, Item

SOLVER, SUITE, SLOT = "solver", "suite", "tests"
TASKS, VALIDATION, TEST, LONGEST = 64, 200, 1000, 12
X = np.arange(-20, 21)
VISIBLE = tuple(range(16, 26))  # places of the ten visible inputs, -4 to 5
FIRST_SUITE = [17, 20, 23]  # three of them
TERMS = np.column_stack([X, X**2, X % 2, X % 3, np.abs(X), (X > 0) * X, X // 4, np.sign(X)]).astype(float)


class Solved(NamedTuple):
    """right: of a program on each input, bool [41]."""

    right: np.ndarray

    @property
    def artefact(self) -> dict[str, str]:
        return {"right": "".join("01"[int(one)] for one in self.right)}


def task_of(seed: int) -> np.ndarray:
    """A function's values on all inputs: one to three terms with coefficients from -5 to 5 but 0, and a constant."""
    rng = np.random.default_rng(seed)
    some = rng.choice(TERMS.shape[1], int(rng.integers(1, 4)), replace=False)
    factors = rng.integers(1, 6, len(some)) * rng.choice([-1, 1], len(some))
    found: np.ndarray = TERMS[:, some] @ factors + int(rng.integers(-9, 10))
    return found


def solved(genome: Any, values: np.ndarray) -> Solved:
    """The program of a genome for a task: least squares over its terms on the visible cases, rounded, then copies."""
    flags, copied = genome["terms"], genome["copied"]
    used = np.column_stack([np.ones(len(X)), TERMS[:, [i for i, flag in enumerate(flags) if flag]]])
    factors, *_ = np.linalg.lstsq(used[list(VISIBLE)], values[list(VISIBLE)], rcond=None)
    said = np.round(used @ factors)
    said[list(VISIBLE[:copied])] = values[list(VISIBLE[:copied])]
    return Solved(np.abs(said - values) < 0.5)


def passes(suite: Sequence[int], artefact: Any) -> bool:
    return all(artefact["right"][at] == "1" for at in suite)


class Workshop:
    """Solvers make programs, suites test them; a suite's own validation is ground truth."""

    slots: Mapping[str, str] = {SLOT: SUITE}

    def __init__(self, seed: int, anchor: int = 100) -> None:
        self.seed = seed
        self.roles = (Role(SOLVER, TASKS, SLOT), Role(SUITE, VALIDATION))
        self.tasks = [task_of(derive(seed, "task", i)) for i in range(TASKS)]
        self.test = [task_of(derive(seed, "test", i)) for i in range(TEST)]
        self.people = self._people("anchor", anchor)
        self.validation = self._people("validation", VALIDATION)
        self.judged = self._people("judged", TEST)

    def _people(self, name: str, n: int) -> list[tuple[dict[str, str], bool]]:
        """Programs by people, who use some terms and copy some cases, with whether they are right everywhere."""
        out = []
        for i in range(n):
            rng = np.random.default_rng(derive(self.seed, name, i))
            genome = {
                "terms": (rng.random(TERMS.shape[1]) < 0.6).tolist(),
                "copied": int(rng.integers(0, len(VISIBLE) + 1)),
            }
            made = solved(genome, task_of(derive(self.seed, name, "task", i)))
            out.append((made.artefact, bool(made.right.all())))
        return out

    def anchors(self) -> dict[str, Anchor]:
        return {SLOT: Anchor([Item(f"program-{i:08d}", made, good) for i, (made, good) in enumerate(self.people)])}

    async def perform(self, jobs: Sequence[Job]) -> list[Made]:
        out = []
        for job in jobs:
            if job.role == SUITE:
                made, good = self.validation[job.task]
                out.append(Made(outcome=int(passes(job.genome, made) == good)))  # type: ignore[arg-type]
            else:
                out.append(Made(solved(job.genome, self.tasks[job.task]).artefact))
        return out

    async def judge(self, slot: str, genome: Any, artefacts: Sequence[Any]) -> Said:
        return Said([passes(genome, one) for one in artefacts])

    async def label(self, slot: str, artefacts: Sequence[Any]) -> Said:
        return Said(["0" not in one["right"] for one in artefacts])

    async def feedback(self, workspace: Mapping[str, object], luck: int) -> dict[str, object]:
        return {}

    def skill(self, genome: Any) -> float:
        """Share of the tasks never searched on that a solver gets right on every input."""
        return float(np.mean([solved(genome, values).right.all() for values in self.test]))

    def right(self, suite: Any) -> float:
        """Share of people's programs that a suite judges rightly."""
        return float(np.mean([passes(suite, made) == good for made, good in self.judged]))


class Changes:
    """The symbolic proposer: a child differs in its solver (more often in copies than in terms) or in its suite."""

    async def propose(self, view: View, luck: int) -> Proposal:
        rng = np.random.default_rng(luck)
        solver: Any = dict(view.workspace[SOLVER])  # type: ignore[call-overload]
        suite: Any = list(view.workspace[SUITE])  # type: ignore[call-overload]
        if rng.integers(2):
            if rng.random() < 0.6:
                solver["copied"] = int(np.clip(solver["copied"] + rng.integers(-2, 5), 0, len(VISIBLE)))
            else:
                at = int(rng.integers(TERMS.shape[1]))
                solver["terms"] = [flag != (i == at) for i, flag in enumerate(solver["terms"])]
        else:
            kinds = ["add"] * (len(suite) < LONGEST) + ["drop", "exchange"] * (len(suite) > 1)
            kind = kinds[int(rng.integers(len(kinds)))]
            if kind != "add":
                suite.pop(int(rng.integers(len(suite))))
            if kind != "drop":
                suite = sorted({*suite, int(rng.integers(len(X)))})
        return Proposal({SOLVER: solver, SUITE: suite})
