"""clew grade on recorded runs: what is filed, what is printed, choosing, picking, going on, refusing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clew.core.records import Annotation
from clew.core.registry import build, register
from clew.core.values import Limits
from clew.harness import Runner
from clew.methods.grade import graded
from clew.store import open_store
from clew.worlds.clerk import Clerk

pytest.importorskip("torch", reason="did not run: torch is not installed")
from clew.fit.adapters import quiet
from clew.models.local import small

register("tasksets", "clerk", Clerk)
SIZE: dict[str, Any] = {"d": 16, "layers": 1, "heads": 2, "kv_heads": 1}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models of one vocabulary, one of another, and runs with planted verdicts: long replies lose."""
    folder = tmp_path_factory.mktemp("grade")
    vocabularies = {"policy": Clerk().vocabulary(), "reference": Clerk().vocabulary(), "other": ["one", "two"]}
    for seed, (name, words) in enumerate(vocabularies.items()):
        model = small(words, seed=seed, **SIZE)
        with quiet():
            model.save(folder / name)
        model.close()
    model = small(Clerk().vocabulary(), seed=0, ref=str(folder / "policy"), **SIZE)
    runner = Runner(
        "clew.harness.agents:player",
        Clerk(),
        model,
        folder / "s.db",
        sampling={"max_tokens": 5},
        limits=Limits(steps=2),
    )
    groups = runner.collect(Clerk().sample(10), n=4)
    verdicts = [Annotation("run", "reward", float(i % 4 < 2), r.id, scope=r.id) for i, r in enumerate(groups.runs)]
    runner.store.annotate(verdicts)
    runner.store.commit()
    runner.store.close()
    model.close()
    return folder


def line(desk: Path, *more: str) -> list[str]:
    return ["audit", "grade", "--policy", str(desk / "policy"), "--reference", str(desk / "reference"), "--store",
            str(desk / "s.db"), *more]  # fmt: skip


def test_grades_are_filed_on_tokens_asks_and_runs(clew: Any, desk: Path) -> None:
    told = json.loads(clew(*line(desk, "--json")).stdout)
    assert (told["runs"], told["token"], told["step"], told["mode"]) == (40, "sum", "sum", "ratio")
    store = open_store(str(desk / "s.db"))
    run = store.runs()[0]
    rows = {(a.target, a.seq): a for a in run.annotations("grade")}
    asks = [c for c in run.calls if c.kind == "ask"]
    for call in asks:
        values = rows["tokens", call.seq].values
        assert values is not None
        assert len(values) == len(run.reply(call.seq).ids or ())
        assert np.isnan(values[: call.head]).all()
        assert np.nansum(values) == pytest.approx(rows["call", call.seq].value, abs=1e-4)
    total = rows["run", -1].value
    assert total == pytest.approx(sum(rows["call", c.seq].value or 0 for c in asks), abs=1e-4)
    assert told["scores"][run.id] == pytest.approx(total, abs=1e-4)
    assert store.verify() == []
    low = run.low_point("grade")
    assert rows["call", low.seq].value == min(rows["call", c.seq].value for c in asks)  # type: ignore[type-var]
    store.close()


def test_intervals_choice_and_picking(clew: Any, desk: Path) -> None:
    told = json.loads(clew(*line(desk, "--json", "--select", "auroc", "--pick")).stdout)
    assert told["aggregation"] == f"{told['token']}/{told['step']}"
    assert told["judged"] + int(told["selection"]["chosen on"].split()[0]) == 40
    assert set(told["auroc"]) == {
        "score", "policy alone", "reference alone", "shortness alone", "score without length"
    }  # fmt: skip
    assert all(x["low"] <= x["estimate"] <= x["high"] for x in told["auroc"].values())
    assert len(told["picked"]["runs"]) == 10
    assert told["picked"]["of all"] == 0.5
    assert told["picked"]["of the best there is"] == 1.0
    best = {run: score for run, score in told["scores"].items() if run in told["picked"]["runs"].values()}
    assert np.mean(list(best.values())) > np.mean(list(told["scores"].values()))
    text = clew(*line(desk, "--select", "pick", "--separate", "--token", "min", "--pick", "--name", "apart")).output
    assert "of which" in text
    assert "separate" in text
    assert "success of the picked" in text


def test_the_pair_of_one_model_says_nothing(clew: Any, desk: Path) -> None:
    both = ["audit", "grade", "--policy", str(desk / "policy"), "--reference", str(desk / "policy"), "--name", "none"]
    told = json.loads(clew(*both, "--store", str(desk / "s.db"), "--json").stdout)
    assert set(told["scores"].values()) == {0.0}
    assert told["auroc"]["score"]["estimate"] == 0.5
    assert told["nats per token"] == 0


def test_a_second_grading_reads_what_is_filed(clew: Any, desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = json.loads(clew(*line(desk, "--json")).stdout)
    from clew.models.local import model as local

    rows: list[int] = []
    score = local.Local.score
    monkeypatch.setattr(local.Local, "score", lambda self, ids, t=1.0: rows.append(len(ids)) or score(self, ids, t))
    second = json.loads(clew(*line(desk, "--json")).stdout)
    assert second["scores"] == first["scores"]
    assert sum(rows) <= 2 * 5, "the forecast's rows, and nothing else"


def test_a_frozen_pair_is_a_credit_on_the_command_line(clew: Any, desk: Path) -> None:
    register("credits", "graded", graded.graded)
    ref = f"graded(policy={str(desk / 'policy')!r}, reference={str(desk / 'reference')!r})"
    told = json.loads(clew("credit", ref, "--store", str(desk / "s.db"), "--json").stdout)
    assert told["methods"][0]["valued"] == told["methods"][0]["steps"] > 40


def test_refusals_name_the_input_and_the_remedy(clew: Any, desk: Path, store: Path) -> None:
    at = ["--store", str(desk / "s.db")]
    other = clew("audit", "grade", "--policy", desk / "policy", "--reference", desk / "other", *at, code=2).output
    assert "different tokenizers" in other
    assert "same tokenizer" in other
    no_scores = clew("audit", "grade", "--policy", "echo", "--reference", desk / "policy", *at, code=2).output
    assert "gives no logprobs" in no_scores
    pair = ("--policy", desk / "policy", "--reference", desk / "reference")
    assert "without token ids" in clew("audit", "grade", *pair, "--store", store, code=2).output
    assert "clew log" in clew("audit", "grade", "world=maze", *pair, *at, code=2).output
    one = open_store(str(desk / "s.db")).runs()[0]
    few = clew("audit", "grade", one.id, *pair, *at, "--select", "auroc", code=2).output
    assert "nothing to select by" in few
    assert build("tasksets", "clerk").ref == "clerk"


def test_the_figure_within_a_task_comes_first_and_what_picking_gains_is_said(clew: Any, desk: Path) -> None:
    text = clew(*line(desk, "--pick", "--name", "within")).output
    lines = text.splitlines()
    first = next(i for i, said in enumerate(lines) if said.startswith("the score "))
    table = next(i for i, said in enumerate(lines) if "over all tasks (AUROC)" in said)
    assert first < table
    assert "of 40 pairs of a run that succeeded and one that failed at the same task could differ" in text
    assert "picking" in text
    told = json.loads(clew(*line(desk, "--pick", "--json")).stdout)
    assert told["comparisons"]["made"] == 10 * 2 * 2
    assert set(told["within a task"]) == set(told["auroc"])
    assert told["picked"]["comparisons"]["made"] == 10


def test_runs_that_all_succeeded_say_that_nothing_was_tested(clew: Any, desk: Path) -> None:
    store = open_store(str(desk / "s.db"))
    won = [run.id for run in store.runs() if run.reward == 1.0]
    store.close()
    assert "was not tested: 20 of 20 judged runs succeeded" in clew(*line(desk, *won, "--name", "won")).output
