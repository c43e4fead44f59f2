"""From two folders of weights and some runs to a crosscoder and its features: read, fit, look; each step is resumed.

``clew audit diff`` calls it, and a program may. All that it makes lies in one folder: the states of both models, until
the crosscoder is fitted and its latents are looked at, the checkpoints of the fit, the crosscoder. It must never take
up what was made of other weights, runs or settings.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from clew.core.errors import BadInput
from clew.core.keys import value_digest
from clew.core.protocols import Model
from clew.core.records import Cursor
from clew.fit import checkpoint
from clew.fit.small import Step
from clew.methods.features import crosscoder_files, directions, learning, mixture, seen_states
from clew.methods.features.crosscoder import Crosscoder
from clew.methods.features.feature.feature_facts import Place
from clew.methods.features.features import Latents, latents
from clew.methods.features.seen_states import Seen, places_of
from clew.methods.features.steered_behaviour import Inside, states_at
from clew.methods.features.subjects import Prompt
from clew.models.taps.source import Source
from clew.store import Run

SEEN = 50_000  # rows of which a latent's figures are taken
LATENTS = 16  # times the width of a state, where no number is given
FEWEST = 1000  # tokens
Advance = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Feature:
    """A latent as it is told: number, shares of A, how often active, contexts (text before, token, cursor).

    whose: "A" or "B" where that model alone has it, else "both". places: where the contexts are, and more of them.
    """

    latent: int
    share: float
    fitted: float
    often: float
    high: float
    contexts: tuple[tuple[str, str, str], ...]
    whose: str = "both"
    places: tuple[Place, ...] = ()


class Comparison:
    """Two models, a layer, and runs whose tokens both read.

    Args:
        a, b: local weights of one tokenizer: the trained model, and the one it was trained from.
        layer: counted from 0; the middle one where not given.
        how: of the crosscoder; ``latents`` 0 takes 16 times the width.
        most: tokens that are read at most.
        folder: where everything goes; below it a folder named by what is compared.

    Raises:
        BadInput: the models do not fit each other, see ``check_pair``; the runs hold too few tokens.
    """

    def __init__(
        self, a: Model, b: Model, runs: Sequence[Run], how: learning.Learning, folder: Path, *,
        layer: int | None = None, most: int = 200_000,
    ) -> None:  # fmt: skip
        self.a, self.b, self.runs, self.most = a, b, runs, most
        self.layer = mixture.check_pair(a, b, layer)
        config: Any = getattr(a, "_config")  # noqa: B009 - a power of local weights, checked above
        self.width = int(config.hidden_size)
        self.how = how if how.latents else replace(how, latents=LATENTS * self.width)
        self.how.design(self.width)
        self.given: list[tuple[Source, int]] = mixture.sources(runs)
        self.tokens = min(most, sum(max(0, len(source.ids) - start) for source, start in self.given))
        if self.tokens < FEWEST:
            raise BadInput(
                f"these runs hold {self.tokens} tokens, and a crosscoder needs {FEWEST:,} or more",
                remedy="Choose more runs, or record some with `clew run`.",
            )
        weights = [_digest(model) for model in (a, b)]
        rows = [[source.run, source.seq, len(source.ids)] for source, _ in self.given]
        of = value_digest([*weights, self.layer, rows, most, how.seed]).hex()
        self.about = {"a": a.ref, "b": b.ref, "weights": weights, "layer": self.layer, "mixture": of}
        self.label = value_digest([of, asdict(self.how)]).hex()[:8]
        self.states, self.folder = folder / f"states-{of[:8]}", folder / self.label

    def read(self, advance: Advance = lambda done, total: None) -> mixture.Mixture:
        """The states of both models."""
        return mixture.collect(
            self.a, self.b, self.given, self.layer, self.states, most=self.most, seed=self.how.seed, advance=advance
        )

    def fitted(self) -> Crosscoder | None:
        """The crosscoder from its folder, None where it is not there.

        Raises:
            BadInput: the folder holds one of other weights, runs or another layer.
        """
        place = self.folder / "crosscoder"
        if not checkpoint.exists(place):
            return None
        module, about = crosscoder_files.load(place)
        if about != self.about:
            told = f"{place} holds a crosscoder of other weights, runs or another layer"
            raise BadInput(told, remedy="Remove the folder, or give another one.")
        return module

    def fit(self, mixed: mixture.Mixture, on_step: Callable[[Step], None] = lambda step: None) -> Crosscoder:
        """The crosscoder, from its folder where it was fitted before."""
        if (known := self.fitted()) is not None:
            return known
        going = self.folder / "fit"
        shutil.rmtree(self.folder / "seen", ignore_errors=True)  # of a crosscoder that somebody removed
        held = mixed.take(mixed.held[:4096])
        module = learning.learn(
            mixed.draw, self.width, self.how, about=self.about, going=going, on_step=on_step, held_out=held
        )
        crosscoder_files.unit_norms(module)
        crosscoder_files.save(module.eval(), self.folder / "crosscoder", self.about)
        shutil.rmtree(going, ignore_errors=True)
        return module

    def seen(self, mixed: mixture.Mixture, module: Crosscoder) -> Seen:
        """Figures of the latents and a sample of the states, written beside the crosscoder: what is kept of the states
        once they are removed."""
        rng = np.random.default_rng(self.how.seed)
        rows = np.concatenate([mixed.train, mixed.held])
        rows = np.sort(rng.permutation(rows)[:SEEN])
        sample = mixed.take(np.sort(rng.permutation(rows)[:8192]))
        left = module.unexplained(module.scaled(mixed.take(mixed.held[:8192])))
        found = Seen(latents(module, mixed.portions(rows)), places_of(mixed.a.index[rows]), sample, left)
        seen_states.save(found, self.folder / "seen")
        return found

    def known(self) -> tuple[Crosscoder, Seen] | None:
        """The crosscoder with what is kept of its states; None where the states must be read for it."""
        module = self.fitted()
        seen = None if module is None else seen_states.load(self.folder / "seen", module.design.latents)
        return None if module is None or seen is None else (module, seen)

    @property
    def size(self) -> int:
        """Bytes that the states of both models take while the crosscoder is fitted."""
        return 2 * self.tokens * (2 * self.width + 4)

    def forget(self) -> None:
        """Remove the states; what is wanted later is read again. Interrupted, it leaves no half of a reading."""
        for name in ("a", "b"):
            (self.states / name / "taps.json").unlink(missing_ok=True)
        shutil.rmtree(self.states, ignore_errors=True)

    def inside(self, seen: Seen, module: Crosscoder, prompts: Sequence[Prompt]) -> Inside:
        """What arms need: the latents' figures, and the states at the last token of some prompts."""
        states = states_at([self.a, self.b], [p.ids for p in prompts], self.layer) if prompts else seen.sample[:0]
        a, b = (getattr(model, "module") for model in (self.a, self.b))  # noqa: B009 - a power of local weights
        changed = directions.change(a, b, self.layer, self.width) if prompts else None
        return Inside(module, seen.latents, self.layer, states, seen.sample, changed)

    def feature(self, seen: Seen, latent: int, contexts: int = 6) -> Feature:
        """A latent with the places in the runs where it is most active."""
        word, found = mixture.words_of(self.a), seen.latents
        told, places = list[tuple[str, str, str]](), list[Place]()
        for row, value in zip(found.rows[latent].tolist(), found.values[latent].tolist(), strict=True):
            number, position, token = seen.places[row].tolist()
            source = self.given[number][0]
            if value > 0 and source.run:
                places.append(Place(source.run, source.seq, position, token, value))
            if value > 0 and len(told) < contexts:
                cursor = Cursor(source.run, source.seq, max(0, token)) if source.run else Cursor("", number, position)
                told.append((*mixture.around(source, position, word), str(cursor)))
        share, fitted, often, high = (float(x[latent]) for x in (found.share, found.fitted, found.often, found.high))
        whose = "A" if found.alone(0)[latent] else "B" if found.alone(1)[latent] else "both"
        return Feature(latent, share, fitted, often, high, tuple(told), whose, tuple(places))


def shown(found: Latents, most: int) -> dict[str, list[int]]:
    """The latents of A alone and of B alone that are told, the clearest and most frequent first."""
    weight = found.often * found.high.square()
    out = {}
    for name, model in (("A", 0), ("B", 1)):
        which = found.alone(model).nonzero().flatten()
        out[name] = which[weight[which].argsort(descending=True)].tolist()[:most]
    return out


def _digest(model: Model) -> str:
    digest = getattr(model, "digest", None)
    return str(digest()) if callable(digest) else model.ref
