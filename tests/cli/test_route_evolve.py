"""clew route evolve: a router that was fitted to single answers learns from whole tasks, and writes only what pays."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="did not run: scikit-learn is not installed")
pytest.importorskip("cma", reason="did not run: cma is not installed")

from clew.core.registry import register
from clew.exchange.dataset.tasks import Dataset
from clew.models.compose import router
from clew.models.compose.ngrams import Ngrams
from clew.models.compose.router import Head, Worker
from clew.store import open_store

register("tasksets", "dataset", Dataset)  # as the entry point does
OPEN = "scripted(replies=['open'])"
ASKED = ("--data", "q.jsonl", "--reward", "exact", "--held-out", 0.25)
SEARCH = ("--iterations", 6, "--episodes", 12, "--tasks", 40, "--fixed", 20, "--test", 20)


@pytest.fixture
def pool(clew, tmp_path):
    """Questions of which each worker answers one kind, measured; and a router that asks the wrong one of each kind."""
    rows = [{"question": f"repeat the word tree{i} here"} for i in range(60)]
    rows = [row | {"answer": row["question"]} for row in rows]
    rows += [{"question": f"how is door number {i}", "answer": "open"} for i in range(60)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    clew("route", "measure", "--models", f"echo,{OPEN}", *ASKED, "-n", 1, "--tasks", 40, "--name", "pool")
    features = Ngrams()
    h = [features(f"user: {row['question']}\n") for row in rows]
    apart = np.mean(h[60:], 0) - np.mean(h[:60], 0)
    workers = (Worker("echo", "echo"), Worker("open", OPEN))
    router.save(tmp_path / "wrong", workers, features, Head(np.stack([apart, -apart]).astype(np.float32)))
    router.save(tmp_path / "right", workers, features, Head(np.stack([-apart, apart]).astype(np.float32)))


def test_what_a_router_asks_wrongly_is_mended_on_whole_tasks(clew, pool, tmp_path):
    line = ("route", "evolve", "wrong", "pool", "-o", "evolved", *ASKED, *SEARCH)
    told = clew(*line, "--dry").output
    assert "6 iterations of " in told
    assert not (tmp_path / "evolved").exists()
    said = json.loads(clew(*line, "--json").stdout)
    assert said["difference"]["low"] > 0.1
    made = router.load(tmp_path / "evolved")
    assert made.about["evolved"]["gain"]["low"] == said["difference"]["low"]
    again = clew(*line).output
    assert f"evolved    {said['evolved']['estimate']:.3f}" in again, "the search is not made again"
    assert again.splitlines()[-1] == "Next: clew serve route:evolved"


def test_a_router_that_gains_nothing_is_not_written(clew, pool, tmp_path):
    told = clew("route", "evolve", "right", "pool", "-o", "evolved", *ASKED, *SEARCH, code=2).output
    assert "no gain is shown" in told
    assert not (tmp_path / "evolved").exists()


def test_a_pool_of_other_models_is_refused(clew, pool):
    clew("route", "measure", "--models", f"echo,{OPEN.replace('open', 'shut')}", *ASKED, "-n", 1, "--tasks", 40,
         "--name", "other")  # fmt: skip
    told = " ".join(clew("route", "evolve", "wrong", "other", "-o", "evolved", *ASKED, *SEARCH, code=2).output.split())
    assert "the pool was measured with" in told
    assert "Name the pool that the router was fitted to." in told


@pytest.mark.whole
def test_the_routers_policy_holds_in_the_search_and_other_settings_are_another_search(clew, pool, tmp_path):
    line = ("route", "evolve", "wrong", "pool", "-o", "evolved", *ASKED, *SEARCH, "--anyway")
    clew(*line)
    kept = tmp_path / ".clew" / "route"
    assert len(list(kept.glob("evolve-*"))) == 1
    clew(*line, "--max-tokens", 9)
    assert len(list(kept.glob("evolve-*"))) == 2
    told = clew("route", "evolve", "wrong?deny=open", *line[3:], "--json")
    with open_store(tmp_path / ".clew" / "store.db") as store:
        runs = [run for run in store.runs() if run.row.model.startswith("route:") and "deny=open" in run.row.model]
        asked = {inner.model for run in runs for call in run.calls for inner in call.inner}
    assert json.loads(told.stdout)["evolved"]["n"] == 20
    assert "echo" in asked
    assert OPEN not in asked


def test_a_dry_run_tells_its_plan_as_json(clew, pool):
    line = ("route", "evolve", "wrong", "pool", "-o", "evolved", *ASKED, *SEARCH)
    told = json.loads(clew(*line, "--dry", "--json").stdout)
    assert told["runs"] > told["iterations"] * told["candidates"] * told["episodes"] > 0
