"""The cells of tier human: rules fitted to people's choices, each experiment left out in turn; and V6's bank.

loop: from take the best and weighing, five cycles. A cycle draws from the bank the experiment on which the two best
theories differ most, fits all, and lets a symbolic proposer add one theory, the change of one of those two that does
best on experiments left out among those drawn.
search: the same question to ``theory_loop.search`` as it stands: theories are scored by their ranges, unfitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from clew.core.aio import run_sync
from clew.methods.coevolve.archive import ChainedLog
from clew.methods.theories.choice_fits import Rule, error, fit, leave_one_out, prior_predictive, profile
from clew.methods.theories.choice_forms import BOUNDS, rule
from clew.methods.theories.choice_trials import Trials
from clew.methods.theories.labs import Bank
from clew.methods.theories.noise_ceiling import noise_floor
from clew.methods.theories.theory_loop import Rules, search
from clew.methods.theories.theory_proposers import GrammarProposer
from papers.E176_autocog.people_bank import RATINGS, Choices, bank
from papers.E176_autocog.people_rules import CURVED, ENOUGH, POWER, RULES, TALLY, TTB, WADD
from papers.experiment import Line, by_kind, grid

SEEDS, CYCLES, SHUFFLED, RESTARTS = range(10), 5, range(5), 6
cost: Mapping[str, float] = {"fit": 6.0, "prior": 1.0, "noise": 1.0, "loop": 15.0, "search": 10.0}
CHANGES = {"binary": (TALLY, POWER), "cardinal": (TALLY, POWER, CURVED, ENOUGH)}


def cells(quick: bool) -> Iterator[Line]:
    for ratings in RATINGS:
        if not bank(ratings):
            continue
        yield from grid(kind=["noise"], ratings=[ratings], seed=[0])
        yield from grid(kind=["fit", "prior"], ratings=[ratings], rule=RULES[ratings], control=["none"], seed=[0])
        shuffled = list(SHUFFLED)[: 1 if quick else None]
        yield from grid(kind=["fit"], ratings=[ratings], rule=[POWER.name], control=["shuffled"], seed=shuffled)
    if bank("binary"):
        yield from grid(kind=["loop", "search"], ratings=["binary"], seed=list(SEEDS)[: 1 if quick else None])


def shuffled(experiments: Sequence[Choices], seed: int) -> list[Choices]:
    """The same choices with each experiment's validities dealt to other cues."""
    rng = np.random.default_rng(seed)
    out: list[Choices] = []
    for one in experiments:
        order = rng.permutation(len(one.validities))
        while (order == np.arange(len(order))).all():
            order = rng.permutation(len(order))
        out.append(one._replace(validities=one.validities[order]))
    return out


def fitted(setting: Line, seed: int) -> Line:
    experiments: Sequence[Choices] = bank(setting["ratings"])
    own = RULES[setting["ratings"]][setting["rule"]]
    if setting["control"] == "shuffled":
        experiments = shuffled(experiments, seed)
    found = leave_one_out(own, experiments, restarts=RESTARTS)
    whole = fit(own, experiments, restarts=RESTARTS)
    known = [round(float(x), 6) for x in found.errors]
    held = [{name: round(x, 4) for name, x in one.parameters.items()} for one in found.fits]
    return {"errors": known, "held": held, "parameters": {n: round(x, 4) for n, x in whole.parameters.items()}}


def prior(setting: Line, seed: int) -> Line:
    found = prior_predictive(RULES[setting["ratings"]][setting["rule"]], bank(setting["ratings"]), seed=seed)
    return {"errors": [round(float(x), 6) for x in found]}


def noise(setting: Line, seed: int) -> Line:
    known = bank(setting["ratings"])
    return {"floors": [round(noise_floor(one, seed=seed), 6) for one in known], "names": [one.name for one in known]}


def loop(setting: Line, seed: int) -> Line:
    """V6: the theories that are admitted by cycle, and what the best of them misses on the whole bank."""
    left, rng = list(bank(setting["ratings"])), np.random.default_rng(seed)
    drawn = [left.pop(int(rng.integers(len(left))))]
    pool: dict[str, Rule] = {rule.name: rule for rule in (TTB, WADD)}
    first = None
    for cycle in range(1, CYCLES + 1):
        fits = {name: fit(rule, drawn, restarts=3, seed=seed) for name, rule in pool.items()}
        two = sorted(pool, key=lambda name: fits[name].loss)[:2]
        sides = [[profile(pool[name], fits[name].parameters, one) for one in left] for name in two]
        apart = [np.mean((x - y) ** 2) for x, y in zip(*sides, strict=True)]
        drawn.append(left.pop(int(np.argmax(apart))))
        new = [rule for rule in CHANGES[setting["ratings"]] if rule.name not in pool]
        if new:
            best = min(new, key=lambda rule: leave_one_out(rule, drawn, restarts=2, seed=seed).mean)
            pool[best.name] = best
            first = cycle if best.name == POWER.name and first is None else first
    on_drawn = {name: leave_one_out(rule, drawn, restarts=3, seed=seed).mean for name, rule in pool.items()}
    winner = min(on_drawn, key=lambda name: on_drawn[name])
    found = fit(pool[winner], drawn, restarts=RESTARTS, seed=seed)
    weighing = fit(WADD, drawn, restarts=RESTARTS, seed=seed)
    unseen = [[error(rule, f.parameters, one) for one in left] for rule, f in ((pool[winner], found), (WADD, weighing))]
    return {
        "winner": winner, "cycle": first, "gamma": found.parameters.get("gamma"), "drawn": len(drawn),
        "error": round(on_drawn[winner], 6), "wadd": round(on_drawn[WADD.name], 6),
        "unseen": round(float(np.mean(unseen[0])), 6), "unseen_wadd": round(float(np.mean(unseen[1])), 6),
    }  # fmt: skip


def searched(setting: Line, seed: int) -> Line:
    """V6 by the closed loop: its best theory, and what that structure misses where it is fitted and left out."""
    known = [Trials(*one[1:]) for one in bank(setting["ratings"])]
    state = run_sync(search(ChainedLog(), Bank(known), GrammarProposer(), Rules(cycles=CYCLES, seed=seed)))
    form = state.ranked()[0][0]
    free = replace(form, ranges={name: BOUNDS[name] for name in form.ranges})
    found, whole = leave_one_out(rule(free), known, restarts=3), fit(rule(free), known, restarts=3)
    ended = state.ended or {}
    return {
        "form": form.told, "words": form.words, "gamma": whole.parameters.get("gamma"), "error": round(found.mean, 6),
        "loss": ended.get("loss"), "noise": ended.get("noise"), "adequate": ended.get("adequate"),
        "revisions": state.revisions, "designs": len(state.observations),
    }  # fmt: skip


run = by_kind({"fit": fitted, "prior": prior, "noise": noise, "loop": loop, "search": searched})
