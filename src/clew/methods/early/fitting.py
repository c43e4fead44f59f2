"""The probes and controls of one audit: what tells the outcome without hidden states, and what tells it with them.

``study`` calls ``controls`` on the texts of runs and ``on_states`` on their hidden states. Which probe is fitted how is
in ``linear_probes``. Nothing here samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clew.methods.early import linear_probes as probes
from clew.methods.early.states import States
from clew.methods.early.thinking import Trace

Bools = npt.NDArray[np.bool_]
PROMPT_WORDS, PROMPT_PLACES = "prompt alone (TF-IDF)", "prompt alone (words by place)"
FIRST, STATE_A = "first thinking token", "last prompt token"
SHUFFLED = "shuffled labels"
EARLY = (PROMPT_WORDS, PROMPT_PLACES, FIRST, STATE_A)


class Texts(NamedTuple):
    """What controls read of each run: the prompt's text, its length in tokens, the first thinking token."""

    prompt: list[str]
    length: list[int]
    first: list[str]


def texts(traces: Sequence[Trace]) -> Texts:
    """The prompts of the runs as text, their lengths, and the first thinking token of each."""
    out = Texts([], [], [])
    for one in traces:
        call = one.run.call(one.calls[0] if one.calls else one.seq)
        path = one.run.store.thread(call.node_in)
        out.prompt.append("\n".join(node.message.text for node in path))
        out.length.append(sum(len(node.ids) if node.ids is not None else len(node.message.text) for node in path))
        first = one.thought[:1]
        out.first.append(first if isinstance(first, str) else " ".join(map(str, first)))
    return out


def controls(
    given: Texts, y: Bools, prompts: Sequence[str], sources: Sequence[str] | None, seed: int = 0
) -> list[probes.Probe]:
    """What tells the outcome without any hidden state: the prompt's words, its length, the first word, the source."""

    def fit(name: str, x: object, make: probes.Make) -> probes.Probe:
        return probes.probe(name, x, y, prompts, make, sources, seed)

    length = np.log1p(np.array(given.length, float))[:, None]
    found = [
        fit(PROMPT_WORDS, given.prompt, probes.words),
        fit(PROMPT_PLACES, given.prompt, lambda: probes.words(places=True)),
        fit("prompt length", length, probes.state_a),
    ]
    if any(given.first):
        found.append(fit("first word", given.first, lambda: probes.words(places=True)))
    if sources is not None and len(set(sources)) > 1:
        found.append(fit("source", list(sources), lambda: probes.words(places=True)))
    return found


def on_states(
    states: States, y: Bools, prompts: Sequence[str], sources: Sequence[str] | None, seed: int = 0
) -> list[probes.Probe]:
    """Both published probes, one at each layer and position, and the controls on hidden states."""
    last = states.layers[-1]
    runs, width = states.first[last].shape

    def fit(name: str, x: np.ndarray, make: probes.Make, divisions: int = 1) -> probes.Probe:
        return probes.probe(name, x, y, prompts, make, sources, seed, probes.FOLD_SEEDS[:divisions])

    def first() -> probes.Fitted:
        return probes.first_token(runs, width)

    every = len(probes.FOLD_SEEDS)
    found = [fit(FIRST, states.first[last], first, every), fit(STATE_A, states.prompt[last], probes.state_a, every)]
    found += [fit(f"{FIRST}, layer {name}", states.first[name], first) for name in states.layers[:-1]]
    found += [
        probes.shuffled(SHUFFLED, states.first[last], y, prompts, first, seed),
        fit("random projection", states.first[last], lambda: probes.random_projection(width, seed)),
        fit("last thinking token", states.last[last], first),
    ]
    along = states.along[last]
    for place in range(0, along.shape[1], 5):
        share = place / max(along.shape[1] - 1, 1)
        found.append(fit(f"after {share:.0%} of the thinking", along[:, place], first))
    return found


def scores_along(states: States, y: Bools, prompts: Sequence[str]) -> probes.F64:
    """What the first probe says of each run at each place of its thinking, float64 [runs, positions]: the chance of the
    outcome, by a probe of that place that was fitted on other prompts."""
    along = states.along[states.layers[-1]]
    runs, places, width = along.shape
    found = [
        probes.out_of_fold(along[:, i], y, prompts, lambda: probes.first_token(runs, width))[0] for i in range(places)
    ]
    return np.stack(found, 1)
