"""clew evolve theories: simulated people, a bank of one's own, a study that is only rehearsed, models, bad input."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from clew.methods.theories.choice_designs import random_design
from clew.methods.theories.choice_forms import KNOWN
from clew.methods.theories.simulated_people import simulate

pytest.importorskip("scipy", reason="did not run: fits need scipy")

FEW = ("--cycles", 2, "--asked", 8, "--designs", "blind")


def bank(path, name="take_the_worst", experiments=4):
    rng, lines = np.random.default_rng(1), []
    for number in range(experiments):
        trials = simulate(KNOWN[name], random_design(rng), 8, number)
        for a, b, who, chose in zip(trials.a, trials.b, trials.subject, trials.chose_b, strict=True):
            line = {"experiment": f"e{number}", "subject": int(who), "a": a.tolist(), "b": b.tolist()}
            lines.append(json.dumps(line | {"validities": trials.validities.tolist(), "chose_b": int(chose)}))
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


def test_a_planted_rule_is_found_and_the_same_line_goes_on(clew, tmp_path):
    line = ("evolve", "theories", "--people", "take_the_worst", *FEW, "--name", "worst")
    text = clew(*line).output
    assert "2 cycles, 4 designs, 8 people on each" in text
    assert "least valid cue" in text
    (after,) = [line.removeprefix("Next: clew ") for line in text.splitlines() if line.startswith("Next: ")]
    assert "least valid cue" in clew(*after.split()).output
    assert (tmp_path / "theories.html").is_file()
    folder = tmp_path / ".clew" / "evolve" / "worst"
    log = (folder / "theories.log").read_bytes()
    told = json.loads((folder / "verdict.json").read_text())
    assert told["best"]["aggregator"] == "worst"
    whole = log.splitlines(keepends=True)
    (folder / "theories.log").write_bytes(b"".join(whole[:3]) + whole[3][:40])
    again = json.loads(clew(*line, "--json").stdout)
    assert (folder / "theories.log").read_bytes() == log
    assert again["best"] == told["best"]
    assert again["verdict"][0] in text, "the sentences of the verdict, which a word of the theory once replaced"
    assert again["error"]["low"] < again["error"]["estimate"] < again["error"]["high"]
    assert again["error"]["n"] == again["designs"]
    assert "another search" in clew(*line, "--seed", 5, code=2).output


def test_a_bank_of_ones_own_is_drawn_from_once_each(clew, tmp_path):
    path = bank(tmp_path / "choices.jsonl.gz")
    told = json.loads(clew("evolve", "theories", "--bank", path, "--cycles", 3, "--json").stdout)
    assert told["designs"] == 4
    assert told["participants"] == 32
    assert told["best"]["aggregator"] == "worst"


def test_a_study_is_rehearsed_and_nothing_is_sent(clew, tmp_path, monkeypatch):
    monkeypatch.setenv("PROLIFIC_API_TOKEN", "very-secret-token")
    study = {
        "name": "Choices", "description": "Choose between two products.", "minutes": 10, "reward": 200, "places": 25,
        "url": "https://lab.example/?session={{%SESSION_ID%}}", "code": "C1EW7K2Q", "choices": "c.jsonl", "most": 9000,
    }  # fmt: skip
    (tmp_path / "study.json").write_text(json.dumps(study))
    text = clew("evolve", "theories", "--study", "study.json").output
    assert "a dry run: nothing is sent" in text
    assert "POST " in text
    assert "25 people x 2.00 = 50.00" in text
    assert "very-secret-token" not in text
    assert not (tmp_path / ".clew").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (("--people", "nobody"), "nobody follows 'nobody'"),
        ((), "the line names no people"),
        (("--people", "ttb", "--bank", "c.jsonl"), "several kinds of people"),
        (("--bank", "missing.jsonl"), "there is no file"),
        (("--bank", "bad.jsonl"), "line 2 of bad.jsonl is no choice"),
        (("--bank", "odd.jsonl"), "line 1 of odd.jsonl is no choice between two options"),
        (("--people", "ttb", "--first", "ttb,ttb"), "it cannot begin with"),
        (("--study", "bad.jsonl"), "holds no study"),
    ],
)
def test_bad_input_is_named(clew, tmp_path, line, said):
    good = {"experiment": "e", "subject": 0, "a": [1, 0], "b": [0, 1], "chose_b": 0}
    (tmp_path / "bad.jsonl").write_text(json.dumps(good) + "\n{nonsense\n")
    (tmp_path / "odd.jsonl").write_text(json.dumps(good | {"b": [1]}) + "\n")
    assert said in clew("evolve", "theories", *line, code=2).output
