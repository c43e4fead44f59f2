"""clew route fit over a local model's hidden states, with scales and probe questions; clew route add."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="did not run: scikit-learn is not installed")
pytest.importorskip("torch", reason="did not run: torch is not installed")
pytest.importorskip("transformers", reason="did not run: transformers is not installed")

from clew.core.registry import register
from clew.exchange.dataset.tasks import Dataset
from clew.models.compose import router
from clew.models.compose.backbone import Backbone
from clew.models.local import small
from clew.store import open_store
from tests.cli.shell import printed

register("tasksets", "dataset", Dataset)  # as the entry point does
WORDS = ["how", "is", "door", "say", "tree", "user:", "and", "then"]
OPEN, SHUT, RED, BLUE = (f"scripted(replies=['{word}'])" for word in ("open", "shut", "red", "blue"))
ASKED = ("--data", "q.jsonl", "--reward", "exact", "--held-out", 0)
KINDS = {"door": "open", "gate": "shut", "rose": "red", "sky": "blue"}


@pytest.fixture
def data(tmp_path):
    """Questions of four kinds, each of which one of four models answers."""
    rows = [{"question": f"say how {kind} {i} is", "answer": said} for kind, said in KINDS.items() for i in range(20)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def weights(tmp_path):
    small([*WORDS, *KINDS], d=16, layers=2, seed=1, context=64).save(tmp_path / "tiny")


def measure(clew, *models):
    clew("route", "measure", "--models", ",".join(models), *ASKED, "-n", 1, "--tasks", 80, "--name", "pool")


def test_a_pool_is_fitted_over_hidden_states_served_and_evolved(clew, data, weights, tmp_path):
    measure(clew, OPEN, SHUT)
    told = clew("route", "fit", "pool", "-o", "router", "--backbone", "./tiny").output
    assert "n-grams " in told
    assert "hidden state less n-grams " in told
    assert printed(told)[-1] == "clew serve route:router"
    made = router.load(tmp_path / "router")
    assert isinstance(made.features, Backbone)
    assert made.features.path == str(tmp_path / "tiny")
    served = json.loads(clew("eval", "route:router", *ASKED, "--split", "train", "--tasks", 80, "--json").stdout)
    assert served["route:router"]["estimate"] == pytest.approx(0.5, abs=0.02), "two of four kinds, and none is wasted"
    pytest.importorskip("cma", reason="did not run: cma is not installed")
    search = ("--iterations", 1, "--episodes", 2, "--tasks", 4, "--fixed", 4, "--test", 4)
    line = ("route", "evolve", "router", "pool", "-o", "evolved", *ASKED[:-1], 0.25, *search, "--anyway", "--json")
    assert json.loads(clew(*line).stdout)["folder"] == "evolved"
    evolved = router.load(tmp_path / "evolved").features
    assert isinstance(evolved, Backbone)
    assert evolved.said() == made.features.said()
    (tmp_path / "tiny").rename(tmp_path / "gone")
    assert "the backbone is not at" in clew("serve", "route:router", code=2).output


def test_scales_are_tried_and_both_figures_told(clew, weights, tmp_path):
    rows = [
        {"question": f"say {kind} {i}", "worker": worker, "reward": int((kind == "door") == (worker == "a"))}
        for kind in ("door", "sky") for i in range(15) for worker in "ab"
    ]  # fmt: skip
    (tmp_path / "given.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = ("route", "fit", "--from", "given.jsonl", "-o", "router", "--backbone", "tiny", "--scales", "--steps", 20)
    told = clew(*line, "--layer", 1, "--position", -1, "--ref", "a=echo", "--ref", f"b={OPEN}").output
    assert "scales: 6 trainings of at most 20 steps of 32 questions" in told
    assert "scaled less frozen " in told
    assert "scales show no gain on held-out questions" in told, "the frozen state says it all"
    made = router.load(tmp_path / "router").features
    assert isinstance(made, Backbone)
    assert (made.layer, made.position, dict(made.scales)) == (1, -1, {})


def test_a_model_joins_by_its_probe_questions_alone(clew, data, tmp_path):
    measure(clew, OPEN, SHUT, RED, "echo")
    told = clew("route", "fit", "pool", "-o", "router", "--probe", 30).output
    for name in ("by probe questions", "one joins later", "one is left out", "gain of joining", "full fit less it"):
        assert f"\n{name} " in told
    line = ("route", "add", "router", BLUE, *ASKED, "--tasks", 80, "-n", 1, "-o", "larger")
    assert "30 probe questions, 1 samples each: 30 runs to make" in clew(*line, "--dry").output
    said = clew(*line).output
    assert printed(said)[-1] == "clew serve route:larger"
    with open_store(tmp_path / ".clew" / "store.db") as store:
        assert sum(run.model == BLUE for run in store.runs()) == 30, "no other question is asked"
    before, larger = router.load(tmp_path / "router"), router.load(tmp_path / "larger")
    assert [worker.ref for worker in larger.workers] == [*(worker.ref for worker in before.workers), BLUE]
    assert np.array_equal(larger.head.weights[:4], before.head.weights)
    rates = [
        json.loads(clew("eval", f"route:{name}", *ASKED, "--split", "train", "--tasks", 80, "--json").stdout)
        for name in ("router", "larger")
    ]
    assert rates[0]["route:router"]["estimate"] < 0.76
    assert rates[1]["route:larger"]["estimate"] > 0.9
    assert "is in the pool already" in clew(*line[:2], "larger", *line[3:], code=2).output


def test_what_cannot_join_is_refused(clew, data, tmp_path):
    measure(clew, OPEN, SHUT, RED, "echo")
    clew("route", "fit", "pool", "-o", "plain")
    assert "has no probe questions" in clew("route", "add", "plain", BLUE, *ASKED, "-o", "x", code=2).output
    clew("route", "fit", "pool", "-o", "router", "--probe", 10)
    few = clew("route", "add", "router", BLUE, *ASKED, "--tasks", 2, "-o", "x", code=2).output
    assert " of 10 probe questions are among these 2" in few
    (tmp_path / "given.jsonl").write_text(json.dumps({"question": "q", "worker": "new", "reward": 1}) + "\n")
    line = ("--from", "given.jsonl", "-o", "x")
    few = clew("route", "add", "router", "new", *line, code=2).output
    assert "new has rewards at 0 of 10 probe questions" in few
    assert "has no reward of other" in clew("route", "add", "router", "other", *line, code=2).output
    made = router.load(tmp_path / "router")
    weights = made.head.weights.copy()
    weights[0, 0] += 1
    router.save(tmp_path / "router", made.workers, made.features, router.Head(weights))
    told = clew("route", "add", "router", BLUE, *ASKED, "-o", "x", code=2).output
    assert "was changed after its probe questions" in told


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--scales",), "--scales is of a backbone"),
        (("--layer", "3"), "--layer is of a backbone"),
        (("--backbone", "nowhere"), "is no folder of a model"),
        (("--backbone", "tiny", "--layer", "7"), "has no layer 7"),
        (("--backbone", "tiny", "--layer", "last"), "'last' is no layer"),
        (("--probe", "10"), "a pool of 2 workers has too few to leave one out"),
    ],
)
def test_bad_lines_are_refused_in_one_sentence(clew, weights, tmp_path, more, said):
    rows = [{"question": f"q{i}", "worker": w, "reward": int(w == "big")} for i in range(30) for w in ("big", "small")]
    (tmp_path / "given.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    refused = clew("route", "fit", "--from", "given.jsonl", "-o", "router", *more, code=2).output
    assert said in " ".join(refused.split())
    assert "Traceback" not in refused
    assert not (tmp_path / "router").exists()
