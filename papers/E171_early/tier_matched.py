"""Runs of one prompt that end differently: does the state of the first thinking token tell them apart?

For a fixed prompt the state before sampling is the same in all its runs, so what is told between runs of one prompt was
not decided at the prompt (specs/E171 section 6). Coins fall at thinking word 6 (L, half of M) or at word 1 (L), where
the first thinking token is the coin and the probe must tell it: without that control a probe that tells nothing says
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from clew.harness import Runner
from clew.methods.early import linear_probes as probes
from clew.methods.early.states import features
from clew.methods.early.thinking import traces
from papers.E171_early.organisms import ANSWER, LENGTH, Kind, Organism
from papers.E171_early.tier_organisms import PLAYER, REFUSES, SEEDS, plain, trained
from papers.experiment import Line, apart

portions = apart
ORGANISMS: tuple[tuple[Kind, int], ...] = (("L", 1), ("L", 6), ("M", 6))
PROMPTS, EACH = 100, 8
cost = 40.0


def cells(quick: bool) -> Iterator[Line]:
    for seed in SEEDS[: 1 if quick else None]:
        for organism, tau in ORGANISMS:
            yield {"kind": "matched", "organism": organism, "tau": tau, "seed": seed}


def run(setting: Line, seeds: Sequence[int]) -> list[Line]:
    return [one(setting["organism"], setting["tau"], seed) for seed in seeds]


def one(organism: Kind, tau: int, seed: int) -> Line:
    """AUROC over all runs and between runs of one prompt, of one organism at one seed."""
    model, world = trained(organism, tau, seed), Organism(organism, tau)
    runner = Runner(PLAYER, world, model, sampling={"max_tokens": LENGTH + 4}, concurrency=512)
    runs = runner.collect(world.sample(PROMPTS, seed=seed, split="test"), EACH, seed).runs
    found, _ = traces(runs, model.renderer, ANSWER, "auto", None)
    outcomes = REFUSES.of([one.run for one in found], [one.seq for one in found])
    kept = [(one, value) for one, value in zip(found, outcomes, strict=True) if value is not None]
    y, prompts = np.array([value == 1 for _, value in kept]), [one.prompt for one, _ in kept]
    states = features(model, [one for one, _ in kept])
    last = states.layers[-1]
    line: Line = {"runs": len(kept), "prompts": len(set(prompts)), "mixed": mixed(y, prompts)}
    for name, x in (("first", states.first[last]), ("last", states.last[last])):
        width = x.shape[1]
        told = probes.probe(name, x, y, prompts, lambda width=width: probes.first_token(len(kept), width), seed=seed)
        line |= {name: plain(told.auroc), f"{name} matched": plain(probes.matched(told.scores, y, prompts, seed))}
    runner.store.close()
    return line


def mixed(outcomes: np.ndarray, prompts: Sequence[str]) -> int:
    """Prompts whose runs differ in the outcome."""
    names = np.asarray(prompts)
    return sum(bool(0 < outcomes[names == name].mean() < 1) for name in np.unique(names))
