"""Choices of real people by experiment, with the validities they were shown (AutoCog's release, arXiv 2606.26448).

The data folder holds eight experiments of binary ratings and eight of cardinal ones; it does not hold validities. Those
below are facts of the released designs, read there. In the cardinal rounds 1 to 3 the released rows of one experiment
hold pairs of both experiments of the round, so each choice is put with the design that its pair belongs to.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "human_choice"
VALIDITIES = {
    "binary-r0-o0": (0.95, 0.8, 0.7, 0.65),
    "binary-r0-o1": (0.9, 0.8, 0.7, 0.6, 0.5),
    "binary-r1-o0": (0.95, 0.94, 0.93, 0.92, 0.52, 0.51, 0.5),
    "binary-r1-o1": (0.99, 0.98, 0.97, 0.96, 0.55, 0.54, 0.53, 0.52),
    "binary-r2-o0": (0.95, 0.85, 0.75, 0.65, 0.55),
    "binary-r2-o1": (0.95, 0.9, 0.85, 0.8, 0.75, 0.6, 0.6, 0.6),
    "binary-r3-o0": (0.95, 0.6, 0.58, 0.55, 0.5),
    "binary-r3-o1": (0.98, 0.96, 0.94, 0.6, 0.55),
    "cardinal-r0-o0": (0.95, 0.85, 0.75, 0.65),
    "cardinal-r0-o1": (0.95, 0.85, 0.75, 0.65, 0.55),
    "cardinal-r1-o0": (0.9, 0.8, 0.6, 0.5),
    "cardinal-r1-o1": (0.9, 0.8, 0.7, 0.6, 0.5),
    "cardinal-r2-o0": (1.0, 0.9, 0.6, 0.5, 0.5),
    "cardinal-r2-o1": (1.0, 0.9, 0.6, 0.5, 0.5),
    "cardinal-r3-o0": (0.9, 0.8, 0.6, 0.5),
    "cardinal-r3-o1": (0.9, 0.8, 0.7, 0.6),
}
RATINGS = ("binary", "cardinal")


class Choices(NamedTuple):
    """As ``clew.methods.theories.choice_fits.Choices``; ``name``: of the experiment."""

    name: str
    a: npt.NDArray[np.float64]
    b: npt.NDArray[np.float64]
    validities: npt.NDArray[np.float64]
    subject: npt.NDArray[np.int64]
    chose_b: npt.NDArray[np.int64]


def design_of(experiment: str, a: list[int], b: list[int]) -> str:
    """The experiment whose design holds this pair."""
    match experiment.split("-")[:2]:
        case ["cardinal", "r1"]:
            second = len(a) == 5
        case ["cardinal", "r2"]:  # the second design's options add up to the same on every cue
            second = len({x + y for x, y in zip(a, b, strict=True)}) == 1
        case ["cardinal", "r3"]:  # in the first both options are high on the first cue
            second = b[0] == 0
        case _:
            return experiment
    return f"{experiment[:-1]}{int(second)}"


@cache
def bank(ratings: str, folder: Path = FOLDER) -> tuple[Choices, ...]:
    """The experiments of a kind of rating, in the order they were run; none where the data are absent."""
    path = folder / f"{ratings}.jsonl.gz"
    if not path.is_file():
        return ()
    rows: dict[str, list[tuple[list[int], list[int], int, int]]] = {}
    people: dict[tuple[str, int], int] = {}
    with gzip.open(path, "rt") as lines:
        for row in map(json.loads, lines):
            who = people.setdefault((row["experiment"], row["subject"]), len(people))
            name = design_of(row["experiment"], row["a"], row["b"])
            rows.setdefault(name, []).append((row["a"], row["b"], who, row["chose_b"]))
    out = []
    for name in sorted(rows):
        a, b, who, chose = zip(*rows[name], strict=True)
        arrays = np.array(a, float), np.array(b, float), np.array(VALIDITIES[name]), np.array(who), np.array(chose)
        out.append(Choices(name, *arrays))
    return tuple(out)
