"""One search in the studio and what is measured of it. The tiers call it."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from clew.core.keys import derive
from clew.methods.coevolve import Rules, evolve
from clew.methods.coevolve.archive import Archive
from papers.E178_redqueen.studio import JUDGE, JUDGES, SKILL, SLOT, WRITER, Drift, Studio, Twins, accepts, ratio
from papers.experiment import Line

POOL = 20
MODES: dict[str, dict[str, Any]] = {
    "fixed": {"gate": "never"},
    "ungated": {"gate": "none"},
    "no erasure": {"erase": False, "rescore": False},
    "rqgm": {},
    "adversarial": {"pool": POOL},
    "twins": {},
    "strict": {},
    "strict, fixed": {"gate": "never"},
}


def ranks(x: np.ndarray) -> np.ndarray:
    """Mid-ranks, float64 [n]."""
    _, tie, n = np.unique(x, return_inverse=True, return_counts=True)
    ends = np.cumsum(n)
    found: np.ndarray = (ends - (n - 1) / 2)[tie]
    return found


def spearman(x: np.ndarray, y: np.ndarray) -> float | None:
    """Rank correlation; None where either does not vary."""
    a, b = ranks(x), ranks(y)
    return None if a.std() == 0 or b.std() == 0 else float(np.corrcoef(a, b)[0, 1])


class Follower:
    """Watches a search: the rank of writers before and after a replacement, and skill over the budget."""

    def __init__(self, reach: float | None = None) -> None:
        self.rho, self.before = list[float](), dict[int, tuple[int, int]]()
        self.epoch, self.waits, self.worst = 0, False, 0
        self.reach, self.reached = reach, list[int]()

    def __call__(self, archive: Archive, event: str) -> None:
        judges = archive.judges[SLOT]
        if event == "checkpoint":
            self.worst += len(archive.evidence.dependents(SLOT)) + len(judges.stale)
        if event == "checkpoint" and judges.epoch > self.epoch:
            self.epoch, self.waits = judges.epoch, True
        if self.waits and not judges.stale:
            self.waits = False
            both = [(g, c, n) for g, c in self.before.items() if sum(c) >= 3 and sum(n := archive.lineage.own(g)) >= 3]
            x, y = (np.array([c[0] / sum(c) for c in side]) for side in ([b[1] for b in both], [b[2] for b in both]))
            if len(both) >= 5 and (rho := spearman(x, y)) is not None:
                self.rho.append(rho)
        if event == "measure" and archive.outcomes + 1 >= 8 and not self.waits:
            due = archive.outcomes & (archive.outcomes - 1) == 0  # checkpoints fall on powers of two
            if due:
                self.before = self._writers(archive)
        looks = self.reach is not None and not self.reached and event in ("measure", "rescore")
        if looks and archive.outcomes % 16 == 0 and skill_of(archive) >= (self.reach or 0):
            self.reached = [archive.outcomes, archive.rescored]

    @staticmethod
    def _writers(archive: Archive) -> dict[int, tuple[int, int]]:
        return {g: archive.lineage.own(g) for g, (role, _) in enumerate(archive.genomes) if role == 0}


def skill_of(archive: Archive) -> float:
    """True skill of the writer that would be chosen now: the best belief among those measured enough."""
    from clew.methods.coevolve.beliefs import best_belief

    own = {g: archive.lineage.own(g) for g, (role, _) in enumerate(archive.genomes) if role == 0}
    known = [g for g, counts in own.items() if sum(counts) >= 5]
    if not known:
        return SKILL
    worth = best_belief([own[g][0] for g in known], [own[g][1] for g in known])
    writer: Any = archive.genomes[known[int(worth.argmax())]][1]
    return float(writer[0])


def search(setting: Line, seed: int, reach: float | None = None, **more: Any) -> Line:
    """A search by a mode, a gate, an anchor; what the report needs of it."""
    first = "strict" if setting["mode"].startswith("strict") else "style"
    driven = float(setting.get("labels", 0.0))
    studio = Studio(seed, setting.get("anchor", 100), driven)
    gate = setting.get("gate", "bb")
    how = {"gate": gate.removeprefix("half "), "halve": gate.startswith("half "), **MODES[setting["mode"]], **more}
    archive, follower = Archive(), Follower(reach)
    proposer = Twins() if setting["mode"] == "twins" else Drift()
    start = {WRITER: [SKILL, 0.0], JUDGE: JUDGES[first]}
    budget = {"outcomes": setting["budget"]}
    end = asyncio.run(
        evolve(archive, studio, start, proposer, studio.anchors(), Rules(**how, seed=seed), budget, watch=follower)
    )
    judges = archive.judges[SLOT]
    judge: Any = archive.genomes[judges.incumbent][1]
    best = end["specialists"][WRITER]
    genome = archive.lineage.genomes[best][0]
    skill, gloss = archive.genomes[genome][1]  # type: ignore[misc]
    s, f = archive.lineage.own(genome)
    people = studio.people
    on_anchor = float((accepts(judge, people.cues) == people.labels).mean())
    return {
        "skill": float(skill), "gloss": float(gloss), "validation": s / max(s + f, 1),
        "judge": studio.test.right(judge),
        "judge_before": studio.test.right(JUDGES[first]), "on_anchor": on_anchor,
        "accepts": float(accepts(judge, studio.test.cues).mean()),
        "accepts_before": float(accepts(JUDGES[first], studio.test.cues).mean()),
        "ratio": ratio(judge, skill, gloss, derive(seed, "ratio")), "replaced": judges.epoch, "rho": follower.rho,
        "nodes": len(archive.lineage.parents), "erased": archive.evidence.erased, "rescored": archive.rescored,
        "checkpoints": archive.checkpoints, "comparisons": judges.comparisons,
        "reached": follower.reached or None, "worst": follower.worst,
        "labels_bought": int(archive.budget.spent["labels"]),
    }  # fmt: skip
