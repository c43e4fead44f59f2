"""Rows that begin alike: scored as if each stood alone, with fewer tokens through the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="did not run: torch is not installed")
from clew.models.local import shared_prefix, small


@pytest.fixture(scope="module")
def model() -> Any:
    made = small([str(i) for i in range(50)], d=16, layers=2, heads=2, kv_heads=1)
    yield made
    made.close()


def rows(seed: int = 0) -> list[list[int]]:
    """Forks of two long runs at several places, one of them a bare prefix, and rows of their own."""
    rng = np.random.default_rng(seed)
    trunk, other = (rng.integers(7, 57, 400).tolist() for _ in range(2))
    forks = [trunk[:k] + rng.integers(7, 57, n).tolist() for k, n in ((300, 80), (360, 3), (240, 120))]
    alone = [rng.integers(7, 57, n).tolist() for n in (1, 2, 90)]
    found = [*forks, trunk, trunk[:340], other, other[:399], *alone]
    return [found[i] for i in rng.permutation(len(found))]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_scores_are_those_of_single_rows(model: Any, temperature: float) -> None:
    ids = rows()
    for row, other in zip(ids, model.score(ids, temperature), strict=True):
        assert other.shape == (len(row) - 1,)
        assert other.dtype == np.float32
        np.testing.assert_allclose(model.score([row], temperature)[0], other, atol=2e-5)


def test_what_is_shared_passes_once(model: Any) -> None:
    ids, passed, forward = [row for row in rows() if len(row) > 200], list[int](), model.module.forward
    model.module.forward = lambda *a, **k: passed.append(k["input_ids"].numel()) or forward(*a, **k)
    try:
        model.score(ids)
    finally:
        model.module.forward = forward
    assert sum(passed) < 0.8 * sum(map(len, ids))


def test_clusters_are_disjoint_begin_alike_and_pay() -> None:
    ids = rows(1)
    found = shared_prefix.clusters(ids, 100)
    members = [i for cluster in found for i in cluster.rows]
    assert len(found) >= 2
    assert len(members) == len(set(members))
    for group, shared in found:
        assert len({tuple(ids[i][:shared]) for i in group}) == 1
        assert all(shared < len(ids[i]) <= 2 * shared for i in group)
        assert (len(group) - 1) * shared >= 100
    assert shared_prefix.clusters(ids, 10**6) == []
    assert shared_prefix.clusters([[1], [1], []]) == []
