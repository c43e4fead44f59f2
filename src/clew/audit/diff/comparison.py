"""From two folders of weights and some runs to a crosscoder and its features: read, fit, look; each step is resumed.

``clew audit diff`` calls it, and a program may. All that it makes lies in one folder: the states of both models, the
checkpoints of the fit, the crosscoder. It must never take up what was made of other weights, runs or settings.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from clew.audit.diff import crosscoder_files, learning, mixture
from clew.audit.diff.crosscoder import Crosscoder
from clew.audit.diff.feature_facts import Place
from clew.audit.diff.features import Latents, latents
from clew.audit.diff.steered_behaviour import Inside, states_at
from clew.audit.diff.subjects import Prompt
from clew.core.errors import BadInput
from clew.core.keys import value_digest
from clew.core.protocols import Model
from clew.fit import checkpoint
from clew.fit.small import Step
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

    def fit(self, mixed: mixture.Mixture, on_step: Callable[[Step], None] = lambda step: None) -> Crosscoder:
        """The crosscoder, from its folder where it was fitted before."""
        place, going = self.folder / "crosscoder", self.folder / "fit"
        if checkpoint.exists(place):
            module, about = crosscoder_files.load(place)
            if about != self.about:
                told = f"{place} holds a crosscoder of other weights, runs or another layer"
                raise BadInput(told, remedy="Remove the folder, or give another one.")
            return module
        held = mixed.take(mixed.held[:4096])
        module = learning.learn(
            mixed.draw, self.width, self.how, about=self.about, going=going, on_step=on_step, held_out=held
        )
        crosscoder_files.unit_norms(module)
        crosscoder_files.save(module.eval(), place, self.about)
        shutil.rmtree(going, ignore_errors=True)
        return module

    def inside(
        self, mixed: mixture.Mixture, module: Crosscoder, prompts: Sequence[Prompt]
    ) -> tuple[Inside, np.ndarray]:
        """Figures of the latents, and the states at some prompts; with the rows that the figures were taken of."""
        rng = np.random.default_rng(self.how.seed)
        rows = np.concatenate([mixed.train, mixed.held])
        rows = np.sort(rng.permutation(rows)[:SEEN])
        sample = mixed.take(np.sort(rng.permutation(rows)[:8192]))
        found: Latents = latents(module, mixed.portions(rows))
        states = states_at([self.a, self.b], [p.ids for p in prompts], self.layer) if prompts else sample[:0]
        return Inside(module, found, self.layer, states, sample), rows

    def feature(
        self, mixed: mixture.Mixture, found: Latents, rows: np.ndarray, latent: int, contexts: int = 6
    ) -> Feature:
        """A latent with the places in the runs where it is most active."""
        word = mixture.words_of(self.a)
        told, places = list[tuple[str, str, str]](), list[Place]()
        for place, value in zip(found.rows[latent].tolist(), found.values[latent].tolist(), strict=True):
            row = int(rows[place])
            if value > 0:
                source, position, token = mixed.a.index[row].tolist()
                run, seq = mixed.a.sources[source]
                places.append(Place(run, seq, position, token, value))
            if value > 0 and len(told) < contexts:
                told.append((*mixed.around(row, word), str(mixed.a.cursor(row))))
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
