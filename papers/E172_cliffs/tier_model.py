"""The claims in a real model: which cliffs replicate, what a faulty grader does, and Cliff-DPO at equal cost."""

import time
from collections.abc import Iterator

import numpy as np

from clew.harness.fork.continuations import Continuations
from clew.methods.cliffs import statistics
from clew.methods.cliffs.detect import Found, Search, around, counted, detect, survey
from clew.methods.cliffs.effect import ARMS, effect
from papers.E172_cliffs import learners
from papers.E172_cliffs.learners import injected
from papers.experiment import Line, apart, by_kind

N, STEMS, AUDITED, BURSTS = 64, 320, 64, 0.01
EACH = 16  # continuations of an arm of a cliff, delete or keep
LEARNERS = (
    ("cliff-dpo", "own"), ("cliff-dpo, eos", "own"), ("sequence dpo", "cpu"), ("reinforce", "cpu"),
    ("sequence dpo", "rollouts"), ("reinforce", "rollouts"),
)  # fmt: skip
portions = apart


def cells(quick: bool) -> Iterator[Line]:
    """Seeds outermost: a seed is a model with its tasks and sampling, made once for all of its cells."""
    for seed in range(1 if quick else 5):
        stems = 64 if quick else STEMS
        yield {"kind": "detect", "stems": 8 if quick else AUDITED, "seed": seed}
        yield {"kind": "effect", "stems": stems, "seed": seed}
        yield {"kind": "base", "stems": stems, "seed": seed}
        for arm, budget in LEARNERS:
            yield {"kind": "learn", "arm": arm, "budget": budget, "stems": stems, "seed": seed}


def cost(cell: Line) -> float:
    """CPU-seconds of one cell, as measured; what a seed's cells share falls on those that come first."""
    if cell["kind"] == "detect":
        return 12.0 + 2.0 * cell["stems"]
    slow = {"effect": 25.0, "base": 2.0, "own": 3.0, "cpu": 21.0, "rollouts": 45.0}
    return 2.0 + slow[cell.get("budget", cell["kind"])] * cell["stems"] / STEMS


def _learn(setting: Line, seed: int) -> Line:
    learnt = learners.learn(setting["arm"], setting["budget"], seed, setting["stems"])
    numbers = {k: getattr(learnt, k) for k in ("loss_tokens", "seconds", "rollouts", "steps")}
    return learners.accuracy(learnt.model) | numbers | learnt.extra


def _effect(setting: Line, seed: int) -> Line:
    """What the search found, and delete against keep with both controls."""
    found = learners.searched(seed, setting["stems"])
    kinds = {}
    for kind in ("deterministic", "uncertain", "sampled-off", "other"):
        some = [c for c in found.found.cliffs if c.kind == kind]
        kinds[kind] = [len(some), sum(c.confirmed for c in some)]
    out: Line = {"tested": len(found.found.survey.tested), "positions": len(found.found.survey.positions)}
    out |= {"kinds": kinds, "pairs": len(found.pairs), "seconds": found.seconds, "rollouts": found.rollouts}
    out["failed"] = sum((r.reward or 0.0) <= statistics.RIGHT for r in found.runs)
    measured = effect(found.found, EACH)
    assert measured is not None, "no failed solution with a cliff"
    out["right"] = {arm: measured.right[i].round(4).tolist() for i, arm in enumerate(ARMS)}
    out["tokens"] = {arm: measured.tokens[i].round(2).tolist() for i, arm in enumerate(ARMS)}
    return out


def _detect(setting: Line, seed: int) -> Line:
    """E1 and E4: both detectors on the same solutions; fresh replication of what the published one flags; bursts."""
    runs = learners.collected(learners.base(seed), "train", setting["stems"], 1, "audited", seed).runs
    hands = Continuations(learners.runner_of(runs, learners.base(seed)), seed=seed)
    began = time.process_time()
    paper = detect(survey(runs, lambda run: hands, Search(detector="published")))
    middle = time.process_time()
    mended = detect(survey(runs, lambda run: Continuations(hands.runner, seed=seed + 1000), Search()))
    out: Line = {"positions": len(paper.survey.tested), "tested": len(mended.survey.tested)}
    out |= {"cpu": [round(middle - began, 2), round(time.process_time() - middle, 2)]}
    out["rollouts"] = [paper.continuations, mended.continuations]
    places = list(dict.fromkeys(s for c in paper.cliffs for s in (c.position.before, c.position.after)))
    fresh = counted(paper.survey.of, "again", places, N)
    again = statistics.fires(*around([c.position for c in paper.cliffs], fresh))
    by_kind: dict[str, list[list[float]]] = {}
    for cliff, holds in zip(paper.cliffs, again.tolist(), strict=True):
        by_kind.setdefault(str(cliff.kind), []).append([round(cliff.first[0] - cliff.first[1], 4), int(holds)])
    out["flags"] = by_kind
    out["mended"] = [len(mended.cliffs), len(mended.confirmed)]
    return out | {"bursts": _bursts(paper, hands, seed)}


def _bursts(paper: Found, hands: Continuations, seed: int) -> Line:
    """All gradings of 1 % of the places are marked wrong; which cliffs come of it, and which survive a fresh batch.

    The fresh batch has bursts of its own. ``undecided``: the same bursts with gradings that say so.
    """
    rng, tested = np.random.default_rng([seed, 4]), paper.survey.tested
    before, after = around(tested, paper.potentials)
    clean = statistics.fires(before, after)
    places = list(paper.potentials)
    hit = {places[i] for i in rng.choice(len(places), max(1, round(BURSTS * len(places))), replace=False)}
    where = [np.array([getattr(p, side) in hit for p in tested]) for side in ("before", "after")]
    wrong = statistics.fires(*(injected(c, w, True) for c, w in zip((before, after), where, strict=True)))
    told = statistics.fires(*(injected(c, w, False) for c, w in zip((before, after), where, strict=True)))
    false = wrong & ~clean
    able = statistics.can_fall([p.chance for p in tested])
    again = [p for p, f in zip(tested, wrong & able, strict=True) if f]
    fresh = counted(paper.survey.of, "bursts", list(dict.fromkeys(s for p in again for s in (p.before, p.after))), N)
    pair = around(again, fresh)
    struck = [rng.random(len(again)) < BURSTS for _ in pair]
    kept = statistics.confirmed(*(injected(c, s, True) for c, s in zip(pair, struck, strict=True)))
    new = np.array([false[tested.index(p)] for p in again], bool)
    return {
        "places": len(hit), "clean": int(clean.sum()), "hallucinated": int(false.sum()),
        "undecided": int((told & ~clean).sum()), "tested": int(new.sum()), "kept": int((kept & new).sum()),
        "kept true": int((kept & ~new).sum()),
    }  # fmt: skip


KINDS = {"detect": _detect, "effect": _effect, "learn": _learn}
run = by_kind({**KINDS, "base": lambda setting, seed: learners.accuracy(learners.base(seed))})
