"""States of two models whose features are known: shared ones, turned a little between the models, and planted ones that
one model alone has (specs/E175, sections 6 and 9, layer 0)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

WIDTH, SHARED, OWN = 48, 120, 8
USUAL = 0.03  # how often a shared feature is there


class Planted(NamedTuple):
    """directions: unit vectors [2, features, WIDTH]; of A's own features B's are 0, and the other way round. Features
    come as shared, A's own, B's own. often: how often each is there, [features]."""

    directions: np.ndarray
    often: np.ndarray

    def draw(self, rng: np.random.Generator, n: int) -> Tensor:
        """States [n, 2, WIDTH]: sums of the features that are there, each with a size from 1 to 2, and noise of .01."""
        there = rng.random((n, len(self.often)), np.float32) < self.often
        size = there * (1 + rng.random(there.shape, np.float32))
        states = np.einsum("nf,mfd->nmd", size.astype(np.float32), self.directions)
        return torch.from_numpy(states + 0.01 * rng.standard_normal(states.shape, np.float32))

    def held(self, seed: int, n: int = 1 << 17) -> Callable[[np.random.Generator, int], Tensor]:
        """Gives random rows out of ``n`` that are drawn once."""
        states = self.draw(np.random.default_rng([175, seed, 1]), n)
        return lambda rng, count: states[torch.from_numpy(rng.integers(0, n, count))]

    def own(self, model: int) -> Tensor:
        """The planted directions of one model alone, [OWN, WIDTH]."""
        first = SHARED + model * OWN
        return torch.from_numpy(self.directions[model, first : first + OWN])


def plant(seed: int, often: float = 0.03, cosine: float = 0.97) -> Planted:
    """Features of a seed.

    Args:
        often: how often a planted feature of one model is there. cosine: between the two directions of a shared one.
    """
    rng = np.random.default_rng([175, seed])
    count = SHARED + 2 * OWN
    first = _unit(rng.standard_normal((count, WIDTH)))
    aside = rng.standard_normal((count, WIDTH))
    aside = _unit(aside - (aside * first).sum(1, keepdims=True) * first)
    second = cosine * first + (1 - cosine**2) ** 0.5 * aside
    directions = np.stack([first, second]).astype(np.float32)
    directions[1, SHARED : SHARED + OWN] = 0
    directions[0, SHARED + OWN :] = 0
    rate = np.full(count, USUAL)
    rate[SHARED:] = often
    return Planted(directions, rate)


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def recovered(found: Tensor, truth: Tensor, least: float = 0.8) -> tuple[float, float]:
    """Share of planted directions [n, WIDTH] that some direction called exclusive has a cosine of ``least`` with, and
    the share of those called exclusive that have it with none (0 where none is called so)."""
    if not len(found):
        return 0.0, 0.0
    cosine = (found / found.norm(dim=1, keepdim=True).clamp(min=1e-12)) @ truth.t()
    return float((cosine.max(0).values >= least).float().mean()), float((cosine.max(1).values < least).float().mean())
