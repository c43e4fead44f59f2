"""Whether singular-value scales of a backbone make a better router, on questions that neither of the two has seen.

``clew route fit --scales`` calls it: scales are trained anew for each fold of the contest, and once on all questions.
What is served is fitted by ``fit_router`` over the scaled backbone. It must never judge scales by their own questions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clew.core.keys import value_digest
from clew.methods.routing import soft_targets
from clew.methods.routing.contest import Read
from clew.methods.routing.question_space import Space
from clew.methods.routing.reward_matrix import F64, Index, Matrix
from clew.models.compose.backbone import Backbone, Scales

if TYPE_CHECKING:
    from clew.fit.scaled_head import Rates, Tail

KEPT = "offsets.npy"


@dataclass(slots=True)
class Scaling:
    """Scales of one backbone, trained on parts of a measured pool.

    Args:
        found: the pool. backbone: without scales. h: vectors of the questions by it, float64 [Q, dim]. folder: where
            states and trainings are kept; a line that was cut goes on there. tau: temperature of soft targets. seed: of
            everything drawn. rates: of the training. told: called after each step of a training.
    """

    found: Matrix
    backbone: Backbone
    h: F64
    folder: Path
    tau: float = soft_targets.TAU
    seed: int = 0
    rates: Rates | None = None
    told: Callable[[], None] = lambda: None
    _tail: Tail | None = None

    def read_states(self, told: Callable[[int, int], None] = lambda done, total: None) -> Tail:
        """Read what enters the scaled block, once; gives the block."""
        from clew.fit.scaled_head import Tail

        if self._tail is None:
            self._tail = Tail(self.backbone, self.found.texts, self.folder / "entering", told)
        return self._tail

    def by(self, learn: Index) -> F64:
        """Vectors of all questions, float64 [Q, dim], with scales that were trained on ``learn`` alone."""
        scales = self.scales(learn)
        return self.read_states().features(scales) if scales else self.h

    @property
    def read(self) -> Read:
        """How a contest reads the questions with scales of each fold's own."""
        return Read(self.by, centred=True)

    def scaled(self) -> Backbone:
        """The backbone with scales trained on all questions."""
        return replace(self.backbone, scales=dict(self.scales(np.arange(len(self.found)))))

    def scales(self, learn: Index) -> Scales:
        """Offsets trained on these questions, of which a fifth says when to stop."""
        from clew.fit.scaled_head import Rates, Start, train

        tail, rates = self.read_states(), self.rates or Rates()
        named = value_digest([self.found.label, self.backbone.said(), learn.tobytes(), self.tau, self.seed, str(rates)])
        place = self.folder / f"training-{named.hex()[:12]}"
        if (kept := _kept(place, tail)) is not None:
            return kept
        means = self.found.means
        space = Space.of(self.h[learn], self.seed, centred=True)
        head = soft_targets.fit(space(self.h[learn]), means[learn], tau=self.tau, seed=self.seed)
        assert space.middle is not None
        start = Start(head.weights, head.bias, space.basis, space.scale, space.middle)
        stop = soft_targets.apart(len(learn), self.seed)
        how: Any = {"seed": self.seed, "folder": place / "checkpoint", "told": lambda step: self.told()}
        targets = soft_targets.targets(means, self.tau)
        found = train(tail, targets, means, learn[~stop], learn[stop], start, rates, **how)
        place.mkdir(parents=True, exist_ok=True)
        flat = [found.scales[name] for name in tail.names] if found.scales else []
        np.save(place / KEPT, np.concatenate([*flat, np.zeros(0)]).astype(np.float32))
        return found.scales


def _kept(place: Path, tail: Tail) -> Scales | None:
    """What a training that ended left: offsets by matrix, none where it found no better than none."""
    if not (place / KEPT).is_file():
        return None
    sizes = [min(tail.module.get_parameter(name).shape) for name in tail.names]
    flat = np.load(place / KEPT, allow_pickle=False)
    if flat.shape == (0,):
        return {}
    if flat.shape != (sum(sizes),):
        return None
    ends = np.cumsum([0, *sizes])
    return {name: flat[a:b] for name, a, b in zip(tail.names, ends, ends[1:], strict=False)}
