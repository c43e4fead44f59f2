"""Training rows of a model of a world: a run is a conversation in which the world answers, and its answers are learnt.

`clew world fit` makes rows here, in the one form in which such a model is later asked (``worlds.learned.prompting``).
Tokens of actions, of the system text and of what is masked stay in the context and weigh nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from clew.core.errors import BadInput
from clew.core.protocols import Renderer
from clew.core.records import LossRow
from clew.core.values import Message
from clew.methods.world_model.model_folder import ModelCard
from clew.methods.world_model.observing.episodes import Episode
from clew.methods.world_model.observing.masking import Keep, kind_of, weights_of
from clew.methods.world_model.prompting import Turn, reply_text, turn_text
from clew.train.rows import render


@dataclass(slots=True)
class Counts:
    """What the rows hold: turns of each masking class, those of them that carry a loss, and tokens with loss of all."""

    turns: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    weighing: float = 0.0


def observation_rows(
    episodes: Iterable[Episode],
    renderer: Renderer,
    card: ModelCard,
    keep: Keep = "turn",
    seed: int = 0,
    context: int = 0,
) -> tuple[list[LossRow], Counts]:
    """Rows for the loss ``sft``.

    With no window a row is a whole run, whose answers are all learnt at once; with ``card.window`` each kept turn is a
    row of its own, with so many turns before it.

    Args:
        card: how the model is told of the world.
        keep: which answers carry the loss; see ``masking.weights_of``.
        context: most tokens of a row; 0 for no bound.

    Raises:
        BadInput: a row does not fit the context, or no answer is left to learn from.
    """
    rows, counts = list[LossRow](), Counts()
    for episode in episodes:
        weights = _weights(episode, renderer, keep, seed, counts)
        for first, turns, chosen in _spans(episode.turns, weights, card.window):
            rows.append(_row(episode, card.system(episode.prompt, episode.first), first, turns, chosen, renderer))
            if context and len(rows[-1].ids) > context:
                raise BadInput(
                    f"run {episode.run} has {len(rows[-1].ids)} tokens, and the model reads {context}",
                    remedy="Add --window N, the turns before an action that the model is told; or take shorter runs.",
                )
    if not rows:
        raise BadInput("no observation is left to learn from", remedy="Choose other runs, or write --keep all.")
    return rows, counts


def _weights(episode: Episode, renderer: Renderer, keep: Keep, seed: int, counts: Counts) -> list[list[float]]:
    """Of each turn, the weights of its answer's tokens, the end token counted."""
    out = []
    for i, (turn, learnt) in enumerate(zip(episode.turns, episode.learnt, strict=True)):
        kind = kind_of(turn_text(turn.action), turn.observation)
        n = len(renderer.encode(reply_text(turn.observation, turn.state, turn.done))) + 1
        made = weights_of(f"{episode.run}/{i}", kind, n, keep, seed) if learnt else [0.0] * n
        counts.turns[kind] += 1
        counts.kept[kind] += any(made)
        counts.tokens += n
        counts.weighing += sum(made)
        out.append(made)
    return out


def _spans(
    turns: Sequence[Turn], weights: Sequence[list[float]], window: int
) -> Iterator[tuple[int, Sequence[Turn], list[list[float]]]]:
    """The turns of each row, the first one's place, and their weights; rows without any weight are left out."""
    if not window:
        if any(map(any, weights)):
            yield 0, turns, list(weights)
        return
    for i, own in enumerate(weights):
        if any(own):
            first = max(0, i - window)
            yield first, turns[first : i + 1], [[0.0] * len(w) for w in weights[first:i]] + [own]


def _row(
    episode: Episode, system: str, first: int, turns: Sequence[Turn], weights: list[list[float]], renderer: Renderer
) -> LossRow:
    said = [Message("system", system)] if system else []
    for turn in turns:
        said.append(Message("user", turn_text(turn.action)))
        said.append(Message("assistant", reply_text(turn.observation, turn.state, turn.done)))
    pieces, left = render(said, renderer), list(weights)
    streams = []
    for piece, own in pieces:
        mine = left.pop(0) if own else []
        streams += (mine + mine[-1:] * len(piece))[: len(piece)] if own else [0.0] * len(piece)
    ids = np.fromiter((token for piece, _ in pieces for token in piece), np.int32)
    none = np.full(len(ids), np.nan, np.float32)
    weight = np.array(streams, np.float32)
    return LossRow(ids, np.zeros(len(ids), bool), {"sft": weight}, none, run=f"{episode.run}/{first}")


def vocabulary_of(
    episodes: Iterable[Episode], most: int = 20_000, cut: Callable[[str], list[str]] = str.split
) -> list[str]:
    """The words of episodes as a word-level model is told them, the most frequent first and then by letters.

    Args:
        cut: into what a text is cut; ``rendering.pieces_of`` gives pieces of words.

    Raises:
        BadInput: there are more than ``most`` words.
    """
    seen = Counter[str]()
    for one in episodes:
        told = [one.prompt, one.first, "State at the start:"]
        for turn in one.turns:
            told += [turn_text(turn.action), reply_text(turn.observation, turn.state, True)]
        for text in told:
            seen.update(cut(text))
    if len(seen) > most:
        remedy = "Name a model with a tokenizer, or choose runs of a smaller world."
        raise BadInput(f"these runs hold {len(seen):,} different words", remedy=remedy)
    return sorted(seen, key=lambda word: (-seen[word], word))
