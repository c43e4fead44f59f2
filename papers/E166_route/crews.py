"""The pool as workers of the real orchestrator: scripted models that read their prompt and nothing else.

R6 plays a conductor's plans with them, R8 the same plan with and without sight of other attempts. They answer by
``plan_pool.answer``; how the plan is parsed, who works when, and who sees what is the orchestrator's doing.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from clew.core.keys import derive, uniforms
from clew.core.records import Request
from clew.core.values import Task
from clew.harness import Runner
from clew.harness.workflow import Part, written
from clew.models.fakes import Scripted
from clew.store import Run
from papers.E166_route import plan_pool
from papers.E166_route.plan_pool import DRAWS, NOTHING, NUMBER, PARTS, WRONGS, Answer
from papers.E166_route.pool import WORKERS, Programs

PROGRAM = re.compile(r"^user: table: .*$", re.MULTILINE)
OWN = re.compile(r"^Your part of the work: (.*)$", re.MULTILINE)
RESULT = re.compile(r"^\[([0-9a-f]{8}) part (\d+): [^\n]*\]\n(.*?)\n\[\1 end\]$", re.MULTILINE | re.DOTALL)
SAID = re.compile(r"after (\d) operations?: (\d+)")


def shown(one: Answer, key: int) -> str:
    """An answer as a worker says it. Each operation of a program has one right number and ``WRONGS`` wrong ones."""
    if not one.done:
        return "I have nothing."
    number = (derive(key >> 1, one.done) + 101 * one.value) % 1000
    return f"after {one.done} operation{'s' * (one.done > 1)}: {number}"


def understood(text: str, key: int) -> Answer:
    found = SAID.fullmatch(text.strip())
    if not found:
        return NOTHING
    known = {shown(Answer(int(found[1]), value), key): value for value in range(WRONGS + 1)}
    return Answer(int(found[1]), known[found[0]])


class Prompt(NamedTuple):
    """What a worker is told: program, subtask, and the results it sees, by part."""

    program: str
    subtask: str
    seen: dict[int, str]

    @classmethod
    def of(cls, request: Request) -> Prompt:
        text = request.path[-1].message.text
        own = OWN.search(text)
        seen = {int(part): said for _, part, said in RESULT.findall(text)}
        return cls(PROGRAM.findall(text)[0], own[1] if own else "", seen)


Says = Callable[[Request], str]


class Crew:
    """A runner of the orchestrator for these programs: who leads writes the plan that ``plans`` gives for each."""

    def __init__(self, found: Programs, plans: Sequence[str], workers: dict[str, Says], task: str = "p") -> None:
        self.found = found
        self.at = {text.strip(): i for i, text in enumerate(found.texts)}
        models = {name: Scripted({"": says}) for name, says in workers.items()}
        lead = Scripted({"": lambda request: plans[self.asked(request)]})
        config = {"workers": list(models)}
        self.runner = Runner("orchestrator", None, lead, config=config, resolve_model=models.__getitem__)
        self.tasks = [Task(f"{task}{i}", text) for i, text in enumerate(found.texts)]

    def asked(self, request: Request) -> int:
        """Which program a request is about."""
        told = "\n".join(node.message.text for node in request.path if node.message.role == "user")
        return self.at[PROGRAM.findall(told)[0]]

    def play(self, which: Sequence[int]) -> list[Answer | None]:
        """The answers to these programs; None where the orchestrator found no plan."""
        runs = self.runner.collect([self.tasks[i] for i in which], n=1).runs
        return [self._answer(run, int(self.found.keys[i])) for run, i in zip(runs, which, strict=True)]

    @staticmethod
    def _answer(run: Run, key: int) -> Answer | None:
        notes = {call.action: json.loads(call.text or "{}") for call in run.calls if call.kind == "note"}
        return None if "no plan" in notes else understood(notes["answer"]["text"], key)


def by_luck(found: Programs, copy: int) -> dict[str, Says]:
    """The pool's workers, with the luck that ``Simulated`` has in this copy."""
    at, had = {text.strip(): i for i, text in enumerate(found.texts)}, Counter[tuple[int, int]]()
    lucks = plan_pool.task_luck(found.keys, copy)

    def worker(number: int) -> Says:
        def says(request: Request) -> str:
            told = Prompt.of(request)
            i, subtask, reads = at[told.program], NUMBER[told.subtask], sorted(told.seen)
            key = int(found.keys[i])
            place = plan_pool.offset(number, subtask, reads, 0)
            had[i, place] += 1
            place += (had[i, place] - 1) * DRAWS
            luck = uniforms(lucks[i], (place + np.arange(DRAWS)).astype(np.uint64)).tolist()
            seen = [understood(told.seen[j], key) for j in reads]
            return shown(plan_pool.answer(number, subtask, found.orders[i], seen, luck), key)

        return says

    return {name: worker(number) for number, name in enumerate(WORKERS)}


# ---- R8: workers that copy what they see -----------------------------------------------------------------------------

LEAVES = PARTS - 1
GENERALIST = WORKERS.index("generalist")


def leaves(shared: bool) -> str:
    """Four attempts and whoever joins them: each attempt alone, or in sight of those before it."""
    plan = [Part(0, plan_pool.SUBTASKS[plan_pool.WHOLE], tuple(range(t)) if shared else ()) for t in range(LEAVES)]
    return written([*plan, Part(1, plan_pool.SUBTASKS[plan_pool.JOIN], tuple(range(LEAVES)))])


class Isolation(NamedTuple):
    """What came out of an arm. success: a program, 0 or 1, float64 [n]. alike: share of pairs of a program's attempts
    that are the same, float64 [n]; wrong: pairs that are the same and wrong. saw: attempts that were made in sight of
    another one, by what their prompts held."""

    success: np.ndarray
    alike: np.ndarray
    wrong: np.ndarray
    saw: int
    attempts: int


def isolation(found: Programs, shared: bool, copying: float, copy: int) -> Isolation:
    """Four attempts of one generalist at each program, joined by majority, through the orchestrator.

    An attempt that sees others copies one of them with chance ``copying``. Luck is of the program and of how many
    attempts at it came before, the same in both arms.
    """
    at = {text.strip(): i for i, text in enumerate(found.texts)}
    lucks = plan_pool.task_luck(found.keys, copy)
    made: list[list[Answer]] = [[] for _ in found.texts]
    saw = 0

    def solve(request: Request) -> str:
        nonlocal saw
        told = Prompt.of(request)
        i = at[told.program]
        key, begin = int(found.keys[i]), len(made[i]) * (DRAWS + 2)
        luck = uniforms(lucks[i], (begin + np.arange(DRAWS + 2)).astype(np.uint64)).tolist()
        everything = "\n".join(node.message.text for node in request.path)
        saw += bool(SAID.search(everything))
        own = plan_pool.answer(GENERALIST, plan_pool.WHOLE, found.orders[i], (), luck)
        if told.seen and luck[DRAWS] < copying:
            others = [understood(told.seen[j], key) for j in sorted(told.seen)]
            own = others[int(luck[DRAWS + 1] * len(others))]
        made[i].append(own)
        return shown(own, key)

    def join(request: Request) -> str:
        told = Prompt.of(request)
        i = at[told.program]
        key = int(found.keys[i])
        seen = [understood(told.seen[j], key) for j in sorted(told.seen)]
        return shown(plan_pool.answer(GENERALIST, plan_pool.JOIN, found.orders[i], seen, [0.0] * DRAWS), key)

    crew = Crew(found, [leaves(shared)] * len(found.texts), {"solver": solve, "joiner": join})
    ends = [Answer(len(order)) for order in found.orders]
    said = crew.play(range(len(found.texts)))
    success = np.array([a == end for a, end in zip(said, ends, strict=True)], float)
    pairs = [[(a, b) for k, a in enumerate(row) for b in row[:k]] for row in made]
    alike = np.array([np.mean([a == b for a, b in row]) for row in pairs])
    wrong = np.array([np.mean([a == b and a.value > 0 for a, b in row]) for row in pairs])
    return Isolation(success, alike, wrong, saw, sum(map(len, made)))
