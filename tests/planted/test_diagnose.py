"""Planted failures of `diagnose`: places whose confidence is not known are told without one, and never as sure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clew.core.errors import BadInput
from clew.methods.diagnose.confidence import Calibration, fit, policy
from clew.methods.diagnose.finding import Finding, markdown, with_first
from clew.methods.diagnose.localise import localise
from tests.coding.shop import REPORT, make

SURE = Calibration((0.0,) * 5, 3.0, 0.7, 100, "planted")  # .95 of any place


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    return make(tmp_path_factory.mktemp("shop"), history=2)


def places(*confidences: float | None) -> list[Finding]:
    return [Finding(f"f{k}.py", 1, 2, "there", "", "", (), "none", confidence=c) for k, c in enumerate(confidences)]


def test_a_calibration_of_first_places_says_nothing_of_the_second(shop):
    found = localise(str(shop), REPORT, calibration=SURE, n=3).findings
    assert len(found) == 3
    assert [f.confidence for f in found] == [pytest.approx(0.953, abs=1e-3), None, None]
    assert "confidence" not in found[1].json()
    assert "confidence not calibrated" in markdown(found)


def test_what_a_model_says_of_its_own_sureness_is_not_printed_as_calibrated():
    found = with_first(places(0.2, 0.99, 1.0), 0.4)
    assert [f.confidence for f in found] == [0.4, None, None]


def test_a_strong_agent_is_not_told_an_uncalibrated_place_as_sure():
    assert policy("strong", SURE).full([0.9, None, None]) == [True, False, False]
    assert policy("weak", SURE).full([0.9, None, None]) == [True, True, True]


@pytest.mark.parametrize("right", [np.ones(30, bool), np.zeros(30, bool)])
def test_past_fixes_that_are_all_alike_calibrate_nothing(right):
    with pytest.raises(BadInput, match="too few, or all alike"):
        fit(np.random.default_rng(0).random((30, 5)), right, "planted")


def test_a_handful_of_past_fixes_calibrates_nothing():
    with pytest.raises(BadInput, match="too few"):
        fit(np.random.default_rng(0).random((19, 5)), np.arange(19) % 2 == 0, "planted")


def test_a_planted_confidence_is_still_found_and_told():
    rng = np.random.default_rng(1)
    x = rng.random((400, 5))
    learnt = fit(x, rng.random(400) < 1 / (1 + np.exp(-(6 * x[:, 0] - 3))), "planted")
    assert learnt(np.array([1.0, 0.5, 0.5, 0.5, 0.5])) > 0.85
    assert learnt(np.array([0.0, 0.5, 0.5, 0.5, 0.5])) < 0.15
    assert "confidence 0.40" in markdown(with_first(places(None, None), 0.4))
