"""A small problem for tests of the engine: writers of numbers, judges with a threshold. All outcomes are arithmetic."""

from __future__ import annotations

import numpy as np

from clew.methods.coevolve import Made, Proposal, Role, Rules, Said, evolve
from clew.methods.coevolve.archive import Anchor, Archive, Item

SEED = {"writer": 0.0, "judge": 1.5}  # the judge should be 0: it rejects half of what is right


class Numbers:
    """A writer at x makes x and noise; the judge accepts above its threshold; right is to accept above 0."""

    def __init__(self, repeats=1000):
        self.slots = {"review": "judge"}
        self.roles = (Role("writer", 8, "review", repeats), Role("judge", 40))

    async def perform(self, jobs):
        made = []
        for job in jobs:
            if job.role == "judge":
                item = (job.task - 20) / 7
                made.append(Made(outcome=int((item > job.genome) == (item > 0)), cost={"tokens": 1}))
            else:
                x = job.genome + np.random.default_rng(job.luck).normal()
                made.append(Made(round(x, 6), cost={"tokens": 2}))
        return made

    async def judge(self, slot, genome, artefacts):
        return Said([x > genome for x in artefacts])

    async def label(self, slot, artefacts):
        return Said([x > 0 for x in artefacts])

    async def feedback(self, workspace, luck):
        return {"note": "nothing to tell"}


class Steps:
    """Moves one role by lot; keeps what it was told."""

    def __init__(self):
        self.told = []

    async def propose(self, view, luck):
        self.told.append(view)
        rng = np.random.default_rng(luck)
        role = ("writer", "judge")[int(rng.integers(2))]
        return Proposal({**view.workspace, role: round(view.workspace[role] + rng.normal(), 6)}, {"tokens": 3})


def anchor(n=40):
    return Anchor([Item(f"private-item-{i:04d}", (i + 0.5) / 5 - n / 10, i >= n / 2) for i in range(n)])


async def searched(archive=None, budget=None, work=None, proposer=None, watch=lambda a, e: None, **rules):
    """A search, its archive left open."""
    archive = archive or Archive()
    end = await evolve(
        archive, work or Numbers(), SEED, proposer or Steps(), {"review": anchor()}, Rules(**{"gate": "bb", **rules}),
        budget or {"outcomes": 64}, watch=watch,
    )  # fmt: skip
    return archive, end
