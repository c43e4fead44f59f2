"""The closed loop: two rival theories, a design that tells them apart, people's choices, a revised theory; and again.

After arXiv 2606.26448 (specs/E176, section 4), with what its section 8 changes: choice profiles and switch rates in
place of one scalar, common random numbers, an absolute fit. The state is the log, so that a search that was killed
anywhere goes on to the same bytes. The loop must never look into who the people are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from clew.core.errors import BadInput, BadRecord
from clew.core.keys import derive, value_digest
from clew.methods.coevolve.archive import ChainedLog
from clew.methods.theories.choice_designs import Policy, choose, random_design
from clew.methods.theories.choice_forms import KNOWN, Form, predicted
from clew.methods.theories.choice_trials import F64, Design, Trials, switches
from clew.methods.theories.labs import Lab
from clew.methods.theories.mechanism_twins import FEWEST
from clew.methods.theories.noise_ceiling import noise_floor
from clew.methods.theories.theory_proposers import Kind, Proposer
from clew.methods.theories.verdict_words import ADEQUATE, held_against_noise

Loss = Literal["vector", "scalar"]
FORMAT, VERSION = "clew-theories", 1
ITERATIONS, CANDIDATES, PARENTS = 10, 8, 3  # of the revision (specs/E176, 7.1)
SPLITS = 50


@dataclass(frozen=True, slots=True)
class Rules:
    """How the loop goes.

    Args:
        cycles: each has two designs, one for each rival, and one revision.
        people: asked on each design, and simulated for each gate. policy: how designs are chosen.
        loss: "vector" is the mean squared error of the shares of B with the squared error of the switch rate; "scalar"
            is the error of the one metric by which the rivals differed, as published.
        first: the two theories that it begins with. highest: rating that a drawn design shows; 1 for binary cues.

    Raises:
        BadInput: a number without a meaning, or an unknown name.
    """

    cycles: int = 5
    people: int = 25
    policy: Policy = "adversarial"
    loss: Loss = "vector"
    first: tuple[str, str] = ("ttb", "wadd")
    highest: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name, known in (("policy", get_args(Policy)), ("loss", get_args(Loss))):
            if getattr(self, name) not in known:
                raise BadInput(f"there is no {name} {getattr(self, name)!r}", remedy=f"Choose from {', '.join(known)}.")
        if len(self.first) != 2 or set(self.first) - set(KNOWN) or self.first[0] == self.first[1]:
            raise BadInput(f"it cannot begin with {self.first}", remedy=f"Name two of {', '.join(KNOWN)}.")
        if self.cycles < 1 or self.people < 4 or self.highest < 1:
            raise BadInput(f"{self.cycles} cycles, {self.people} people", remedy="Give 1 cycle, 4 people, or more.")


class Observation(NamedTuple):
    """What people did on a design. share, switch: their shares of B [m], their switch rate. noise: the error that is
    left to the truth. weights, spread: of the scalar metric, and what it is divided by."""

    design: Design
    trials: Trials
    share: F64
    switch: float
    noise: float
    weights: F64
    spread: float
    accepted: bool
    p: float


class State:
    """What a log says: rivals, every theory that was admitted, observations."""

    def __init__(self, log: ChainedLog) -> None:
        self.log, self.rules = log, Rules()
        self.rivals = list[Form]()
        self.pool = list[Form]()
        self.observations = list[Observation]()
        self.revisions = 0
        self.tokens = 0
        self.refused = Counter[str]()
        self.ended: Mapping[str, Any] | None = None
        try:
            for event in log.events:
                self._apply(event)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise BadRecord("the log holds an event that cannot be followed", remedy="Begin again.") from error

    def write(self, event: Mapping[str, Any]) -> None:
        """Write an event, and follow it."""
        self.log.append(event)
        self._apply(event)

    def _apply(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "begin":
                if event["format"] != FORMAT or event["version"] != VERSION:
                    raise ValueError("another format")
                kept = dict(event["settings"]["rules"])
                self.rules = Rules(**{**kept, "first": tuple(kept["first"])})
                self.rivals = [KNOWN[name] for name in self.rules.first]
                self.pool = list(self.rivals)
            case "observe":
                self.observations.append(self._observed(event))
            case "revise":
                self.revisions += 1
                self.tokens += event["tokens"]
                self.refused.update(event["refused"])
                form = Form.of(event["form"])
                self.rivals[event["slot"]] = form
                if form not in self.pool:
                    self.pool.append(form)
            case "end":
                self.ended = event
            case other:
                raise ValueError(other)

    def _observed(self, event: Mapping[str, Any]) -> Observation:
        told = event["design"]
        a, b, validities = (np.array(told[name], float) for name in ("a", "b", "validities"))
        design = Design(a, b, validities, told["repeats"])
        of, subject = np.array(event["pairs"], np.int64), np.array(event["subjects"], np.int64)
        chose = np.array([int(one) for one in event["chose"]], np.int64)
        trials = Trials(
            design.a[of], design.b[of], design.validities, np.repeat(np.arange(len(subject)), subject), chose
        )
        count = np.maximum(np.bincount(of, minlength=len(design.a)), 1)
        share, switch = np.bincount(of, chose, minlength=len(design.a)) / count, switches(trials)
        weights = np.array(event["weights"], float)
        noise = noise_floor(trials, splits=SPLITS) + _switch_noise(trials)
        seen = [_metric(share, switch, weights)]
        seen += [_metric(*predicted(form, design), weights) for form in self.rivals]
        accepted, p = event["accepted"], event["p"]
        spread = max(float(np.ptp(seen)), 1e-6)
        return Observation(
            design, trials, share, switch, noise, weights, spread, accepted, math.nan if p is None else p
        )

    # ---- reading ---------------------------------------------------------------------------------------------------

    def loss(self, form: Form, loss: Loss | None = None) -> float:
        """Mean loss of a theory over all observations, by its ranges alone (nothing is fitted)."""
        kind, found = loss or self.rules.loss, list[float]()
        for i, seen in enumerate(self.observations):
            share, switch = predicted(form, seen.design, derive(self.rules.seed, "common", i) % 2**32)
            if kind == "scalar":
                missed = _metric(share, switch, seen.weights) - _metric(seen.share, seen.switch, seen.weights)
                found.append(abs(missed) / seen.spread)
            else:
                found.append(float(np.mean((share - seen.share) ** 2)) + (switch - seen.switch) ** 2)
        return float(np.mean(found)) if found else math.inf

    @property
    def noise(self) -> float:
        """Loss (vector) that the truth would have, because so few were asked; mean over observations."""
        return float(np.mean([seen.noise for seen in self.observations])) if self.observations else math.nan

    def ranked(self) -> list[tuple[Form, float]]:
        """Every theory with its loss, the best first."""
        return sorted(((form, self.loss(form)) for form in self.pool), key=lambda pair: pair[1])

    @property
    def participants(self) -> int:
        return sum(seen.trials.people for seen in self.observations)


def _metric(share: F64, switch: float, weights: F64) -> float:
    return float(np.r_[share / math.sqrt(len(share)), switch] @ weights)


def _switch_noise(trials: Trials) -> float:
    """Variance of the mean switch rate over people."""
    same = trials.subject[1:] == trials.subject[:-1]
    changed = (trials.chose_b[1:] != trials.chose_b[:-1])[same]
    people, of = np.unique(trials.subject[1:][same], return_inverse=True)
    if len(people) < 2:
        return 0.0
    rates = np.bincount(of, changed) / np.bincount(of)
    return float(rates.var(ddof=1) / len(people))


async def search(
    log: ChainedLog,
    lab: Lab,
    proposer: Proposer,
    rules: Rules,
    *,
    about: Mapping[str, Any] | None = None,
    watch: Callable[[State, str], None] = lambda state, event: None,
) -> State:
    """Search until the cycles are done or the lab has no design left; gives the state, whose end is written.

    Args:
        log: a new one, or one that holds the beginning of this search.
        about: what else names this search (JSON): the same log is gone on with only where it is the same.
        watch: called after each event with its name.

    Raises:
        BadInput: the log is of another search.
    """
    settings = {"rules": {**asdict(rules), "first": list(rules.first)}, "about": dict(about or {})}
    if log.events and value_digest(log.events[0].get("settings")) != value_digest(settings):
        remedy = "Give the same settings as before, or another folder."
        raise BadInput("the folder holds another search", remedy=remedy)
    state = State(log)
    if not log.events:
        state.write({"event": "begin", "format": FORMAT, "version": VERSION, "settings": settings})
    while state.ended is None:
        cycle = state.revisions
        slot, left = len(state.observations) - 2 * cycle, _left(state, lab)
        if cycle >= rules.cycles or (left is not None and not left and slot == 0):
            state.write({"event": "end", **ending(state)})
        elif slot < 2 and (left is None or left):
            await _observe(state, lab, left, cycle, slot)
        else:
            await _revise(state, proposer, cycle)
        watch(state, log.events[-1]["event"])
    return state


def _left(state: State, lab: Lab) -> list[Design] | None:
    """The designs that the lab offers and that were not asked yet; None where it asks any."""
    offers, asked = lab.offers(), {seen.design.key for seen in state.observations}
    return None if offers is None else [design for design in offers if design.key not in asked]


async def _observe(state: State, lab: Lab, left: Sequence[Design] | None, cycle: int, slot: int) -> None:
    rules = state.rules
    rng = np.random.default_rng(derive(rules.seed, "design", cycle, slot))

    def draw(rng: np.random.Generator) -> Design:
        return random_design(rng, rules.highest) if left is None else left[int(rng.integers(len(left)))]

    rivals = (state.rivals[slot], state.rivals[1 - slot])
    found = choose(rivals, state.pool, _beliefs(state), rules.policy, rules.people, rng, draw)
    trials = await lab.collect(found.design)
    design = found.design
    index = {(*a, *b): i for i, (a, b) in enumerate(zip(design.a.tolist(), design.b.tolist(), strict=True))}
    pairs = [index[(*a, *b)] for a, b in zip(trials.a.tolist(), trials.b.tolist(), strict=True)]
    shown = {name: getattr(design, name).tolist() for name in ("a", "b", "validities")} | {"repeats": design.repeats}
    state.write(
        {
            "event": "observe",
            "cycle": cycle,
            "slot": slot,
            "design": shown,
            "weights": found.weights.tolist(),
            "attempt": found.attempt,
            "p": None if math.isnan(found.p) else found.p,
            "accepted": found.accepted,
            "pairs": pairs,
            "subjects": np.unique(trials.subject, return_counts=True)[1].tolist(),
            "chose": "".join(map(str, trials.chose_b.tolist())),
        }
    )


def _beliefs(state: State) -> F64:
    """Weights of the theories of the pool: by their loss in units of the noise, even before anything was seen."""
    if not state.observations:
        return np.full(len(state.pool), 1 / len(state.pool))
    losses = np.array([state.loss(form, "vector") for form in state.pool])
    weights = np.exp(-(losses - losses.min()) / max(2 * state.noise, 1e-9))
    found: F64 = weights / weights.sum()
    return found


async def _revise(state: State, proposer: Proposer, cycle: int) -> None:
    """The worse rival is replaced, by another structure where it misses more than noise, else by other ranges."""
    losses = [state.loss(form) for form in state.rivals]
    slot = int(np.argmax(losses))
    kind: Kind = "theory" if state.loss(state.rivals[slot], "vector") > ADEQUATE * state.noise else "model"
    known = {_key(form): (form, state.loss(form)) for form in ([state.rivals[slot]] if kind == "model" else state.pool)}
    tokens, refused = 0, Counter[str]()
    for iteration in range(ITERATIONS):
        best = sorted(known.values(), key=lambda pair: pair[1])[:PARENTS]
        luck = derive(state.rules.seed, "revise", cycle, iteration)
        written = await proposer.propose(kind, best, CANDIDATES, luck)
        tokens += written.tokens
        refused.update(written.refused)
        for form in written.forms:
            if _key(form) not in known:
                known[_key(form)] = (form, state.loss(form))
    form, loss = min(known.values(), key=lambda pair: pair[1])
    told = {"form": form.told, "loss": loss, "before": losses[slot], "tried": len(known)}
    kept = {"event": "revise", "cycle": cycle, "slot": slot, "kind": kind, "tokens": tokens, "refused": dict(refused)}
    state.write({**kept, **told})


def _key(form: Form) -> str:
    return value_digest(form.told).hex()


def ending(state: State) -> dict[str, Any]:
    """The closing event: the best theory, and whether any is adequate."""
    ranked = state.ranked()
    best = ranked[0][0]
    missed, seen = state.loss(best, "vector"), len(state.observations)
    guess = [float(np.mean((one.share - 0.5) ** 2)) + (one.switch - 0.5) ** 2 for one in state.observations]
    losses = [*(state.loss(form, "vector") for form in state.pool), float(np.mean(guess)) if guess else math.inf]
    compared = held_against_noise(losses, state.noise)
    if seen < FEWEST:
        why = f"a theory can be judged from {FEWEST} designs on, and {seen} {'was' if seen == 1 else 'were'} asked"
        compared = replace(compared, could_differ=0, why_not=why)
    adequate = missed <= ADEQUATE * state.noise
    gates = sum(seen.accepted for seen in state.observations)
    return {
        "best": best.told,
        "words": best.words,
        "loss": missed,
        "noise": state.noise,
        "adequate": None if adequate and not compared.tested else bool(adequate),
        "participants": state.participants,
        "accepted": gates,
        "designs": seen,
        "compared": compared.json(),
    }


def sentence(end: Mapping[str, Any]) -> str:
    """The end in words, which claim no more than the data bear."""
    missed = f"its error is {end['loss'] / max(end['noise'], 1e-12):.1f} times what noise alone leaves"
    if end["designs"] < FEWEST:
        found = "no theory of the search is adequate" if end["adequate"] is False else "whether one is adequate is open"
        return f"Not tested: from fewer than {FEWEST} designs no mechanism is named ({end['designs']} here); {found}."
    if end["adequate"] is None:
        return f"Not tested whether a theory is adequate: {end['compared']['why_not']}."
    if end["adequate"]:
        found = f"a theory that {end['words']}; {missed}, at most {ADEQUATE:g} times"
        return f"Adequate on the designs of the search, which tests no mechanism: {found}."
    return f"No adequate theory: the best {end['words']}, and {missed}, above {ADEQUATE:g} times."


def recovered(state: State, truth: Form, seed: int = 0) -> float:
    """Mean squared error of the best theory to a planted one on 24 pairs of four cues (specs/E176, 6.1)."""
    design = random_design(np.random.default_rng(derive(seed, "recovery")), validities=(0.9, 0.8, 0.7, 0.6))
    best = state.ranked()[0][0]
    return float(np.mean((predicted(best, design, 1)[0] - predicted(truth, design, 2)[0]) ** 2))
