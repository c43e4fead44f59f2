"""Estimators over plain arrays say what they say of stored groups, whatever the order in which runs stand."""

from __future__ import annotations

import random

import numpy as np
import pytest

import clew
from clew.core.errors import BadInput
from clew.credit.arrays import ESTIMATORS, of_arrays
from clew.credit.steps import steps
from clew.models.fakes import Scripted


@pytest.fixture(scope="module")
def groups():
    world = clew.taskset("counter(low=2, high=3)")
    model = Scripted({"": lambda request: random.Random(request.seed).choice(["up", "up", "up", "down", "stop"])})
    return clew.Runner("player", world, model).collect(world.sample(3), n=8)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_equal_to_the_estimator_of_stored_runs(groups, name):
    stored = getattr(clew.credit, name)(groups, store=False)
    wanted = np.where(stored.diagnostics.present, stored.value, np.nan)
    columns = steps(groups)
    ends = {int(r): int(columns.next[i]) for i, r in enumerate(columns.run) if columns.last[i] and columns.next[i] >= 0}
    rows = np.argsort(columns.t, kind="stable")  # the runs stand mixed, each in order of time
    found = of_arrays(
        name,
        columns.state[rows].tolist(),
        columns.action[rows].tolist(),
        columns.reward[rows],
        columns.group[rows].tolist(),
        columns.run[rows].tolist(),
        ends=ends,
        valid=columns.valid[rows].tolist(),
    )
    assert np.isfinite(found).any()
    np.testing.assert_allclose(found, wanted[rows], rtol=1e-12, atol=1e-12)


def test_equal_returns_say_nothing_and_settings_are_taken():
    two = {"states": "abab", "actions": "xyxz", "group": [0] * 4, "run": [0, 0, 1, 1]}
    assert np.isnan(of_arrays("grpo", rewards=[0, 1, 0, 1], **two)).all()
    told = [of_arrays(f"g2po(gamma={gamma})", rewards=[0, 1, 0, 0], **two) for gamma in (0.5, 1.0)]
    assert not np.allclose(*told)


def test_bad_columns_are_named():
    good = {"states": "ab", "actions": None, "rewards": [0, 1], "group": [0, 0], "run": [0, 0]}
    assert len(of_arrays("grpo", **good)) == 2
    for bad, told in (
        ({"rewards": [1]}, "rewards has 1 rows"),
        ({"group": [0, 1]}, "stands in the groups"),
        ({"rewards": [0, float("nan")]}, "not|nan"),
    ):
        with pytest.raises(BadInput, match=told):
            of_arrays("grpo", **{**good, **bad})
    for method in ("gpro", "grpo(gamma=1)", "grpo(", "hgpo(history=-1)"):
        with pytest.raises(BadInput):
            of_arrays(method, **good)
