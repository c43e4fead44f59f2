"""What a search over agents came to: held-out rewards of the first and the best agent, and what its judges are worth.

``clew evolve agents`` calls it when the search has ended. Held-out tasks are performed here alone, after the choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from clew.core.values import Task
from clew.evolve.agents.agents_work import AGENT, JUDGE, SLOT, AgentsWork
from clew.evolve.agents.recorded_runs import Piece
from clew.evolve.archive import Archive

ALIKE = 0.98  # share of the anchor that a judge accepts, or does not, from which it is said to tell nothing apart


class JudgeSeen(NamedTuple):
    """A judge on the anchor, shares of its items: on which it is right, and which it accepts."""

    right: float
    accepted: float


class SearchEnd(NamedTuple):
    """texts: of each role, the first and the last. rewards: mean reward of the first and of the best agent at each
    held-out task, NaN where there is none. seen: successes and failures of the best agent in the search. judges: the
    first and the last; empty where the reward decides. notes: what is to be known besides, a sentence each."""

    texts: Mapping[str, tuple[str, str]]
    rewards: tuple[list[float], list[float]]
    seen: tuple[int, int]
    judges: Sequence[JudgeSeen]
    facts: Mapping[str, int]
    notes: Sequence[str]


async def search_end(
    archive: Archive, work: AgentsWork, start: Mapping[str, object], test: Sequence[Task], repeats: int, seed: int
) -> SearchEnd:
    """Perform the held-out tasks with both agents, and let the first and the last judge see the anchor.

    Args:
        start: the first workspace. test: held-out tasks. repeats: runs of each.
    """
    assert archive.ended is not None
    node = archive.ended["specialists"][AGENT]
    texts = {AGENT: (str(start[AGENT]), str(archive.workspace(node)[AGENT]))}
    first, best = [await _rewards(work, text, test, repeats, seed) for text in texts[AGENT]]
    seen = archive.lineage.own(archive.lineage.genomes[node][archive.roles.index(AGENT)])
    facts = {"nodes": len(archive.lineage.parents), "checkpoints": archive.checkpoints}
    judges = list[JudgeSeen]()
    if work.labelled is not None:
        texts[JUDGE] = (str(start[JUDGE]), str(archive.genomes[archive.judges[SLOT].incumbent][1]))
        facts |= {"replacements": archive.judges[SLOT].epoch, "erased": archive.evidence.erased}
        facts["anchor"] = len(work.labelled.anchor.items)
        judges = [await _judge(work, text) for text in texts[JUDGE]]
    return SearchEnd(texts, (first, best), seen, judges, facts, _notes(archive.budget.spent, judges, archive.ended))


async def _rewards(work: AgentsWork, text: str, test: Sequence[Task], repeats: int, seed: int) -> list[float]:
    pieces = [Piece(text, task, repeat, seed + repeat) for task in test for repeat in range(repeats)]
    found = await work.runs.perform("test", pieces)
    each = [math.nan if run is None or run.reward is None else run.reward for run in found]
    rows = np.array(each).reshape(len(test), repeats)
    return [float(row[~np.isnan(row)].mean()) if (~np.isnan(row)).any() else math.nan for row in rows]


async def _judge(work: AgentsWork, text: str) -> JudgeSeen:
    assert work.labelled is not None
    items = work.labelled.anchor.items
    said = (await work.judge(SLOT, text, [item.artefact for item in items])).accepts
    right = sum(one is item.accept for one, item in zip(said, items, strict=True))
    return JudgeSeen(right / len(items), sum(one is True for one in said) / len(items))


def _notes(spent: Mapping[str, float], judges: Sequence[JudgeSeen], end: Mapping[str, Any]) -> list[str]:
    told = {
        "neither": "verdicts said neither accept nor reject, and count as none",
        "failed": "runs failed, and count as no outcome",
        "unjudged": "runs had no reward, and count as no outcome",
    }
    out = [f"{spent[name]:.0f} {what}" for name, what in told.items() if spent.get(name)]
    for name, judge in zip(("first", "last"), judges, strict=False):
        if not 1 - ALIKE < judge.accepted < ALIKE:
            share = f"accepts {judge.accepted:.0%} of the anchor"
            out.append(f"the {name} judge {share}: it says the same of nearly everything")
    return out + ([str(end["said"])] if end["said"] else [])
