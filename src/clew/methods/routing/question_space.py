"""Questions as short vectors: the features that a served router reads, projected on their main directions.

The policies of ``clew.methods.routing`` learn in this space. It is linear, so that a head learnt in it is one over the
features themselves (``unfold``), which is what ``clew.models.compose.router`` serves. Features are hashed n-grams, or
hidden states of a backbone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clew.core.errors import need
from clew.methods.routing.reward_matrix import F64
from clew.models.compose.backbone import Backbone
from clew.models.compose.ngrams import Ngrams
from clew.models.compose.router import Features

WIDTH = 128  # most directions; a quarter of the questions where that is less


def vectors(
    texts: Sequence[str],
    features: Features | None = None,
    folder: Path | None = None,
    told: Callable[[int, int], None] = lambda done, total: None,
) -> F64:
    """Each transcript as a router reads it, float64 [Q, dim]; the first number is a constant.

    Args:
        features: default: n-grams. folder: where the states of a backbone are kept, which passes each text once.
        told: called with the texts that are read, and of how many, where that takes long.
    """
    read = features or Ngrams()
    if isinstance(read, Backbone):
        return read.many(texts, folder, told).astype(np.float64)
    made = {text: read(text) for text in dict.fromkeys(texts)}
    return np.array([made[text] for text in texts], np.float64)


class Space(NamedTuple):
    """A projection learnt on some questions.

    basis: float64 [width, dim - 1]. scale: makes its rows even. middle: float64 [dim - 1], taken from a vector first;
    None for 0.
    """

    basis: F64
    scale: float
    middle: F64 | None = None

    @classmethod
    def of(cls, h: F64, seed: int = 0, most: int = WIDTH, centred: bool = False) -> Space:
        """The main directions of ``h``, float64 [Q, dim], by a truncated singular value decomposition; at most so
        many.

        Args:
            centred: take the mean of ``h`` away first, and divide each direction by the root of its spread. Hidden
                states of a model lie about a point far from 0, and few directions hold nearly all of their variance.
        """
        decomposition = need("sklearn.decomposition", "probes")
        width = max(1, min(most, len(h) // 4, h.shape[1] - 2))
        middle = h[:, 1:].mean(0) if centred else None
        x = h[:, 1:] if middle is None else h[:, 1:] - middle
        found = decomposition.TruncatedSVD(width, n_iter=2, random_state=seed).fit(x)
        basis = np.asarray(found.components_, np.float64)
        if centred:
            each = (x @ basis.T).std(0)
            basis = basis / np.sqrt(np.maximum(each, 1e-6 * max(float(each.max()), 1e-12)))[:, None]
        spread = float(np.sqrt(((x @ basis.T) ** 2).sum(1).mean())) or 1.0
        return cls(basis, 1 / spread, middle)

    def __call__(self, h: F64) -> F64:
        """Questions in the space, float64 [Q, width]; their mean square length is 1."""
        x = h[:, 1:] if self.middle is None else h[:, 1:] - self.middle
        placed: F64 = (x @ self.basis.T) * self.scale
        return placed

    def unfold(self, weights: F64, bias: F64, constant: float) -> F64:
        """A head in the space as one over the features, float64 [W, dim].

        Args:
            weights: float64 [W, width]. bias: float64 [W]. constant: the first number of a question's vector.
        """
        over = (weights @ self.basis) * self.scale
        if self.middle is not None:
            bias = bias - over @ self.middle
        return np.concatenate([(bias / constant)[:, None], over], axis=1)
