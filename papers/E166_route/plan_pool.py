"""The pool at work on plans: what a part of a plan makes of its subtask and of the results that it sees.

``answer`` is the one rule. ``Simulated`` plays whole plans by it in this process, which is what the conductor learns
from; ``crews`` plays it through the real orchestrator. Luck hangs on the task, on worker, subtask and parts read, and
on how often the same was asked before, so that both have the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from clew.core.keys import derive, uniforms
from clew.harness.workflow import Part
from clew.methods.routing.reward_matrix import F64
from papers.E166_route import pool
from papers.E166_route.pool import OPS, SKILL, WORKERS, Programs

PARTS = 5  # that a plan may have
BEST = WORKERS.index("expensive")  # the best single worker, by the exact chances
DEBUG = WORKERS.index("debug")
WHOLE, LEFT, CHECK, JOIN, AGAIN, WORDS, TABLE = 0, 6, 7, 8, 9, 10, 11
SUBTASKS = (
    "Do the whole program.",
    "Do the first operation.",
    "Do the second operation on the result before it.",
    "Do the third operation on the result before it.",
    "Do the first two operations.",
    "Do the second and the third operation on the result before them.",
    "Do what is left to do after the result that is furthest.",
    "Check the result that is furthest, and correct it.",
    "Give the result that most of the parts have.",
    "Say the last result again.",
    "Say the question in other words.",
    "List what the table holds.",
)  # the last three do nothing for the answer
RANGES = {0: (0, 9), 1: (0, 1), 2: (1, 2), 3: (2, 3), 4: (0, 2), 5: (1, 3)}  # operations, from and to
NUMBER = {text: number for number, text in enumerate(SUBTASKS)}
WRONGS = 5  # wrong results that there are of each operation: two that are wrong agree with chance 1 in 5
DRAWS = 5  # of luck in a part: one for each operation, which wrong result, whether a checker trusts itself
SIZE = (len(SUBTASKS), 1 << PARTS, PARTS, DRAWS)
CLAUSE = re.compile(r"\. |, then ")


class Answer(NamedTuple):
    """Of a part. done: operations that it has behind it, 0 where it says nothing of use. value: 0 right, else which
    wrong result."""

    done: int
    value: int = 0


NOTHING = Answer(0)


def answer(worker: int, subtask: int, order: str, seen: Sequence[Answer], luck: Sequence[float]) -> Answer:
    """What a worker makes of its subtask.

    A range of operations goes on from the last result seen that is as far; without one there is nothing to go on from.
    A checker does the operations of the furthest result itself; where the two differ it trusts itself in half of
    the cases. A ``debug`` worker that checks a wrong result has its higher chance. Whoever joins, and whoever repeats,
    errs never: this is a clerk's work.

    Args:
        order: types of the program's operations. seen: results in the order of their parts. luck: ``DRAWS`` numbers.
    """
    useful = [one for one in seen if one.done]
    furthest = max((one.done for one in useful), default=0)
    last = next((one for one in reversed(useful) if one.done == furthest), NOTHING)
    if subtask in (WORDS, TABLE):
        return NOTHING
    if subtask == AGAIN:
        return useful[-1] if useful else NOTHING
    if subtask == JOIN:
        return _most([one for one in useful if one.done == furthest])
    if subtask == CHECK and useful:
        again = _work(worker, order, 0, furthest, NOTHING, luck)
        if last.value and worker == DEBUG:
            again = Answer(furthest, 0 if luck[0] < pool.DEBUGS else last.value)
        return again if luck[4] < 0.5 else last
    start, end = (furthest, len(order)) if subtask in (LEFT, CHECK) else RANGES[subtask]
    end = len(order) if subtask == WHOLE else end
    if start >= end or end > len(order):
        return NOTHING if subtask != LEFT else last
    from_ = next((one for one in reversed(useful) if one.done == start), NOTHING) if start else NOTHING
    return NOTHING if start and not from_.done else _work(worker, order, start, end, from_, luck)


def _work(worker: int, order: str, start: int, end: int, from_: Answer, luck: Sequence[float]) -> Answer:
    value = from_.value
    for at in range(start, end):
        if luck[at] >= SKILL[worker][OPS.index(order[at])]:
            value = 1 + int(luck[3] * WRONGS)
    return Answer(end, value)


def _most(found: Sequence[Answer]) -> Answer:
    """The value most often given; of several the one given first."""
    if not found:
        return NOTHING
    values = [one.value for one in found]
    return Answer(found[0].done, max(values, key=values.count))


# ---- luck ----------------------------------------------------------------------------------------------------------


def offset(worker: int, subtask: int, reads: Sequence[int], before: int) -> int:
    """Where the luck of a part begins, by what its worker knows of itself; ``before``: how often it had the same."""
    mask = sum(1 << j for j in reads)
    return ((((worker * SIZE[0]) + subtask) * SIZE[1] + mask) * SIZE[2] + before) * SIZE[3]


def task_luck(keys: np.ndarray, copy: int | np.ndarray) -> np.ndarray:
    """Luck of programs in one of many copies, uint64."""
    return keys ^ (np.asarray(copy, np.uint64) * np.uint64(0xD1342543DE82EF95))


Plan = Sequence[Part]


def offsets(plan: Plan) -> list[int]:
    """Where the luck of each part begins."""
    had: dict[int, int] = {}
    out = []
    for part in plan:
        first = offset(part.worker, NUMBER[part.subtask], part.reads, 0)
        out.append(first + had.setdefault(first, 0) * SIZE[3])
        had[first] += 1
    return out


class Simulated:
    """Plans played in this process, on the programs of one draw."""

    def __init__(self, found: Programs) -> None:
        self.found = found

    def play(self, plans: Sequence[Plan | None], at: np.ndarray, copies: np.ndarray) -> list[list[Answer]]:
        """The answers of each plan's parts; none where there is no plan.

        Args:
            at: which program each plan is for, int [n]. copies: of its luck, int [n].
        """
        lucks = task_luck(self.found.keys[at], copies)
        places = np.zeros((len(plans), PARTS), np.int64)
        for row, plan in zip(places, plans, strict=True):
            row[: len(plan or ())] = offsets(plan or ())
        drawn = uniforms(lucks[:, None, None], (places[:, :, None] + np.arange(DRAWS)).astype(np.uint64)).tolist()
        out = []
        for plan, program, luck in zip(plans, at.tolist(), drawn, strict=True):
            order, said = self.found.orders[program], list[Answer]()
            for part, mine in zip(plan or (), luck, strict=False):
                seen = [said[j] for j in part.reads]
                said.append(answer(part.worker, NUMBER[part.subtask], order, seen, mine))
            out.append(said)
        return out

    def right(self, plans: Sequence[Plan | None], at: np.ndarray, copies: np.ndarray) -> F64:
        """Whether the last part's answer is the program's, float64 [n]."""
        played = self.play(plans, at, copies)
        ends = [len(self.found.orders[program]) for program in at.tolist()]
        return np.array([bool(said) and said[-1] == Answer(end) for said, end in zip(played, ends, strict=True)], float)

    def success(self, plans: Sequence[Plan | None], copies: int, first: int = 0) -> F64:
        """Share of copies of its luck in which the plan of each program is right, float64 [Q]."""
        n = len(self.found.texts)
        at, which = np.repeat(np.arange(n), copies), np.tile(np.arange(first, first + copies), n)
        return self.right([plans[i] for i in at.tolist()], at, which).reshape(n, copies).mean(1)


def part(worker: int, subtask: int, reads: Sequence[int] = ()) -> Part:
    return Part(worker, SUBTASKS[subtask], tuple(reads))


def chain(order: str, workers: Sequence[int]) -> Plan:
    """An operation a part, each on the result before it."""
    return tuple(part(w, 1 + i, (i - 1,) if i else ()) for i, w in zip(range(len(order)), workers, strict=False))


def masters(order: str) -> Plan:
    """The plan of somebody who knows the pool: each operation by who is best at it."""
    return chain(order, [OPS.index(op) for op in order])


def forced(plan: Plan, worker: int = BEST) -> Plan:
    return tuple(one._replace(worker=worker) for one in plan)


# ---- what the conductor reads --------------------------------------------------------------------------------------

CLAUSES, WIDTH = 3, 8  # sentences of a program, main directions of each


@lru_cache(maxsize=8192)
def clauses(text: str) -> tuple[str, ...]:
    """The sentences of a program, one an operation: where one ends is given, what it asks is not."""
    return tuple(CLAUSE.split(text.strip().removesuffix("."))[1:])


class ClauseReader:
    """Programs as vectors: for each clause the main directions of its n-grams, 0 where there is none."""

    def __init__(self, found: Programs, seed: int) -> None:
        from clew.methods.routing.question_space import Space, vectors

        self._vectors = vectors
        said = [one for text in found.texts for one in clauses(text)]
        h = vectors(said)
        self.space = Space.of(h, derive(seed, "clauses") % 2**31, WIDTH)
        x = self.space(h)
        self.middle, self.spread = x.mean(0), x.std(0) + 1e-9

    def __call__(self, found: Programs) -> F64:
        """float64 [Q, CLAUSES * (WIDTH + 1) + 1]: of each clause its directions and a sign that it is there; then 1."""
        out = np.zeros((len(found.texts), CLAUSES, WIDTH + 1))
        at = [(row, i) for row, text in enumerate(found.texts) for i in range(len(clauses(text)))]
        said = [clauses(found.texts[row])[i] for row, i in at]
        rows, places = np.array(at).T
        out[rows, places, :WIDTH] = (self.space(self._vectors(said)) - self.middle) / self.spread
        out[rows, places, WIDTH] = 1
        return np.concatenate([out.reshape(len(out), -1), np.ones((len(out), 1))], axis=1)
