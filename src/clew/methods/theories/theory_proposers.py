"""Who writes new theories: the grammar by lot, or any Model, which answers with forms of the grammar.

The closed loop calls them with the best theories so far. What a model answers is parsed as data within bounds; it is
never run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, Protocol, get_args

import numpy as np

from clew.core.errors import BadInput, ModelError
from clew.core.printable import visible
from clew.core.protocols import Model
from clew.core.values import Sampling
from clew.methods.theories.choice_forms import BOUNDS, NOISE, WORDS, Aggregator, Form
from clew.models.asking import request

Kind = Literal["theory", "model"]  # a new structure, or other ranges of the same
STEP = 0.35  # of a range's bounds: how far an end of it moves at most
ANSWER = 20_000  # characters of an answer that are read
FRESH: Mapping[str, tuple[float, float]] = {"alpha": (0.1, 1.0), "shift": (0.1, 5.0)}
HISTORY = ((-6.0, -1.0), (1.0, 6.0), (-6.0, 6.0))
ASK = """You look for a theory of how people choose between two options A and B that are rated on cues of different \
validity. A theory is one JSON object:
{{"aggregator": one of {aggregators}, "sign": 1 or -1, "curved": true or false, "ranges": {{name: [low, high], ...}}}}
What the aggregators do: {words}. Ranges: beta (gain) and eps (lapses) always; gamma (power of validities) for sum; \
history (above 0 repeats, below 0 alternates) where people remember; alpha and shift where curved. Bounds: {bounds}.

The best theories so far and their loss on all experiments (0 is perfect):
{best}

{task} Answer with a JSON list of up to {n} theories, and nothing else."""
TASKS = {
    "theory": "Propose theories with another structure that would explain what these miss.",
    "model": "Keep the structure of the first and propose better ranges.",
}


class Written(NamedTuple):
    """forms: new theories. tokens: spent on them. refused: what a model wrote that was none, counted by why."""

    forms: list[Form]
    tokens: int = 0
    refused: Mapping[str, int] = {}


class Proposer(Protocol):
    """Writes theories from the best so far, which come with their losses, the best first."""

    async def propose(self, kind: Kind, best: Sequence[tuple[Form, float]], n: int, luck: int) -> Written: ...


class GrammarProposer:
    """Changes one of the best theories by lot.

    Args:
        aggregators: those that may be written; the grammar without one of them is a control.
        flips: whether a theory may go against its evidence.
    """

    def __init__(self, aggregators: Sequence[Aggregator] = get_args(Aggregator), flips: bool = True) -> None:
        if unknown := set(aggregators) - set(get_args(Aggregator)):
            raise BadInput(f"no aggregator {sorted(unknown)[0]!r}", remedy=f"Choose from {', '.join(WORDS)}.")
        self.aggregators, self.flips = tuple(aggregators), flips

    async def propose(self, kind: Kind, best: Sequence[tuple[Form, float]], n: int, luck: int) -> Written:
        """As ``Proposer``."""
        rng, forms = np.random.default_rng(luck), list[Form]()
        for _ in range(n):
            parent = best[int(rng.integers(len(best)))][0]
            if kind == "theory" and rng.random() < 0.6:
                parent = self._restructured(parent, rng)
            forms.append(_reranged(parent, rng))
        return Written(forms)

    def _restructured(self, form: Form, rng: np.random.Generator) -> Form:
        kinds = ["aggregator", "history"] + ["flip"] * self.flips + ["gamma", "curve"] * (form.aggregator == "sum")
        kind, ranges = kinds[int(rng.integers(len(kinds)))], dict(form.ranges)
        if kind == "flip":
            return replace(form, sign=-form.sign)
        if kind == "curve":
            if form.curved:
                left = {name: ends for name, ends in ranges.items() if name not in ("alpha", "shift")}
                return replace(form, curved=False, ranges=left)
            return replace(form, curved=True, ranges=ranges | {name: FRESH[name] for name in ("alpha", "shift")})
        if kind in ("gamma", "history"):
            fresh = _fresh_gamma(rng) if kind == "gamma" else HISTORY[int(rng.integers(len(HISTORY)))]
            if ranges.pop(kind, None) is None:
                ranges[kind] = fresh
            return replace(form, ranges=ranges)
        aggregator = self.aggregators[int(rng.integers(len(self.aggregators)))]
        kept: dict[str, tuple[float, float]] = {
            name: ranges[name] for name in ("beta", "eps", "history") if name in ranges
        }
        new = dict(NOISE) | kept
        if aggregator == "sum" and rng.random() < 0.5:
            new["gamma"] = _fresh_gamma(rng)
        return Form(aggregator, new, form.sign)


def _fresh_gamma(rng: np.random.Generator) -> tuple[float, float]:
    """A range from 0 to all of it, the small ones as often as the wide: counting is at 0, weighing at 1."""
    return 0.0, float(BOUNDS["gamma"][1] * rng.random() ** 3)


def _reranged(form: Form, rng: np.random.Generator) -> Form:
    """One or two ranges shifted, narrowed or widened, within their bounds."""
    ranges = dict(form.ranges)
    names = sorted(ranges)
    for at in rng.choice(len(names), min(len(names), 1 + int(rng.integers(2))), replace=False):
        low, high = BOUNDS[names[at]]
        ends = np.array(ranges[names[at]])
        if rng.random() < 0.3:  # narrow towards one of its points
            middle = rng.uniform(*ends) if ends[0] < ends[1] else ends[0]
            ends = middle + (ends - middle) * rng.uniform(0.2, 0.8)
        else:
            ends = ends + rng.uniform(-STEP, STEP, 2) * (high - low) * rng.random()
        ends = np.clip(np.sort(ends), low, high)
        ranges[names[at]] = (float(ends[0]), float(ends[1]))
    return replace(form, ranges=ranges)


class ModelProposer:
    """Asks a model for theories of the grammar. A model that gave none, or no answer, proposes nothing."""

    def __init__(self, model: Model, sampling: Sampling | None = None) -> None:
        self.model, self.sampling = model, sampling or Sampling(max_tokens=2000, temperature=1.0)

    async def propose(self, kind: Kind, best: Sequence[tuple[Form, float]], n: int, luck: int) -> Written:
        """As ``Proposer``."""
        told = "\n".join(f"{loss:.4f}  {json.dumps(form.told)}" for form, loss in best)
        words = "; ".join(f"{name} {text}" for name, text in WORDS.items())
        bounds = {name: list(ends) for name, ends in BOUNDS.items()}
        listed = ", ".join(get_args(Aggregator))
        text = ASK.format(aggregators=listed, words=words, bounds=bounds, best=told, task=TASKS[kind], n=n)
        try:
            done = await self.model.complete(request(self.model, text, seed=luck % 2**31, sampling=self.sampling))
        except ModelError as error:
            return Written([], 0, {f"no answer: {visible(error.message)[:200]}": 1})
        tokens = done.usage.prompt + (done.usage.completion or len(done.tokens or ()))
        return _read(done.message.text, n)._replace(tokens=int(tokens))


def _read(answer: str, n: int) -> Written:
    text = answer[:ANSWER]
    try:
        listed = json.loads(text[text.index("[") : text.rindex("]") + 1])
    except (ValueError, RecursionError):
        return Written([], 0, {"the answer held no list of theories": 1})
    forms, refused = list[Form](), dict[str, int]()
    for one in listed[:n]:
        try:
            forms.append(Form.of(one))
        except BadInput as error:
            why = visible(error.message)[:200]
            refused[why] = refused.get(why, 0) + 1
    return Written(forms, 0, refused)
