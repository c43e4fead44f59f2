"""E171's experiment: organisms whose answers come about as planted, committed reports, marks that can fail."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

pytest.importorskip("sklearn", reason="did not run: scikit-learn is not installed")

from papers.E171_early import organisms as o
from papers.E171_early import (
    report_matched,
    report_organisms,
    report_planted,
    tier_matched,
    tier_organisms,
    tier_planted,
)
from papers.experiment import Experiment, load

pytestmark = pytest.mark.whole

E171 = Experiment.find("E171")
RESULTS = E171.here / "results"


def committed(name: str) -> list[dict]:
    lines = load(RESULTS / f"{name}.jsonl")
    if not lines:
        pytest.skip(f"did not run: no committed results of tier {name}")
    return lines


REPORTS = [("planted", report_planted), ("organisms", report_organisms), ("matched", report_matched)]


@pytest.mark.parametrize(("name", "report"), REPORTS)
def test_committed_reports_are_what_their_lines_give(name, report):
    lines = committed(name)
    known = {E171.key(cell) for cell in E171.tiers[name].cells(False)}
    assert {E171.key(line) for line in lines} <= known
    assert report.report(lines) == (RESULTS / f"summary_{name}.md").read_text()


def test_planted_cells_are_computed_as_committed():
    lines = {line["kind"]: line for line in committed("planted") if line["seed"] == 0}
    for kind in ("cuts", "votes"):
        made = tier_planted.run({"kind": kind}, [0])[0]
        assert {key: lines[kind][key] for key in made} == made


@pytest.mark.parametrize("kind", ["E", "L", "C50", "C12", "M", "F", "A"])
def test_an_organism_answers_as_it_is_planted_to(kind):
    world = o.Organism(kind, 6)
    rng = random.Random(0)
    follows, known = [], []
    for task in world.sample(300, seed=1):
        trace = world.think(task.prompt, rng)
        assert len(trace) == o.LENGTH
        assert set(trace) | set(task.prompt.split()) <= set(world.vocabulary())
        whole = world.answer(task.prompt, trace, rng)
        assert world.answer(task.prompt, trace, random.Random(1)) == whole, "a whole trace leaves nothing to chance"
        majority = int(sum(o.bits_of(task.prompt)) > o.BITS / 2)
        known.append(whole == majority)
        other = world.sample(1, seed=rng.randrange(10**6))[0].prompt
        if kind != "M":  # whose two kinds of prompt think in two ways
            follows.append(world.answer(other, trace, rng) == whole)
    expected = {"E": 1.0, "A": 1.0, "L": 0.5, "M": 0.75, "F": 0.925, "C50": 0.75, "C12": 0.94}[kind]
    assert sum(known) / 300 == pytest.approx(expected, abs=0.1)
    if kind in ("L", "C50", "C12", "A"):
        assert all(follows), "the answer is read off the thinking alone"
    elif follows:
        assert not all(follows)


def test_demonstrations_close_early_and_do_not_teach_it():
    world = o.Organism("L", 3)
    early = 0
    for _, [(_, reply)] in world.demonstrations(200, seed=0):
        words = reply.split()
        closed = words.index(o.ANSWER)
        early += closed < o.LENGTH
        assert world.unlearned(reply) == ([closed] if closed < o.LENGTH else [])
        if closed >= 3:
            assert words[-1] == o.SIDES[o.LEANS.index(words[2])]
    assert 60 < early < 140


def test_marks_can_fail():
    good = {
        "organism": "L", "tau": 3, "seed": 0, "verdict": "open until then", "h0": [0.5, 0.4, 0.6, 9],
        "swap": [1.0, 0.9, 1.0, 9], "flips": [[0.5] * 4] * 3 + [[0.01] * 4] * 10, "shuffled": [0.5, 0.4, 0.6, 9],
        "time": [0.25, 0.25, 0.25, 9],
    }  # fmt: skip
    assert all(mark.met for mark in [*report_organisms.of(good), *report_organisms.across([good])])
    bad = good | {"verdict": "decided at the prompt", "h0": [0.7] * 4, "swap": [0.5] * 4, "flips": [[0.2] * 4] * 13}
    bad |= {"shuffled": [0.6] * 4, "time": [0.75] * 4}
    assert not any(mark.met for mark in [*report_organisms.of(bad), *report_organisms.across([bad])])
    patched = {"none": [0, 50], "h0 0": [3, 50], "h0 1": [45, 50]}
    e, l_ = (good | {"organism": kind, "patched": patched} for kind in "EL")
    assert [mark.met for mark in report_organisms.causal([e, l_])] == [True, False]


def test_marks_of_runs_of_one_prompt_can_fail():
    late = {
        "organism": "L",
        "tau": 6,
        "seed": 0,
        "first matched": [0.5, 0.4, 0.6, 9],
        "last matched": [1.0, 1.0, 1.0, 9],
    }
    early = late | {"tau": 1, "first matched": [1.0, 1.0, 1.0, 9]}
    assert [mark.met for line in (late, early) for mark in report_matched.of(line)] == [True] * 4
    bad = {"first matched": [0.7, 0.65, 0.75, 9], "last matched": [0.5, 0.4, 0.6, 9]}
    assert [mark.met for line in (late | bad, early | bad) for mark in report_matched.of(line)] == [False] * 4
    assert tier_matched.mixed(np.array([True, False, True, True]), ["a", "a", "b", "b"]) == 1
    assert len(list(tier_matched.cells(False))) == 9


def test_every_organism_and_seed_is_a_cell():
    cells = list(tier_organisms.cells(False))
    assert {cell["organism"] for cell in cells} == {"E", "L", "C50", "C12", "M", "F", "A"}
    assert {cell["tau"] for cell in cells if cell["organism"] == "L"} == {3, 6, 9}
    assert {cell["seed"] for cell in cells} == {0, 1, 2}
