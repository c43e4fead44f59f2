"""E175: planted features, pairs whose truth is known, committed lines that are cells, and marks that can fail."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from papers.E175_crosscoder import organisms, report_activations, report_pairs, tier_activations, tier_pairs
from papers.E175_crosscoder.activations import OWN, SHARED, plant, recovered
from papers.experiment import Experiment, load
from papers.stats import Results

pytestmark = pytest.mark.whole

E175 = Experiment.find("E175")
RESULTS = E175.here / "results"


@pytest.mark.parametrize(
    ("name", "tier", "report"),
    [("activations", tier_activations, report_activations), ("pairs", tier_pairs, report_pairs)],
)
def test_committed_lines_are_cells_and_their_report_comes_out_again(name, tier, report):
    lines = load(RESULTS / f"{name}.jsonl")
    assert lines
    assert {E175.key(line) for line in lines} <= {E175.key(cell) for cell in tier.cells(False)}
    assert report.report(lines) == (RESULTS / f"summary_{name}.md").read_text()


def test_a_mark_of_layer_0_can_fail():
    lines = load(RESULTS / "activations.jsonl")
    assert all(m.met for m in report_activations.marks(Results(lines)) if "re-seated" in m.promise)
    worse = [line | ({"recall": 0.1} if line["method"].startswith("reseated") else {}) for line in lines]
    assert not all(m.met for m in report_activations.marks(Results(worse)) if "re-seated" in m.promise)


def test_planted_features_are_where_they_are_said_to_be():
    made = plant(5, often=0.05, cosine=0.97)
    first, second = made.directions[:, :SHARED]
    assert np.allclose((first * second).sum(1), 0.97, atol=1e-5)
    assert not made.directions[1, SHARED : SHARED + OWN].any()
    assert recovered(made.own(0), made.own(0)) == (1.0, 0.0)
    assert recovered(torch.empty(0, 48), made.own(0)) == (0.0, 0.0)


def test_what_the_pairs_decide_is_what_is_planted():
    language = organisms.Language(organisms.small(organisms.WORDS, 48, 3, 4, 2, context=32))
    rows = language.draw(np.random.default_rng(0), 4000)
    for kind, low, high in (("R", 0.4, 0.6), ("N", 0.4, 0.6), ("Z", -1, 0)):
        call = organisms.calls(np.random.default_rng(1), rows, kind)
        assert low < call[rows.tool].mean() <= high
        assert not call[~rows.tool].any()
    told = language.answered(rows, organisms.calls(np.random.default_rng(1), rows, "N"))
    assert told.shape == (4000, 11)
    assert (told[:, -1] == language.end).all()
