"""Planted failures of clew audit diff: signs that read the wrong way, and verdicts where no rate could have moved."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="did not run: torch is not installed")

import torch

from clew.methods.features import steered_behaviour, without_features
from clew.methods.features.diff_verdict import Finding, Tried, picked, settle
from clew.methods.features.steered_behaviour import ask, causal_share
from clew.methods.features.steering import Cell, Direction, Effect, Trial


def of(share: float, n: int = 40) -> np.ndarray:
    return (np.arange(n) < round(share * n)).astype(np.float32)


class Rates:
    """A subject with a fixed rate for each model, and one for each model that something is written into."""

    def __init__(self, plain: dict[str, float], written: dict[str, float] | None = None, n: int = 120) -> None:
        self.plain, self.written, self.prompts = plain, written or plain, [None] * n
        self.single, self.models = False, {}

    def outcomes(self, who, stage, which, taps=()):
        return of((self.written if len(taps) else self.plain)[who], len(which))


def tried(arm: float, clean: float, sign: int, part: str = "shared") -> Tried:
    effect = Effect("feature 17", of(arm), of(clean), sign)
    drawn = [Effect("r", np.roll(of(clean), 0), of(clean), sign) for _ in range(50)]
    return Tried(part, Cell(Direction("feature 17", torch.ones(2), latent=17), 1.0, effect), effect, drawn)


def told_lines(way: str, arm: float, clean: float, told: float, base: float) -> dict[str, float]:
    sign = -1 if way == "remove" else 1
    found = Finding("does /open/", tried={"shared": tried(arm, clean, sign)})
    trial = Trial(Rates({"A": clean, "B": base}), 0, way, np.arange(40), np.arange(40, 80))
    without_features.told_so(found, trial, Rates({"A": clean, "B": told}))
    lines = [*found.claims, *picked(found), *found.lines]
    return {line.about: round(line.report.estimate, 3) for line in lines}


def test_taken_away_less_b_told_so_has_the_sign_that_it_says():
    """A still does it at .6 with the feature taken away, B told so never: .6 less 0 is +.6."""
    lines = told_lines("remove", arm=0.6, clean=1.0, told=0.0, base=0.0)
    assert lines["A with feature 17 taken away, less B told so"] == 0.6
    assert lines["shared: feature 17 taken away"] == -0.4, "a fall is negative"
    assert lines["B told so, less B"] == 0.0


def test_written_less_b_told_so_is_as_it_was():
    lines = told_lines("raise", arm=0.5, clean=0.0, told=1.0, base=0.0)
    assert lines["A with feature 17, less B told so"] == -0.5
    assert lines["shared: feature 17 x 1"] == 0.5
    assert lines["B told so, less B"] == 1.0


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        (Effect("a", of(0.2), of(1.0), -1), Effect("b", of(0.0), of(0.0), -1), "no causal share: B's rate of 0.00"),
        (Effect("a", of(1.0), of(0.2)), Effect("b", of(1.0), of(1.0)), "no causal share: B's rate of 1.00"),
        (Effect("a", of(0.2), of(0.2)), Effect("b", of(0.1), of(0.1)), "no causal share: it moves neither"),
        (Effect("a", of(0.8), of(0.2)), Effect("b", of(0.4), of(0.2)), "causal share 0.75"),  # the truth
    ],
)
def test_acausal_share_needs_a_rate_in_b_that_could_move(ours, theirs, told):
    assert causal_share(ours, theirs).startswith(told)


@pytest.mark.parametrize(
    ("rates", "told"),
    [
        ({"A": 0.0, "B": 0.0}, "neither A nor B shows the behaviour (does /opne/) at any of 120 prompts"),
        ({"A": 1.0, "B": 1.0}, "A had no room to do it oftener"),
        ({"A": 0.5, "B": 0.95}, "A had no room to do it oftener"),
    ],
)
def test_what_training_added_is_not_told_at_a_floor_or_a_ceiling(rates, told):
    found = ask(Rates(rates), None, steered_behaviour.Plan(), "does /opne/")
    assert found.kind == "cannot tell"
    assert found.text.startswith("not tested: ")
    assert told in found.text


def test_no_feature_tried_and_no_room_are_no_verdict_of_nothing():
    none = Finding("does /open/")
    settle(none, True)
    assert (none.kind, none.text[:12]) == ("cannot tell", "not tested: ")
    stuck = Finding("does /open/", tried={"shared": tried(0.02, 0.02, -1)})
    settle(stuck, True)
    assert (stuck.kind, stuck.text[:12]) == ("cannot tell", "not tested: ")
    assert stuck.comparisons().json()["could_differ"] == 0


def test_truth_a_feature_that_makes_it_and_one_that_does_nothing_are_still_told():
    made = Finding("does /open/", tried={"shared": tried(0.1, 0.9, -1)})
    settle(made, True)
    assert made.kind == "shared"
    assert made.text.startswith("feature 17 taken away, which both models have, moves it by -0.80")
    assert made.verdict().estimate < 0
    idle = Finding("does /open/", tried={"shared": tried(0.5, 0.5, 1)})
    settle(idle, True)
    assert idle.kind == "nothing"
    assert idle.comparisons().tested
