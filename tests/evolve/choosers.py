"""Choices of made-up people who follow a rule, for the tests of theories."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Sample(NamedTuple):
    a: np.ndarray
    b: np.ndarray
    validities: np.ndarray
    subject: np.ndarray
    chose_b: np.ndarray


def choices(rule, seed, *, validities=(0.95, 0.8, 0.7, 0.6), people=40, pairs=8, each=6, top=1, **parameters):
    """Choices of people who all follow a rule with these parameters: each sees every pair so many times."""
    rng, k = np.random.default_rng(seed), len(validities)
    a, b = (rng.integers(0, top + 1, (pairs, k)).astype(float) for _ in range(2))
    b[:, 0], a[:, 0] = np.where((a == b).all(1), top - a[:, 0], b[:, 0]), a[:, 0]
    order = np.concatenate([rng.permutation(np.repeat(np.arange(pairs), each)) for _ in range(people)])
    subject, v = np.repeat(np.arange(people), pairs * each), np.array(validities)
    blank = Sample(a[order], b[order], v, subject, np.zeros(len(order), np.int64))
    said = rule.predict(parameters, blank)
    return blank._replace(chose_b=(rng.random(len(said)) < said).astype(np.int64))
