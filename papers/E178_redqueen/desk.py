"""A search on the bundled desk: agents are runs of a world in a store, judges are lines, the world's reward is outside.

The first judge goes by style alone (it accepts thanks). What a search ends with is measured by the world at held-out
tasks, and its judge on work that neither the anchor nor the search holds.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from clew.core.registry import build
from clew.core.values import Task
from clew.harness import Runner
from clew.methods.coevolve import Rules, SymbolicChanges, evolve, lines_from
from clew.methods.coevolve.agents import AgentsWork, RecordedRuns
from clew.methods.coevolve.agents.agents_work import AGENT, JUDGE, SLOT, by_lines
from clew.methods.coevolve.agents.labelled_work import dealt
from clew.methods.coevolve.agents.line_judge import FIRST as FIRST_JUDGE
from clew.methods.coevolve.agents.line_judge import accepts_by, judge_lines
from clew.methods.coevolve.agents.made_labels import Labels, made_labels
from clew.methods.coevolve.agents.policy_clerk import FIRST, policy_lines
from clew.methods.coevolve.agents.recorded_runs import Piece
from clew.methods.coevolve.archive import Archive
from papers.experiment import Line

RULES, TASKS, LABELLED, TEST, BATCH = ("domain", "spend"), 64, 300, 200, 8
CLERK = "clew.evolve.agents.policy_clerk:policy_clerk"
GATES = {"fixed": "never", "ungated": "none", "confirm": "confirm", "rqgm": "bb"}


def _right(judge: str, work: Labels) -> float:
    said = [accepts_by(judge, one["task"], one["work"]) is accept for one, accept in work]
    return float(np.mean(said))


def search(setting: Line, seed: int) -> Line:
    """A search by a mode; what the report needs of it."""
    return asyncio.run(_search(setting, seed))


async def _search(setting: Line, seed: int) -> Line:
    world: Any = build("tasksets", f"desk(rules={RULES!r},tickets=0)")
    runs = RecordedRuns(Runner(CLERK, world, None, ":memory:"), "policy", f"desk-{seed}")
    bank = policy_lines(RULES)
    train, labelled, test = (
        world.sample(n, seed=seed, split=split) for n, split in ((TASKS, "train"), (LABELLED, "eval"), (TEST, "test"))
    )
    work = dealt(await made_labels(runs, labelled, FIRST, bank, seed), "made work")
    fresh = await made_labels(runs, test, FIRST, bank, seed + 1)
    changes = SymbolicChanges({AGENT: [lines_from(bank)], JUDGE: [lines_from(judge_lines(RULES))]})
    archive = Archive()
    end = await evolve(
        archive, AgentsWork(runs, train, (), work, by_lines(accepts_by)), {AGENT: FIRST, JUDGE: FIRST_JUDGE}, changes,
        {SLOT: work.anchor}, Rules(gate=GATES[setting["mode"]], batch=BATCH, seed=seed),  # type: ignore[arg-type]
        {"outcomes": setting["budget"]},
    )  # fmt: skip
    best = end["specialists"][AGENT]
    good, bad = archive.lineage.own(archive.lineage.genomes[best][archive.roles.index(AGENT)])
    last = str(archive.genomes[archive.judges[SLOT].incumbent][1])
    policy = str(archive.workspace(best)[AGENT])
    return {
        "before": await _reward(runs, FIRST, test), "after": await _reward(runs, policy, test),
        "accepted": good / max(good + bad, 1), "judge_before": _right(FIRST_JUDGE, fresh), "judge": _right(last, fresh),
        "on_anchor": _right(last, [(dict(i.artefact), i.accept) for i in work.anchor.items]),  # type: ignore[call-overload]
        "replaced": archive.judges[SLOT].epoch, "nodes": len(archive.lineage.parents),
        "erased": archive.evidence.erased,
    }  # fmt: skip


async def _reward(runs: RecordedRuns, policy: str, tasks: list[Task]) -> float:
    found = await runs.perform("test", [Piece(policy, task, 0, 0) for task in tasks])
    return float(np.mean([run.reward for run in found if run is not None and run.reward is not None]))
