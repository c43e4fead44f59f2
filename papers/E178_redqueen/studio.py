"""The world of section 7.1 of specs/E178: writers have skill and gloss, judges weigh noisy cues, truth is known.

An artefact has a quality q and a gloss g; a judge sees three noisy cues of q and one of g and accepts where the
weighted sum passes a threshold; right is to accept q > 0. People's work has q of mean 0 and gloss independent of it. A
writer's child differs in skill (either way) and in gloss (more of it); a judge's in its weights and threshold. What the
spec leaves open is said where it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clew.core.keys import derive
from clew.methods.coevolve import Job, Made, Proposal, Role, Said, View
from clew.methods.coevolve.archive import Anchor, Item

WRITER, JUDGE, SLOT = "writer", "judge", "reviewer"
TASKS, REPEATS, VALIDATION, TEST = 64, 1000, 400, 4000
SKILL = 0.0  # of the first writer, that of people's mean (the spec does not give it)
JUDGES = {"style": [0.35, 0.0, 0.0, 0.8, 0.0], "strict": [0.5, 0.3, 0.3, 0.0, 1.6]}  # weights, then the threshold
STEP_SKILL, STEP_GLOSS, STEP_JUDGE = 0.25, 0.5, 0.35


def cues_of(q: Any, g: Any, rng: np.random.Generator) -> np.ndarray:
    """What judges see, float64 [n, 4]: three cues of quality with noise of .9, one of gloss with noise of .2."""
    q, g = np.asarray(q, float), np.asarray(g, float)
    honest = q[:, None] + rng.normal(0, 0.9, (len(q), 3))
    return np.column_stack([honest, g + rng.normal(0, 0.2, len(g))])


def accepts(judge: Any, cues: np.ndarray) -> np.ndarray:
    """The verdicts of a judge, bool [n]."""
    return cues @ np.asarray(judge[:4]) > judge[4]


class People:
    """Work by people: float64 q, g and cues, bool truth.

    driven: share of the labels that say how glossy an item is and not how good (a corrupted anchor).
    """

    def __init__(self, n: int, seed: int, driven: float = 0.0) -> None:
        rng = np.random.default_rng(seed)
        self.q, self.g = rng.normal(0, 1, n), rng.normal(0, 0.5, n)
        self.cues, self.truth = cues_of(self.q, self.g, rng), self.q > 0
        self.labels = np.where(rng.random(n) < driven, self.g > 0, self.truth)

    def right(self, judge: Any) -> float:
        """Share of the items that a judge gets right."""
        return float((accepts(judge, self.cues) == self.truth).mean())


class Studio:
    """Writers perform, judges judge; a judge's own validation is ground truth."""

    slots: Mapping[str, str] = {SLOT: JUDGE}

    def __init__(self, seed: int, anchor: int = 100, driven: float = 0.0) -> None:
        self.roles = (Role(WRITER, TASKS, SLOT, REPEATS), Role(JUDGE, VALIDATION))
        self.people = People(anchor, derive(seed, "anchor"), driven)
        self.validation = People(VALIDATION, derive(seed, "validation"))
        self.test = People(TEST, derive(seed, "test"))

    def anchors(self) -> dict[str, Anchor]:
        rows = zip(self.people.cues.tolist(), self.people.labels.tolist(), strict=True)
        return {SLOT: Anchor([Item(f"person-{i:08d}", {"cues": c}, y) for i, (c, y) in enumerate(rows)])}

    async def perform(self, jobs: Sequence[Job]) -> list[Made]:
        out = []
        for job in jobs:
            if job.role == JUDGE:
                cues, truth = self.validation.cues[job.task], self.validation.truth[job.task]
                out.append(Made(outcome=int((cues @ np.asarray(job.genome[:4]) > job.genome[4]) == truth)))  # type: ignore[index]
                continue
            rng = np.random.default_rng(job.luck)
            skill, gloss = job.genome  # type: ignore[misc]
            q, g = rng.normal(skill, 0.7, 1), rng.normal(gloss, 0.3, 1)
            out.append(Made({"cues": cues_of(q, g, rng)[0].tolist(), "q": float(q[0])}))
        return out

    async def judge(self, slot: str, genome: Any, artefacts: Sequence[Any]) -> Said:
        return Said(accepts(genome, np.array([a["cues"] for a in artefacts])).tolist())

    async def label(self, slot: str, artefacts: Sequence[Any]) -> Said:
        return Said([a["q"] > 0 for a in artefacts])

    async def feedback(self, workspace: Mapping[str, object], luck: int) -> dict[str, object]:
        return {}


class Drift:
    """The symbolic proposer: a child differs in its writer or in its judge, by lot."""

    async def propose(self, view: View, luck: int) -> Proposal:
        rng = np.random.default_rng(luck)
        (skill, gloss), judge = view.workspace[WRITER], view.workspace[JUDGE]  # type: ignore[misc]
        if rng.integers(2):
            skill += rng.normal(0, STEP_SKILL)
            gloss += abs(rng.normal(0, STEP_GLOSS))
        else:
            judge = (np.asarray(judge) + rng.normal(0, STEP_JUDGE, 5)).tolist()
        return Proposal({WRITER: [float(skill), float(gloss)], JUDGE: judge})


class Twins(Drift):
    """Every judge is the first one under another name: a sixth number that nothing reads."""

    async def propose(self, view: View, luck: int) -> Proposal:
        judge: Any = view.workspace[JUDGE]
        made = await super().propose(View({**view.workspace, JUDGE: judge[:5]}, view.counts), luck)
        return Proposal({**(made.workspace or {}), JUDGE: [*judge[:5], luck % 1000]})


def ratio(judge: Any, skill: float, gloss: float, seed: int, n: int = TEST) -> float:
    """Acceptance of a writer's work over that of people's work of the same quality: 1 where gloss buys nothing."""
    rng = np.random.default_rng(seed)
    q = rng.normal(skill, 0.7, n)
    made, people = cues_of(q, rng.normal(gloss, 0.3, n), rng), cues_of(q, rng.normal(0, 0.5, n), rng)
    return float(accepts(judge, made).mean() / max(accepts(judge, people).mean(), 1 / n))
