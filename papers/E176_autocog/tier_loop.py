"""The cells of tier loop: V1 to V4 and V9, the closed loop on simulated people who follow a planted theory.

``truth``: the theory. ``lacking``: what is taken out of the grammar: "flip" (theories may not go against their
evidence), "parity" (no parity of cues), or nothing. ``policy``: how designs are chosen. ``loss``: vector or scalar.
``people``: on each design.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import get_args

import numpy as np

from clew.core.keys import derive
from clew.methods.coevolve.archive import ChainedLog
from clew.methods.theories.choice_designs import Policy, random_design
from clew.methods.theories.choice_forms import KNOWN, Aggregator, predicted
from clew.methods.theories.simulated_people import SimulatedPeople
from clew.methods.theories.theory_loop import Rules, State, search
from clew.methods.theories.theory_proposers import GrammarProposer
from papers.experiment import Line, grid

SEEDS = range(10)
CANONICAL, STRESS = ("ttb", "wadd", "tally"), ("take_the_worst", "single_cue", "cue_parity")
SEQUENTIAL = ("alternating", "perseveration")
OUTSIDE = {"anti_majority": "flip", "cue_parity": "parity"}  # truths whose primitive is taken away
POLICIES = get_args(Policy)
ABLATED = ("ttb", "perseveration")
VALIDITIES, CHOICE_DRAWS = (0.9, 0.8, 0.7, 0.6), 1024  # of the 24 pairs by which a theory is compared with the truth


def cost(cell: Line) -> float:
    return 3.5 if cell["people"] == 25 else 2.5


def cells(quick: bool) -> Iterator[Line]:
    seeds = list(SEEDS)[: 1 if quick else None]
    plain = {"policy": "adversarial", "loss": "vector", "people": 25}
    yield from grid(truth=[*CANONICAL, *STRESS, *SEQUENTIAL], lacking="none", **plain, seed=seeds)
    for truth, lacking in OUTSIDE.items():
        yield from grid(truth=truth, lacking=lacking, **plain, seed=seeds)
    ways = [way for way in POLICIES if way != "adversarial"]
    yield from grid(truth=ABLATED, lacking="none", policy=ways, loss="vector", people=25, seed=seeds)
    yield from grid(truth="anti_majority", lacking="flip", policy=ways, loss="vector", people=25, seed=seeds)
    scalar = {"policy": "adversarial", "loss": "scalar", "people": 25}
    yield from grid(truth=ABLATED, lacking="none", **scalar, seed=seeds)
    yield from grid(truth="anti_majority", lacking="flip", **scalar, seed=seeds)
    yield from grid(truth="ttb", lacking="none", policy=["adversarial", "blind"], loss="vector", people=6, seed=seeds)


def begun_with(truth: str) -> tuple[str, str]:
    """The two canonical theories that are not the truth."""
    first, second = [name for name in CANONICAL if name != truth][:2]
    return first, second


def missed(state: State, truth: str, seed: int) -> Line:
    """Mean squared error to the truth on 24 pairs: of the best theory, of the better seed, of predicting .5."""
    design = random_design(np.random.default_rng(derive(seed, "recovery")), validities=VALIDITIES)
    share, switch = predicted(KNOWN[truth], design, 99, CHOICE_DRAWS)
    best = state.ranked()[0][0]

    def error(form: object) -> float:
        return float(np.mean((predicted(form, design, 7, CHOICE_DRAWS)[0] - share) ** 2))  # type: ignore[arg-type]

    return {
        "error": round(error(best), 6),
        "seed_error": round(min(error(KNOWN[name]) for name in state.rules.first), 6),
        "floor": round(float(np.mean((share - 0.5) ** 2)), 6),
        "switch": round(abs(predicted(best, design, 7, CHOICE_DRAWS)[1] - switch), 6),
    }


def run(setting: Line, seeds: list[int]) -> list[Line]:
    return [_one(setting, seed) for seed in seeds]


def _one(setting: Line, seed: int) -> Line:
    truth, lacking = setting["truth"], setting["lacking"]
    known = [name for name in get_args(Aggregator) if name != lacking]
    how = {"policy": setting["policy"], "loss": setting["loss"], "people": setting["people"]}
    rules = Rules(first=begun_with(truth), seed=seed, **how)
    lab = SimulatedPeople(truth, setting["people"], 0.0, seed)
    state = asyncio.run(search(ChainedLog(), lab, GrammarProposer(known, lacking != "flip"), rules))
    assert state.ended is not None
    found = missed(state, truth, seed)
    ratio = round(state.ended["loss"] / state.noise, 4)
    gates = [seen.accepted for seen in state.observations]
    return found | {"adequate": state.ended["adequate"], "noise_ratio": ratio, "accepted": sum(gates)}
