"""Choices between two options that are rated on several cues: a design, and what people chose.

The closed loop and ``choice_fits`` (as ``Choices``) read them; ``read_bank`` reads a file of the user's. Who a subject
is must never be in them: subjects are numbers.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput
from clew.core.keys import value_digest
from clew.methods.theories.choice_fits import Choices

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
LINE, LINES, CUES = 1 << 16, 5_000_000, 32  # bytes of a line, lines of a file, cues of an option
HIGHEST, LOWEST = 0.9, 0.6  # validities where a file names none: from the first cue to the last
SHAPE = 'Write lines as {"experiment": "e1", "subject": 0, "a": [1, 0], "b": [0, 1], "chose_b": 0}.'


class Trials(NamedTuple):
    """Choices of one experiment, in the order they were made.

    a, b: ratings of the options, [n, k]. validities: of the cues, [k], each in (0, 1]. subject: whose choice, [n].
    chose_b: 0 or 1, [n].
    """

    a: F64
    b: F64
    validities: F64
    subject: I64
    chose_b: I64

    @property
    def people(self) -> int:
        return len(np.unique(self.subject))


class Design(NamedTuple):
    """What is shown: pairs a, b [m, k], the cues' validities [k], and how often each person sees each pair."""

    a: F64
    b: F64
    validities: F64
    repeats: int = 1

    @property
    def key(self) -> str:
        """Names the design by what it holds."""
        rows = [np.asarray(x, float).tolist() for x in (self.a, self.b, self.validities)]
        return value_digest([*rows, self.repeats]).hex()[:16]


def together(some: Sequence[Choices]) -> Trials:
    """Experiments of one design as one, each with people of its own."""
    subjects, before = list[I64](), 0
    for one in some:
        people, who = np.unique(one.subject, return_inverse=True)
        subjects.append(who.ravel() + before)
        before += len(people)
    a, b = (np.concatenate([np.asarray(getattr(one, side), float) for one in some]) for side in ("a", "b"))
    chose = np.concatenate([one.chose_b for one in some])
    return Trials(a, b, some[0].validities, np.concatenate(subjects), chose)


def switches(trials: Trials) -> float:
    """The share of choices that differ from the same person's choice before; NaN where nobody chose twice."""
    same = trials.subject[1:] == trials.subject[:-1]
    if not same.any():
        return float("nan")
    return float((trials.chose_b[1:] != trials.chose_b[:-1])[same].mean())


def usual_validities(cues: int) -> F64:
    """Validities where none are told: evenly from .9 to .6."""
    return np.linspace(HIGHEST, LOWEST, cues)


def read_bank(path: Path, validities: Mapping[str, F64] | None = None) -> dict[str, Trials]:
    """Experiments by name, from a file of JSON lines (.jsonl or .jsonl.gz), in the order of their first lines.

    A line may hold ``validities``; else those given for its experiment are taken, else ``usual_validities``.

    Raises:
        BadInput: there is no such file, or a line is none; named with its number.
    """
    if not path.is_file():
        raise BadInput(f"there is no file {path}", remedy=SHAPE)
    rows: dict[str, list[tuple[list[float], list[float], str, int]]] = {}
    known: dict[str, F64] = dict(validities or {})
    try:
        with _opened(path) as file:
            for number, line in enumerate(iter(lambda: file.readline(LINE + 1), b""), 1):
                if number > LINES or len(line) > LINE:
                    raise BadInput(f"{path.name} is too large at line {number}", remedy="Give shorter lines, or fewer.")
                if line.strip():
                    _add(line, f"line {number} of {path.name}", rows, known)
    except (OSError, EOFError) as error:
        raise BadInput(f"{path.name} cannot be read: {error}", remedy="Give JSON lines, plain or gzipped.") from None
    if not rows:
        raise BadInput(f"{path.name} holds no choice", remedy=SHAPE)
    return {name: _trials(name, some, known) for name, some in rows.items()}


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _add(
    line: bytes,
    where: str,
    rows: dict[str, list[tuple[list[float], list[float], str, int]]],
    known: dict[str, F64],
) -> None:
    try:
        value = json.loads(line)
        name, a, b = str(value["experiment"]), [float(x) for x in value["a"]], [float(x) for x in value["b"]]
        who, chose = json.dumps(value["subject"]), value["chose_b"]
        told = [float(x) for x in value.get("validities", ())]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadInput(f"{where} is no choice", remedy=SHAPE) from None
    fits = len(a) == len(b) == (len(told) or len(a)) and 0 < len(a) <= CUES and np.isfinite([*a, *b]).all()
    if not fits or chose not in (0, 1) or not all(0 < v <= 1 for v in told):
        remedy = f"Give as many ratings for a as for b, and validities in (0, 1]. {SHAPE}"
        raise BadInput(f"{where} is no choice between two options", remedy=remedy)
    if rows.setdefault(name, []) and len(rows[name][0][0]) != len(a):
        raise BadInput(f"{where} has {len(a)} cues, the experiment's others have not", remedy="Name it otherwise.")
    if told and known.setdefault(name, np.array(told)).tolist() != told:
        remedy = "Name the experiment otherwise where people were told other validities."
        raise BadInput(f"{where} has other validities than the experiment's lines before", remedy=remedy)
    rows[name].append((a, b, who, int(chose)))


def _trials(name: str, rows: list[tuple[list[float], list[float], str, int]], known: Mapping[str, F64]) -> Trials:
    """Rows as arrays; each person's choices stand together, in their order."""
    a, b, who, chose = zip(*rows, strict=True)
    validities = known.get(name, usual_validities(len(a[0])))
    if len(validities) != len(a[0]):
        raise BadInput(f"{len(validities)} validities for {len(a[0])} cues of {name}", remedy="Give one for each cue.")
    people = {person: i for i, person in enumerate(dict.fromkeys(who))}
    subject = np.array([people[person] for person in who], np.int64)
    order = np.argsort(subject, kind="stable")
    return Trials(np.array(a)[order], np.array(b)[order], validities, subject[order], np.array(chose, np.int64)[order])
