"""Questions as short vectors: the hashed n-grams that a served router reads, projected on their main directions.

The policies of ``clew.route`` learn in this space. It is linear, so that a head learnt in it is one over the
n-grams themselves (``unfold``), which is what ``clew.models.compose.router`` serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clew.core.errors import need
from clew.models.compose.ngrams import Ngrams
from clew.route.reward_matrix import F64

WIDTH = 128  # most directions; a quarter of the questions where that is less


def vectors(texts: Sequence[str], features: Ngrams | None = None) -> F64:
    """Each transcript as a router reads it, float64 [Q, dim]; the first number is a constant."""
    read = features or Ngrams()
    made = {text: read(text) for text in dict.fromkeys(texts)}
    return np.array([made[text] for text in texts], np.float64)


class Space(NamedTuple):
    """A projection learnt on some questions: ``basis`` is float64 [width, dim - 1], ``scale`` makes its rows even."""

    basis: F64
    scale: float

    @classmethod
    def of(cls, h: F64, seed: int = 0, most: int = WIDTH) -> Space:
        """The main directions of ``h``, float64 [Q, dim], by a truncated singular value decomposition; at most so
        many."""
        decomposition = need("sklearn.decomposition", "probes")
        width = max(1, min(most, len(h) // 4, h.shape[1] - 2))
        found = decomposition.TruncatedSVD(width, n_iter=2, random_state=seed).fit(h[:, 1:])
        basis = np.asarray(found.components_, np.float64)
        spread = float(np.sqrt(((h[:, 1:] @ basis.T) ** 2).sum(1).mean())) or 1.0
        return cls(basis, 1 / spread)

    def __call__(self, h: F64) -> F64:
        """Questions in the space, float64 [Q, width]; their mean square length is 1."""
        placed: F64 = (h[:, 1:] @ self.basis.T) * self.scale
        return placed

    def unfold(self, weights: F64, bias: F64, constant: float) -> F64:
        """A head in the space as one over n-grams, float64 [W, dim].

        Args:
            weights: float64 [W, width]. bias: float64 [W]. constant: the first number of a question's vector.
        """
        return np.concatenate([(bias / constant)[:, None], (weights @ self.basis) * self.scale], axis=1)
