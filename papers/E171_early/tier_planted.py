"""Statistics on planted truth: cut classifier, valley, vote rules, defences, probe hygiene. No model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from clew.methods.compare.design import Count
from clew.methods.early import cuts, defence, valley, votes
from clew.methods.early import linear_probes as probes
from papers.experiment import Line, by_kind

SEEDS = range(10)
K = 100  # answers on each side of a cut, as in the source
CUTS = 400
KINDS = ("cuts", "valley", "votes", "defence", "hygiene")


def cells(quick: bool) -> Iterator[Line]:
    for kind in KINDS:
        for seed in list(SEEDS)[: 3 if quick else None]:
            yield {"kind": kind, "seed": seed}


cost = {"cuts": 1.0, "valley": 4.0, "votes": 0.2, "defence": 1.5, "hygiene": 6.0}


def classified(setting: Line, seed: int) -> Line:
    """Cuts whose change is planted: none in 60 %, at least .35 in 20 %, something between in 20 %.

    The outcome is mostly nearly settled before a cut, as in the source (.74 of it within .05 of 0 or 1): its rate is
    drawn from beta(.1, .1).
    """
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, CUTS, p=(0.6, 0.2, 0.2))
    before = rng.beta(0.1, 0.1, CUTS)
    size = np.choose(kind, (np.zeros(CUTS), rng.uniform(0.35, 0.9, CUTS), rng.uniform(0.05, 0.35, CUTS)))
    up = before < 0.5
    before = np.where(kind == 0, before, np.where(up, np.minimum(before, 1 - size), np.maximum(before, size)))
    after = np.where(up, before + size, before - size)
    a, b = rng.binomial(K, np.clip(before, 0, 1)), rng.binomial(K, np.clip(after, 0, 1))
    found = cuts.classify([Count(int(k), K) for k in a], [Count(int(k), K) for k in b])
    kinds, published = np.array([cut.kind for cut in found]), np.array([cut.published for cut in found])
    said = published == "performative"
    return {
        "none": int((kind == 0).sum()), "large": int((kind == 1).sum()), "small": int((kind == 2).sum()),
        "equivalent": int((kinds == "equivalent").sum()),
        "equivalent right": int(((kinds == "equivalent") & (kind == 0)).sum()),
        "meaningful": int((kinds == "meaningful").sum()),
        "meaningful large": int(((kinds == "meaningful") & (kind == 1)).sum()),
        "meaningful none": int(((kinds == "meaningful") & (kind == 0)).sum()),
        "performative": int(said.sum()),
        "performative right": int((said & (kind == 0)).sum()),
    }  # fmt: skip


def dips(setting: Line, seed: int) -> Line:
    """A valley, flat ground, and nothing at all, in 400 runs of 100 positions and 16 dimensions."""
    rng = np.random.default_rng(seed)
    y, t = np.arange(400) % 2 == 0, np.linspace(0, 1, 100)
    line: Line = {}
    for name, ends, middle in (("valley", 2.0, 0.2), ("flat", 2.0, 2.0), ("nothing", 0.0, 0.0)):
        x = rng.normal(size=(400, 100, 16))
        gap = np.where((t < 0.15) | (t > 0.85), ends, middle)
        x[:, :, 0] += np.where(y[:, None], gap, -gap)
        found = valley.valley(x, y, seed=seed)
        line[name] = {"depth": round(found.depth, 4), "p": round(found.p, 4), "found": found.found}
    return line


def voted(setting: Line, seed: int) -> Line:
    """Four judges that are right in .75 to .95 of 2,000 runs."""
    rng = np.random.default_rng(seed)
    truth = rng.random(2000) < 0.5
    right = rng.uniform(0.75, 0.95, 4)
    given = np.array([np.where(rng.random(2000) < good, truth, ~truth) for good in right]).T.astype(float)
    best = (2 * given - 1) @ np.log(right / (1 - right)) > 0  # whoever knows each judge's rate cannot do better
    line: Line = {"ties": int((given.sum(1) == 2).sum()), "n": len(truth), "best": int((best == truth).sum())}
    for rule in votes.RULES:
        found = votes.votes(given, rule)
        line[rule] = int((found.labels == truth).sum())
        line[f"{rule} turned"] = found.turned
    return line


def defended(setting: Line, seed: int) -> Line:
    """A defence that refuses more of everything, and one that tells harmful from harmless better."""
    rng = np.random.default_rng(seed)
    harmful = np.arange(2000) % 2 == 0
    logit = np.where(harmful, 0.8, -0.8) + rng.normal(size=2000) * 1.5
    base = 1 / (1 + np.exp(-logit))
    line: Line = {}
    for name, moved in (("shift", logit + 1.0), ("discriminative", logit + np.where(harmful, 1.0, -1.0))):
        found = defence.plane(name, base, 1 / (1 + np.exp(-moved)), harmful, seed=seed)
        change = found.change
        line[name] = {
            "asr": found.asr.estimate, "orr": found.orr.estimate, "change": round(change.estimate, 4),
            "low": round(change.low, 4), "high": round(change.high, 4), "verdict": found.verdict,
        }  # fmt: skip
    none = defence.plane("none", base, base, harmful, seed=seed)
    return line | {"base": {"asr": none.asr.estimate, "orr": none.orr.estimate, "auroc": none.auroc}}


def hygiene(setting: Line, seed: int) -> Line:
    """Shuffled labels on states of 64 dimensions that carry the outcome, and a scaler fitted where it may not be."""
    rng = np.random.default_rng(seed)
    y = rng.random(2000) < 0.5
    x = rng.normal(size=(2000, 64)) + np.where(y, 0.3, -0.3)[:, None]
    mixed = y[rng.permutation(len(y))]
    names = [str(i) for i in range(len(y))]

    def auroc(target: np.ndarray) -> float:
        return probes.probe("x", x, target, names, lambda: probes.first_token(2000, 64)).auroc.estimate

    return {"true": round(auroc(y), 4), "shuffled": round(auroc(mixed), 4)}


run = by_kind({"cuts": classified, "valley": dips, "votes": voted, "defence": defended, "hygiene": hygiene})
