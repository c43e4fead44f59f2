"""The capability matrix of a pool: what reward each worker got at each question, sample by sample.

``clew route`` makes one of stored runs or of rows of a file; headroom, contest and fit read it. A missing sample is NaN
and must never count as a reward of zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput, BadRecord
from clew.core.keys import value_digest
from clew.core.values import Message
from clew.models.compose.ngrams import transcript

F64 = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]
MOST = 20_000_000  # places for samples in a matrix
TEXT = ("question", "prompt", "text")  # columns that may hold the question, the first that is there
FAMILY = ("family", "subject", "category")
COLUMNS = f"question (or {', '.join(TEXT[1:])}), worker, reward; and family, cost, sample, answer where known"


class Scored(NamedTuple):
    """One sample: a worker's reward at a question. ``text`` is what the worker was sent, as a router reads it
    (``ngrams.transcript``); ``cost`` in US dollars, NaN where not known; ``answer`` what it answered, empty where not
    known; ``run`` the id of its run, empty where it has none."""

    question: str
    text: str
    worker: str
    reward: float
    family: str = ""
    cost: float = math.nan
    answer: str = ""
    run: str = ""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Q questions, W workers and up to S samples of each pair.

    Args:
        questions, texts, families: [Q], ids, what a router reads of each, and the family of each ("" for unknown).
        workers: [W], as a line names them.
        rewards: float64 [Q, W, S], NaN where there is no sample; at least one in each pair.
        costs: float64 [Q, W, S], US dollars of each sample, NaN where not known.
        answers: [Q][W][S], what was answered, or empty where answers are not known.
        runs: ids of the runs that the samples come from.
        notes: what a reader must know of it.
    """

    questions: tuple[str, ...]
    texts: tuple[str, ...]
    families: tuple[str, ...]
    workers: tuple[str, ...]
    rewards: F64
    costs: F64
    answers: tuple[tuple[tuple[str, ...], ...], ...] = ()
    runs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.questions)

    @property
    def counts(self) -> Index:
        """Samples of each pair, int [Q, W]."""
        counts: Index = (~np.isnan(self.rewards)).sum(2)
        return counts

    @property
    def means(self) -> F64:
        """Mean reward of each pair, float64 [Q, W]."""
        means: F64 = np.nanmean(self.rewards, 2)
        return means

    @property
    def prices(self) -> F64 | None:
        """Mean cost of a call of each pair, US dollars, float64 [Q, W]; None unless every pair has one."""
        known = ~np.isnan(self.costs)
        if not known.any(2).all():
            return None
        prices: F64 = np.where(known, self.costs, 0).sum(2) / known.sum(2)
        return prices

    @property
    def spread(self) -> bool:
        """Whether costs are known and differ, so that something can be saved."""
        prices = self.prices
        return prices is not None and bool(np.ptp(prices) > 0)

    @property
    def label(self) -> str:
        """A name of what is in it: 8 hexadecimal digits."""
        seen = np.nan_to_num(self.rewards, nan=-1e9)
        return value_digest([list(self.questions), list(self.workers), seen.tobytes()]).hex()[:8]

    def take(self, rows: Sequence[int] | Index) -> Matrix:
        """Some of the questions."""
        at = np.asarray(rows, np.intp)
        some = {name: tuple(getattr(self, name)[i] for i in at) for name in ("questions", "texts", "families")}
        answers = tuple(self.answers[i] for i in at) if self.answers else ()
        return replace(self, rewards=self.rewards[at], costs=self.costs[at], answers=answers, **some)


def matrix(samples: Iterable[Scored], workers: Sequence[str] = (), notes: Sequence[str] = ()) -> Matrix:
    """The matrix of samples; a question that some worker has no reward for is left out, and a note counts these.

    Args:
        workers: the pool in order; default: as the samples bring them.

    Raises:
        BadInput: fewer than two workers, a worker without any reward, or no question that all of them answered.
    """
    rows = list(samples)
    pool = list(dict.fromkeys(workers or (row.worker for row in rows)))
    if len(pool) < 2:
        said = f"the pool is {pool[0]} alone" if pool else "the pool is empty"
        raise BadInput(said, remedy="Measure two workers or more with `clew route measure --models A,B`.")
    cells: dict[str, dict[str, list[Scored]]] = {}
    for row in rows:
        if row.worker in pool:
            cells.setdefault(row.question, {}).setdefault(row.worker, []).append(row)
    for worker in pool:
        if not any(worker in cell for cell in cells.values()):
            raise BadInput(f"{worker} has no reward for any question", remedy="Measure it, or leave it out.")
    whole = {name: cell for name, cell in cells.items() if len(cell) == len(pool)}
    if not whole:
        raise BadInput("no question was answered by every worker", remedy="Measure the same questions with all.")
    if left := len(cells) - len(whole):
        notes = (*notes, f"{left} questions are left out: some worker has no reward for them")
    deep = max(len(found) for cell in whole.values() for found in cell.values())
    if deep * len(whole) * len(pool) > MOST:
        said = f"{len(whole):,} questions of {len(pool)} workers with up to {deep:,} samples are too many"
        raise BadInput(said, remedy="Give about as many samples of each pair.")
    rewards = np.full((len(whole), len(pool), deep), np.nan)
    costs = rewards.copy()
    answers: list[tuple[tuple[str, ...], ...]] = []
    firsts: list[Scored] = []
    for q, cell in enumerate(whole.values()):
        for w, worker in enumerate(pool):
            found = cell[worker]
            rewards[q, w, : len(found)] = [one.reward for one in found]
            costs[q, w, : len(found)] = [one.cost for one in found]
        answers.append(tuple(tuple(one.answer for one in cell[worker]) for worker in pool))
        firsts.append(next(iter(cell.values()))[0])
    told = any(text for cell in answers for texts in cell for text in texts)
    return Matrix(
        questions=tuple(whole),
        texts=tuple(one.text for one in firsts),
        families=tuple(one.family for one in firsts),
        workers=tuple(pool),
        rewards=rewards,
        costs=costs,
        answers=tuple(answers) if told else (),
        runs=tuple(one.run for cell in whole.values() for found in cell.values() for one in found if one.run),
        notes=tuple(notes),
    )


def from_rows(rows: Iterable[tuple[int, Mapping[str, object]]], columns: Sequence[str] = ()) -> Matrix:
    """The matrix of given rewards: one row a sample, or, with ``columns``, one row a question and a column a worker.

    Args:
        rows: (line, row) pairs. A row has a question (or prompt, or text), worker and reward; and family (or subject,
            or category), cost (US dollars), sample and answer where known. One sample given twice counts once.
        columns: names of the columns that hold each worker's reward.

    Raises:
        BadRecord: a row lacks one of these or has a reward that is no finite number. BadInput: see ``matrix``.
    """
    return matrix(_scored(rows, columns), columns)


def means_of(rows: Iterable[tuple[int, Mapping[str, object]]], worker: str) -> dict[str, float]:
    """Mean reward of one worker by question, of rows as ``from_rows`` takes them.

    Raises:
        BadRecord: see ``from_rows``.
    """
    found: dict[str, list[float]] = {}
    for one in _scored(rows):
        if one.worker == worker:
            found.setdefault(one.question, []).append(one.reward)
    return {name: sum(rewards) / len(rewards) for name, rewards in found.items()}


def _scored(rows: Iterable[tuple[int, Mapping[str, object]]], columns: Sequence[str] = ()) -> Iterable[Scored]:
    """The samples of given rows, one that is given twice once."""
    found: dict[tuple[str, str, str], Scored] = {}
    for line, row in rows:
        text = next((str(row[name]) for name in TEXT if row.get(name) not in (None, "")), "")
        if not text:
            raise BadRecord(f"line {line} has no question", remedy=f"Its columns are {COLUMNS}.")
        family = next((str(row[name]) for name in FAMILY if row.get(name) not in (None, "")), "")
        name = str(row.get("id") or f"{family}\n{text}")
        read = transcript([Message("user", text)])
        given = [(one, row.get(one), f"the column {one!r}") for one in columns] if columns else []
        if not columns:
            if row.get("worker") in (None, ""):
                remedy = f"Its columns are {COLUMNS}. Where columns hold the rewards, name them with --workers A,B."
                raise BadRecord(f"line {line} names no worker", remedy=remedy)
            given = [(str(row["worker"]), row.get("reward"), "the reward")]
        for worker, value, what in given:
            reward = _number(value, f"line {line}: {what}")
            cost = row.get("cost") if not columns else None
            price = math.nan if cost in (None, "") else _number(cost, f"line {line}: the cost")
            sample = str(row.get("sample") if row.get("sample") is not None else f"line {line}")
            one = Scored(name, read, worker, reward, family, price, str(row.get("answer") or "") if not columns else "")
            if found.setdefault((name, worker, sample), one).reward != reward:
                remedy = "Number the samples of a question and worker apart, or leave out the column `sample`."
                raise BadRecord(
                    f"line {line} gives sample {sample[:60]} of {worker[:60]} another reward", remedy=remedy
                )
    return found.values()


def _number(value: object, what: str) -> float:
    try:
        number = float(value) if isinstance(value, (bool, int, float, str)) else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadRecord(f"{what} is {str(value)[:60]!r}, no finite number", remedy=f"Columns are {COLUMNS}.")
    return number
