"""Table, pass marks and figure of tier real, from its lines of results alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from papers.drawing import canvas, finish, whiskers
from papers.E168_metis.paired import Paired, paired
from papers.E168_metis.tier_real import CONDITIONS, WORLDS
from papers.stats import Lines, Mark, Report, by_seed, document, markdown, minutes, select

NONE, MEMORY, LOT = CONDITIONS


def _success(lines: Lines, world: str, a: str, b: str) -> Paired:
    found = select(lines, place=world)
    return paired([line[a] for line in found], [line[b] for line in found])


def _turns(lines: Lines, world: str, a: str, b: str) -> Report:
    gaps: list[Any] = [np.mean(line[a]["turns"]) - np.mean(line[b]["turns"]) for line in select(lines, place=world)]
    return by_seed(gaps)


def _worlds(lines: Lines) -> list[str]:
    return [world for world in WORLDS if select(lines, place=world)]


def pass_marks(lines: Lines) -> list[Mark]:
    """Figures without a mark: the bar asks for whatever comes out."""
    out = []
    for world in _worlds(lines):
        found = {
            "success with the memory less that without": _success(lines, world, MEMORY, NONE),
            "turns with the memory less those without": _turns(lines, world, MEMORY, NONE),
            "words by lot less none (control)": _success(lines, world, LOT, NONE),
        }
        out += [Mark(f"{world}: {name}", "whatever comes out", str(one), None) for name, one in found.items()]
    return out


def report(lines: Lines) -> str:
    """Markdown of the tier."""
    rows = []
    for world in _worlds(lines):
        own = select(lines, place=world)
        items = by_seed([line["items"] for line in own])
        for condition in CONDITIONS:
            success = by_seed([np.mean([int(digit) for digit in line[condition]["success"]]) for line in own])
            turns, given = (by_seed([np.mean(line[condition][field]) for line in own]) for field in ("turns", "given"))
            rows.append([world, condition, success, turns, given, items])
    n = len(lines[0][NONE]["success"])
    return document(
        "## Tier real: learnt on one half of clerk and desk, used on the other",
        f"{len(select(lines, place=_worlds(lines)[0]))} seeds, {n} tasks in each half, paired by task and seed. "
        f"{minutes(lines):.1f} CPU-minutes.",
        pass_marks(lines),
        markdown("world | condition | success | turns | items given | items in use", rows),
    )


def figure(lines: Lines) -> object:
    """Success by world and condition."""
    fig, axis = canvas((5, 2.4))
    names = [(world, condition) for world in _worlds(lines) for condition in CONDITIONS]
    found = [
        by_seed([np.mean([int(digit) for digit in line[condition]["success"]]) for line in select(lines, place=world)])
        for world, condition in names
    ]
    whiskers(axis, range(len(names)), found, fmt="o", along="x")
    axis.set(xlabel="success", yticks=range(len(names)), yticklabels=[f"{a}, {b}" for a, b in names])
    axis.invert_yaxis()
    finish(axis, font=None)
    return fig
