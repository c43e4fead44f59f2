"""A search over agents as the Red Queen engine sees it: agents perform runs in a store, judges look at what was done.

A genome of the role ``agent`` is a text: a system prompt, or lines of a policy. One of the role ``judge`` is a text as
well, for a model or for rules. Outside truth (the world's reward, the user's checker) reaches the search through labels
alone, but where there is no judge and the reward itself decides. This file must never show labelled work to a proposer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

import numpy as np

from clew.core.values import Task
from clew.methods.coevolve import Job, Made, Proposal, Proposer, Role, Said, View
from clew.methods.coevolve.agents.labelled_work import Labelled
from clew.methods.coevolve.agents.recorded_runs import Cost, Piece, RecordedRuns, shown_work, spent

AGENT, JUDGE, SLOT = "agent", "judge", "review"
SHOWN = 2  # training tasks that a proposer is shown
GOOD = 0.5  # a reward above it is a success
Judging = Callable[[object, list[dict[str, str]]], Awaitable[tuple[list[bool | None], Cost]]]


class AgentsWork:
    """As ``Work``.

    Args:
        runs: performs the agent.
        tasks: of validation.
        training: tasks of which a proposer is shown what became of them; may be empty.
        labelled: the anchor, and the open items that judges are validated on; None: the reward itself decides.
        judging: what a judge's genome says of artefacts; needed with ``labelled``.
        repeats: how often one agent performs a task.
    """

    def __init__(
        self,
        runs: RecordedRuns,
        tasks: Sequence[Task],
        training: Sequence[Task] = (),
        labelled: Labelled | None = None,
        judging: Judging | None = None,
        repeats: int = 1,
    ) -> None:
        self.runs, self.tasks, self.training = runs, tuple(tasks), tuple(training)
        self.labelled, self.judging = labelled, judging
        judged = labelled is not None
        judges = [] if labelled is None else [Role(JUDGE, len(labelled.open))]
        self.roles: Sequence[Role] = [Role(AGENT, len(self.tasks), SLOT if judged else "", repeats), *judges]
        self.slots: Mapping[str, str] = {SLOT: JUDGE} if judged else {}
        self.owed = Counter[str]()  # what showing tasks to a proposer cost, until it is told

    async def perform(self, jobs: Sequence[Job]) -> Sequence[Made]:
        """As ``Work.perform``."""
        made: list[Made] = [Made()] * len(jobs)
        pieces = {
            i: Piece(str(job.genome), self.tasks[job.task], job.repeat, job.luck)
            for i, job in enumerate(jobs)
            if job.role == AGENT
        }
        found = await self.runs.perform("agent", list(pieces.values()))
        for (i, piece), run in zip(pieces.items(), found, strict=True):
            cost = spent([run])
            if run is not None and self.labelled is not None:
                made[i] = Made(shown_work(run, piece.task), None, cost)
            elif run is not None and run.reward is not None:
                made[i] = Made(shown_work(run, piece.task), int(run.reward > GOOD), cost)
            else:
                made[i] = Made(None, None, {**cost, **({"unjudged": 1} if run is not None else {})})
        by_judge: dict[str, list[int]] = {}
        for i, job in enumerate(jobs):
            if job.role == JUDGE:
                by_judge.setdefault(str(job.genome), []).append(i)
        for genome, which in by_judge.items():
            assert self.labelled is not None
            items = [self.labelled.open[jobs[i].task] for i in which]
            said = await self.judge(SLOT, genome, [item.artefact for item in items])
            for i, item, accepts in zip(which, items, said.accepts, strict=True):
                made[i] = Made(None, None if accepts is None else int(accepts is item.accept))
            made[which[0]] = made[which[0]]._replace(cost=said.cost)
        return made

    async def judge(self, slot: str, genome: object, artefacts: Sequence[object]) -> Said:
        """As ``Work.judge``; verdicts that say neither are counted as ``neither``."""
        assert self.judging is not None
        accepts, cost = await self.judging(genome, [dict(one) for one in artefacts if isinstance(one, Mapping)])
        total = Counter(cost)
        if neither := sum(one is None for one in accepts):
            total["neither"] += neither
        return Said(accepts, dict(total))

    async def label(self, slot: str, artefacts: Sequence[object]) -> Said:
        """As ``Work.label``: nothing of the search itself is labelled."""
        return Said([None] * len(artefacts))

    async def feedback(self, workspace: Mapping[str, object], luck: int) -> Mapping[str, object]:
        """What became of a few training tasks, without rewards where a judge decides."""
        if not self.training:
            return {}
        rng = np.random.default_rng(luck)
        at = sorted(rng.choice(len(self.training), min(SHOWN, len(self.training)), replace=False).tolist())
        pieces = [Piece(str(workspace[AGENT]), self.training[i], 0, 0) for i in at]
        found = await self.runs.perform("shown", pieces)
        self.owed.update(spent(found))
        told = dict[str, object]()
        for i, piece, run in zip(at, pieces, found, strict=True):
            if run is not None:
                seen: dict[str, object] = dict(shown_work(run, piece.task))
                if self.labelled is None:
                    seen["reward"] = run.reward
                told[f"training task {i + 1}"] = seen
        if self.labelled is not None:
            self.labelled.refuse(told)
        return told


class Counted:
    """A proposer whose proposals also carry what showing it training tasks cost, so that a budget of tokens binds."""

    def __init__(self, proposer: Proposer, work: AgentsWork) -> None:
        self.proposer, self.work = proposer, work

    async def propose(self, view: View, luck: int) -> Proposal:
        """As ``Proposer``."""
        if self.work.labelled is not None:
            self.work.labelled.refuse([dict(view.workspace), dict(view.feedback)])
        made = await self.proposer.propose(view, luck)
        cost = Counter(made.cost)
        cost.update(self.work.owed)
        self.work.owed.clear()
        return made._replace(cost=dict(cost))


def by_lines(accepts: Callable[[str, str, str], bool | None]) -> Judging:
    """A judge without a model, from what its lines say of the texts of a task and of the work on it."""

    async def judging(genome: object, artefacts: list[dict[str, str]]) -> tuple[list[bool | None], Cost]:
        return [accepts(str(genome), one["task"], one["work"]) for one in artefacts], {}

    return judging
