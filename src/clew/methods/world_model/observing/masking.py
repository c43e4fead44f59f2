"""Which observations a model of a world learns from: seven classes of a turn by its words, and how often each is kept.

The rows of ``observation_rows`` call it. Answers that repeat the action teach to copy, and are mostly left out of the
loss; they stay in the context (arXiv 2606.24597, Table 3). A class depends on the action and the observation alone.
"""

from __future__ import annotations

import random
from typing import Literal, NamedTuple

from clew.core.keys import derive

Kind = Literal["echo", "boilerplate", "transform", "expansion", "retrieval", "action", "other"]
Keep = Literal["turn", "token", "weight", "all"]
KEPT: dict[Kind, float] = {
    "echo": 0.05,
    "boilerplate": 0.1,
    "transform": 0.5,
    "expansion": 1.0,
    "retrieval": 1.0,
    "action": 1.0,
    "other": 1.0,
}
"""The share of each class that is kept, the most specific class first: where several rules hold, the first one counts.
The paper gives no precedence, though echo is a part of boilerplate and others overlap."""
SHORT = 64  # characters of an observation that is short


class Overlap(NamedTuple):
    """How an observation compares with its action. Words are in small letters, each counted once.

    old: share of the action's words that the observation repeats. new: share of the observation's words that the action
    has not. jaccard: shared words of all words; no rule of the paper uses it. ratio: characters of the observation for
    one of the action. empty: one of the two has no words, and the others are 0.
    """

    old: float
    new: float
    jaccard: float
    ratio: float
    empty: bool = False


def overlap(action: str, observation: str) -> Overlap:
    """Compare an observation with its action."""
    asked, said = set(action.lower().split()), set(observation.lower().split())
    if not asked or not said:
        return Overlap(0.0, 0.0, 0.0, 0.0, True)
    both = len(asked & said)
    ratio = len(observation) / len(action)
    return Overlap(both / len(asked), 1 - both / len(said), both / len(asked | said), ratio)


def kind_of(action: str, observation: str) -> Kind:
    """The class of a turn: the first in the order of ``KEPT`` whose rule holds; ``action`` where one has no words."""
    found = overlap(action, observation)
    if found.empty:
        return "action"
    rules: dict[Kind, bool] = {
        "echo": found.old >= 0.7 and found.new < 0.3,
        "boilerplate": found.old >= 0.5 and found.new < 0.5,
        "transform": found.new < 0.5 and found.ratio < 1,
        "expansion": found.old >= 0.5 and found.new >= 0.5 and found.ratio > 1.5,
        "retrieval": found.new >= 0.6 and found.ratio > 1,
        "action": found.new >= 0.5 and (found.ratio <= 1 or len(observation) <= SHORT),
    }
    return next((kind for kind in KEPT if rules.get(kind)), "other")


def weights_of(sample: str, kind: Kind, tokens: int, how: Keep = "turn", seed: int = 0) -> list[float]:
    """The weight in the loss of each of ``tokens`` tokens of an observation.

    Chance is drawn by the sample's id, so that equal ids and seeds keep the same, in whatever order they come.

    Args:
        sample: names the turn among all.
        how: ``turn`` keeps all tokens with the chance of the class, or none; ``token`` draws for each token; ``weight``
            keeps all, weighing as much as the chance; ``all`` keeps all at full weight.
    """
    share, dice = KEPT[kind], random.Random(derive(seed, "observations", sample))
    if how == "all":
        return [1.0] * tokens
    if how == "weight":
        return [share] * tokens
    if how == "token":
        return [float(dice.random() < share) for _ in range(tokens)]
    return [float(dice.random() < share)] * tokens
