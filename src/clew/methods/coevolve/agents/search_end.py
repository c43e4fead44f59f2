"""What a search over agents came to: held-out rewards of the first and the best agent, and what its judges are worth.

``clew evolve agents`` calls it when the search has ended. Held-out tasks are performed here alone, after the choice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from clew.core.comparisons import Comparisons
from clew.core.printable import short
from clew.core.values import Task
from clew.methods.coevolve.agents.agents_work import AGENT, GOOD, JUDGE, SLOT, AgentsWork
from clew.methods.coevolve.agents.recorded_runs import Piece, shown_work
from clew.methods.coevolve.anchor_coverage import Use, use_of
from clew.methods.coevolve.archive import Archive
from clew.store import Run

TO_JUDGES = re.compile(  # words by which a text speaks to whoever judges the work
    r"\b(judges?|jury|grad(?:e|er|ers|ing)|evaluat(?:e|or|ors|ion)|reviewers?|verdicts?|rubrics?|raters?|rating|"
    r"accept(?:s|ed|able|ance)?|approv(?:e|ed|al)|full (?:marks|score)|top score)\b",
    re.IGNORECASE,
)
ALIKE = 0.98  # share of the anchor that a judge accepts, or does not, from which it is said to tell nothing apart


class JudgeSeen(NamedTuple):
    """A judge on the anchor, shares of its items: on which it is right, and which it accepts."""

    right: float
    accepted: float


class JudgeHeldOut(NamedTuple):
    """The last judge on held-out work, which chose neither it nor the agents: what earned a reward above .5 is good.

    right: share of the work of the first and the best agent on which it is right. good, accepted, wrong: pieces of the
    best agent's work that are good, that it accepts, and that it accepts although they are not good; of ``pieces``.
    comparisons: verdicts against rewards; none could differ where all work is good, or none is.
    """

    right: float
    good: int
    accepted: int
    wrong: int
    pieces: int
    comparisons: Comparisons


class SearchEnd(NamedTuple):
    """texts: of each role, the first and the last. rewards: mean reward of the first and of the best agent at each
    held-out task, NaN where there is none. seen: successes and failures of the best agent in the search. judges: the
    first and the last on the anchor; empty where the reward decides. held_out: the last on held-out work. use: how
    often the anchor was asked, and how much that flatters the last judge at most. gain: the tasks at which the best
    agent could do other than the first. notes: what is to be known besides, a sentence each."""

    texts: Mapping[str, tuple[str, str]]
    rewards: tuple[list[float], list[float]]
    seen: tuple[int, int]
    judges: Sequence[JudgeSeen]
    facts: Mapping[str, int]
    notes: Sequence[str]
    held_out: JudgeHeldOut | None
    use: Use | None
    gain: Comparisons


async def search_end(
    archive: Archive, work: AgentsWork, start: Mapping[str, object], test: Sequence[Task], repeats: int, seed: int
) -> SearchEnd:
    """Perform the held-out tasks with both agents, let the last judge see that work, and both judges the anchor.

    Args:
        start: the first workspace. test: held-out tasks. repeats: runs of each.
    """
    assert archive.ended is not None
    node = archive.ended["specialists"][AGENT]
    texts = {AGENT: (str(start[AGENT]), str(archive.workspace(node)[AGENT]))}
    runs = [await _performed(work, text, test, repeats, seed) for text in texts[AGENT]]
    first, best = [_rewards(each, len(test), repeats) for each in runs]
    seen = archive.lineage.own(archive.lineage.genomes[node][archive.roles.index(AGENT)])
    facts = {"nodes": len(archive.lineage.parents), "checkpoints": archive.checkpoints}
    judges, held_out, use = list[JudgeSeen](), None, None
    if work.labelled is not None:
        texts[JUDGE] = (str(start[JUDGE]), str(archive.genomes[archive.judges[SLOT].incumbent][1]))
        facts |= {"replacements": archive.judges[SLOT].epoch, "erased": archive.evidence.erased}
        facts["anchor"] = len(work.labelled.anchor.items)
        judges = [await _judge(work, text) for text in texts[JUDGE]]
        fresh = runs[texts[AGENT][0] == texts[AGENT][1] :]  # one agent's work counts once
        held_out = await _held_out(work, texts[JUDGE][1], fresh, [task for task in test for _ in range(repeats)])
        use = use_of(len(work.labelled.anchor.items), archive.judges[SLOT].comparisons)
    notes = [*_notes(archive.budget.spent, judges, archive.ended), *_deceived(held_out), *_addressed(*texts[AGENT])]
    could = len(test) if texts[AGENT][0] != texts[AGENT][1] else 0
    gain = Comparisons("held-out tasks", len(test), could, why_not="the best text is the first one")
    return SearchEnd(texts, (first, best), seen, judges, facts, notes, held_out, use, gain)


async def _performed(work: AgentsWork, text: str, test: Sequence[Task], repeats: int, seed: int) -> list[Run | None]:
    pieces = [Piece(text, task, repeat, seed + repeat) for task in test for repeat in range(repeats)]
    return await work.runs.perform("test", pieces)


def _rewards(runs: Sequence[Run | None], tasks: int, repeats: int) -> list[float]:
    each = [math.nan if run is None or run.reward is None else run.reward for run in runs]
    rows = np.array(each).reshape(tasks, repeats)
    return [float(row[~np.isnan(row)].mean()) if (~np.isnan(row)).any() else math.nan for row in rows]


async def _held_out(
    work: AgentsWork, text: str, runs: Sequence[Sequence[Run | None]], tasks: Sequence[Task]
) -> JudgeHeldOut:
    """What a judge says of work at held-out tasks, the best agent's last. A verdict of neither is wrong."""
    rows = list[tuple[bool, dict[str, str], bool]]()
    for best, each in zip((len(runs) < 2, True), runs, strict=False):
        for run, task in zip(each, tasks, strict=True):
            if run is not None and run.reward is not None:
                rows.append((best, shown_work(run, task), run.reward > GOOD))
    said = (await work.judge(SLOT, text, [artefact for _, artefact, _ in rows])).accepts if rows else []
    return judged_held_out([(best, accepts, good) for (best, _, good), accepts in zip(rows, said, strict=True)])


def judged_held_out(rows: Sequence[tuple[bool, bool | None, bool]]) -> JudgeHeldOut:
    """Verdicts against rewards: whether the work is the best agent's, what the judge says, whether the work is good."""
    good = sum(row[2] for row in rows)
    mixed = 0 < good < len(rows)
    why = f"{good} of {len(rows)} pieces of held-out work are good: a judge that says the same of all could be right"
    what = "verdicts on held-out work, against its reward,"
    seen = Comparisons(what, len(rows), len(rows) if mixed else 0, why_not=why)
    own = [row for row in rows if row[0]]
    accepted = [row for row in own if row[1] is True]
    right = sum(row[1] is row[2] for row in rows) / len(rows) if rows else math.nan
    wrong = sum(not row[2] for row in accepted)
    return JudgeHeldOut(right, sum(row[2] for row in own), len(accepted), wrong, len(own), seen)


def _deceived(seen: JudgeHeldOut | None) -> list[str]:
    if seen is None or not seen.wrong:
        return []
    what = f"the last judge accepts {seen.accepted} of {seen.pieces} pieces of the best agent's held-out work"
    return [f"{what}, and {seen.wrong} of these earn no reward above {GOOD}: what it accepts does not measure the work"]


def _addressed(first: str, best: str) -> list[str]:
    """Lines of the best text, and not of the first, that may speak to the judge and not of the work."""
    had = {line.strip() for line in first.splitlines()}
    lines = [line.strip() for line in best.splitlines() if line.strip() not in had and TO_JUDGES.search(line)]
    said = f"the best text may address the judge: {short(lines[0], 120)!r}" if lines else ""
    more = f", and {len(lines) - 1} more of its lines" if len(lines) > 1 else ""
    return [f"{said}{more}. Read it before you use it"] if lines else []


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
