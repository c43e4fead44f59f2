"""The states that a crosscoder is trained on: every token of some runs once, read of both models to two folders.

The first token of a row is left out: its state is often a hundred times as large as any other, and says nothing of the
text. A model must never be read in the tokens of another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from clew.core.errors import BadInput
from clew.core.keys import derive
from clew.core.protocols import Model, Taps
from clew.models.engine.taps.blocks import target_of
from clew.models.engine.taps.placing import check_target
from clew.models.taps import read
from clew.models.taps.no_states import no_states
from clew.models.taps.source import Source, sources_of
from clew.models.taps.states_folder import States

I64 = npt.NDArray[np.int64]
HELD = 0.1  # share of the sources that is held out
PORTION = 4096


def check_pair(a: Model, b: Model, layer: int | None) -> int:
    """The layer that is compared: as given, else in the middle, where the models fit each other.

    Raises:
        BadInput: a model without hidden states here, quantised weights, other tokens, another width or number of
            layers, no such layer.
    """
    found = []
    for model in (a, b):
        config: Any = getattr(model, "_config", None)
        if not isinstance(model, Taps) or config is None:
            raise no_states(model.ref)
        sizes = int(config.hidden_size), int(config.num_hidden_layers)
        check_target(target_of(cast(Any, model).module, sizes[1], sizes[0], 0))
        found.append(sizes)
    mine, theirs = (model.renderer.ref if model.renderer is not None else "" for model in (a, b))
    if mine != theirs or getattr(a, "vocabulary", 0) != getattr(b, "vocabulary", 0):
        raise BadInput(
            f"{a.ref} and {b.ref} have different tokenizers ({mine!r} and {theirs!r})",
            remedy="Compare a model with the one that it was trained from.",
        )
    if found[0] != found[1]:
        (w, n), (v, m) = found
        raise BadInput(
            f"{a.ref} has {n} layers of width {w}, and {b.ref} has {m} of width {v}",
            remedy="Compare a model with the one that it was trained from.",
        )
    count = found[0][1]
    if layer is not None and not 0 <= layer < count:
        raise BadInput(f"there is no layer {layer} in {a.ref}", remedy=f"Its layers are 0 to {count - 1}.")
    return (count - 1) // 2 if layer is None else layer


@dataclass(frozen=True, slots=True)
class Mixture:
    """States of both models at the same tokens.

    sources: rows of ids with the Calls they are of. rows: of the folders, in training and held out, int64.
    """

    a: States
    b: States
    layer: int
    sources: Sequence[Source]
    train: I64
    held: I64

    def take(self, rows: I64 | Sequence[int]) -> Tensor:
        """States [n, 2, width] as they left the models."""
        chosen = np.asarray(rows, np.int64)
        return torch.from_numpy(np.stack([side.take(self.layer, chosen) for side in (self.a, self.b)], 1))

    def draw(self, rng: np.random.Generator, n: int) -> Tensor:
        """Random rows of the training part."""
        return self.take(np.sort(self.train[rng.integers(0, len(self.train), n)]))

    def portions(self, rows: I64) -> Iterator[Tensor]:
        for start in range(0, len(rows), PORTION):
            yield self.take(rows[start : start + PORTION])


def around(source: Source, position: int, word: Callable[[int], str], before: int = 10) -> tuple[str, str]:
    """The text before a token of a source, and the token; ``word`` gives the text of an id."""
    ids = source.ids[max(0, position - before) : position + 1].tolist()
    return "".join(map(word, ids[:-1])), word(ids[-1]).strip()


def words_of(model: Model) -> Callable[[int], str]:
    """Gives the text of a token id, special tokens by their names."""
    renderer: Any = model.renderer
    words = getattr(renderer, "words", None)
    if words is not None:
        return lambda i: f"{words[i]} " if i < len(words) else ""
    return lambda i: str(renderer.decode([i]))


def sources(given: Iterable[Any]) -> list[tuple[Source, int]]:
    """Sources, and the first position of each that no earlier call of its run holds.

    Raises:
        BadInput: there is nothing to read, or a call has no token ids.
    """
    found, seen = list[tuple[Source, int]](), dict[str, list[Source]]()
    for source in sources_of(given):
        known = seen.setdefault(source.run, []) if source.run else []
        start = max([1, *(_common(source, other) for other in known[-4:])])
        found.append((source, start))
        known.append(source)
    return found


def _common(a: Source, b: Source) -> int:
    n = min(len(a.ids), len(b.ids))
    differ = np.flatnonzero(a.ids[:n] != b.ids[:n])
    return int(differ[0]) if len(differ) else n


def collect(
    a: Model,
    b: Model,
    given: Sequence[tuple[Source, int]],
    layer: int,
    folder: Path,
    *,
    most: int,
    seed: int = 0,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> Mixture:
    """Read the states of both models; an interrupted reading goes on.

    Args:
        most: tokens read at most, drawn evenly from all.
        advance: told how many states are read, and of how many.

    Raises:
        BadInput: no token is left; a folder holds states of other tokens or another checkpoint.
    """
    rows = [source for source, _ in given]
    starts = {id(source): start for source, start in given}
    whole = sum(len(source.ids) - min(start, len(source.ids)) for source, start in given)
    keep = min(1.0, most / max(whole, 1))
    rng = np.random.default_rng(derive(seed, "mixture"))
    chosen = {}
    for source in rows:
        places = np.arange(starts[id(source)], len(source.ids))
        chosen[id(source)] = places if keep == 1.0 else places[rng.random(len(places)) < keep]
    total = sum(map(len, chosen.values()))
    if not total:
        raise BadInput("these runs hold no token to read", remedy="Choose runs of local weights.")
    bare = [source._replace(taps=()) for source in rows]
    where = {id(new): chosen[id(old)] for new, old in zip(bare, rows, strict=True)}

    def mine(source: Source) -> list[int]:
        return [int(place) for place in where[id(source)]]

    both = []
    for number, (name, model) in enumerate((("a", a), ("b", b))):
        told = partial(_later, advance, number * total, 2 * total)
        both.append(read(model, bare, [layer], mine, folder=folder / name, advance=told))
    advance(2 * total, 2 * total)
    parts = np.random.default_rng(derive(seed, "held out")).random(len(rows)) < HELD
    held = parts[both[0].index["source"]]
    if held.all() or not held.any():
        held = np.arange(total) % round(1 / HELD) == 0
    return Mixture(both[0], both[1], layer, rows, np.flatnonzero(~held), np.flatnonzero(held))


def _later(advance: Callable[[int, int], None], before: int, whole: int, done: int, total: int) -> None:
    advance(before + done, whole)
