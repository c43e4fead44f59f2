"""clew train --rollouts http://a,http://b: runs are sampled at servers, which get each new version of the weights."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import httpx
import pytest

pytest.importorskip("transformers")
pytest.importorskip("prometheus_client")

from clew.models.fleet.spans import spans_of
from clew.models.local import Local, small
from clew.store import open_store
from clew.worlds.sums import Sums
from tests.serve.fleet_servers import servers

LENIENT = """
from clew.worlds.sums import Sums

class Lenient(Sums):
    def __init__(self):
        super().__init__(3, 3)
        self.ref = f"{__file__}:Lenient"

    async def judge(self, task, run, world):
        return {"reward": float(run.row.seed % 3 > 0)}  # a signal, whatever an untrained model does

class Sevens(Lenient):
    def __init__(self):
        super().__init__()
        self.ref = f"{__file__}:Sevens"

    async def judge(self, task, run, world):
        said = [run.store.node(call.node_out).message.text for call in run.calls if call.kind == "ask"]
        return {"reward": float("7" in said[0])}
"""
LINE = ("--world", "mine.py:Lenient", "--model", "tiny", "--max-tokens", 12, "--tasks", 2, "-n", 3, "--credit",
        "grpo", "--eval-every", 0, "--json")  # fmt: skip
LEARNS = ("--world", "mine.py:Sevens", "--model", "tiny", "--max-tokens", 3, "--tasks", 4, "-n", 12, "--credit", "grpo",
          "--eval-every", 0, "--lr", 0.02, "--json")  # fmt: skip


@pytest.fixture
def tiny(tmp_path):
    (tmp_path / "mine.py").write_text(LENIENT)
    words = Sums(3, 3).vocabulary()
    small(words, d=16, layers=2, heads=2, kv_heads=1, context=64, seed=1).save(tmp_path / "tiny")
    return tmp_path


def test_runs_are_sampled_at_the_servers_under_the_weights_of_each_iteration(clew, tiny):
    with servers(Local(tiny / "tiny"), Local(tiny / "tiny"), updates=tiny) as urls:
        line = ("train", "--name", "t", "--rollouts", ",".join(urls), *LINE)
        first = json.loads(clew(*line, "--iterations", 2).stdout)
        assert first["metrics"]["0"]["step/mismatch"] < 1e-4
        again = json.loads(clew(*line, "--iterations", 4).stdout)
        told = [httpx.get(f"{url}/weight_info").json() for url in urls]
    store = open_store(tiny / ".clew" / "store.db")
    steps = sum(any(k.startswith("step/") for k in values) for values in again["metrics"].values())
    by_iteration = {}
    for run in store.runs():
        for call in run.calls:
            if call.kind == "ask":
                assert call.setup.model == "tiny"
                by_iteration.setdefault(run.row.order[0], set()).update(version for version, _, _ in spans_of(call))
    assert steps > 1
    assert all(one["step/mismatch"] < 1e-4 for one in again["metrics"].values() if "step/grad_norm" in one)
    assert all(len(versions) == 1 for versions in by_iteration.values()), by_iteration
    assert by_iteration[0] == {0}
    assert by_iteration[3] == {steps - 1}
    assert told[0] == told[1]
    left = [path.name for path in (tiny / ".clew" / "trainings" / "t" / "weights").iterdir()]
    assert f"weights-{told[0]['weight_version']}" in left


@pytest.mark.whole
def test_a_training_at_servers_learns(clew, tiny):
    with servers(Local(tiny / "tiny"), Local(tiny / "tiny"), updates=tiny) as urls:
        line = ("train", "--name", "t", "--rollouts", ",".join(urls), *LEARNS, "--iterations", 12)
        metrics = json.loads(clew(*line).stdout)["metrics"]
    success = [metrics[str(k)]["success"] for k in range(12)]
    assert sum(success[-2:]) > sum(success[:2]) + 0.6, success


def test_a_training_of_adapters_sends_these_alone(clew, tiny):
    pytest.importorskip("peft")
    kept = tiny / ".clew" / "trainings" / "t" / "weights"
    with servers(Local(tiny / "tiny"), Local(tiny / "tiny"), updates=tiny) as urls:
        before = [httpx.get(f"{url}/weight_info").json() for url in urls]
        line = ("train", "--name", "t", "--rollouts", ",".join(urls), "--lora", 2, *LINE)
        first = json.loads(clew(*line, "--iterations", 2).stdout)
        again = json.loads(clew(*line, "--iterations", 4).stdout)
        assert [httpx.get(f"{url}/weight_info").json() for url in urls] == before, "the base stays as it is"
        names = [[one["id"] for one in httpx.get(f"{url}/v1/models").json()["data"]][1:] for url in urls]
    metrics = {**first["metrics"], **again["metrics"]}
    steps = sum(any(name.startswith("step/") for name in metrics[str(k)]) for k in range(3))
    assert steps > 0
    assert all(one["step/mismatch"] < 1e-4 for one in metrics.values() if "step/mismatch" in one)
    assert all(len(one) == 1 for one in names), names
    assert {path.name.partition("-")[0] for path in kept.iterdir()} == {"adapter"}
    for folder in kept.iterdir():
        assert {path.name for path in folder.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    store = open_store(tiny / ".clew" / "store.db")
    made = {}
    for run in store.runs():
        for call in run.calls:
            if call.kind == "ask":
                made.setdefault(run.row.order[0], set()).update(version for version, _, _ in spans_of(call))
    assert made[0] == {0}
    assert made[3] == {steps}
    assert names[0][0].endswith(f"-{steps}")


@pytest.mark.skipif("CLEW_FLEETS" not in os.environ, reason="trains once more: set CLEW_FLEETS=1")
def test_adapters_are_merged_for_servers_that_load_none(clew, tiny, monkeypatch):
    pytest.importorskip("peft")
    from clew.models.fleet.adapter_swap import Swap

    async def none(self):
        return False

    monkeypatch.setattr(Swap, "possible", none)
    with servers(Local(tiny / "tiny"), updates=tiny) as urls:
        done = clew("train", "--name", "t", "--rollouts", urls[0], "--lora", 2, *LINE, "--iterations", 2)
        assert httpx.get(f"{urls[0]}/weight_info").json() == {"weight_version": "1"}
    assert "all weights are pushed" in done.stderr
    metrics = json.loads(done.stdout)["metrics"]
    assert any(one.get("step/mismatch", 1) < 1e-4 for one in metrics.values())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (("--rollouts", "ftp://a"), "neither flat nor tree nor a list of URLs"),
        (("--rollouts", "http://127.0.0.1:9", "--iterations", 1), "no answer from http://127.0.0.1:9/"),
        (("--rollouts", "http://127.0.0.1:9", "--draft", "lookup"), "--draft beside servers"),
    ],
)
def test_what_cannot_be_is_named(clew, tiny, line, said):
    done = clew("train", "--name", "t", *LINE[:-1], *line, code=None)
    assert done.exit_code == 2 or done.exit_code == 1
    assert said in done.output


@contextmanager
def served(tiny):
    """The address of a `clew serve` in a process of its own."""
    line = [sys.executable, "-m", "clew.cli", "serve", str(tiny / "tiny"), "--port", "0", "--weight-updates", str(tiny)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://[\d.:]+", process.stdout.readline())
        assert found is not None
        try:
            yield found[0]
        finally:
            process.terminate()


@pytest.mark.skipif("CLEW_FLEETS" not in os.environ, reason="trains for minutes at two servers: set CLEW_FLEETS=1")
def test_a_training_at_two_servers_learns_and_goes_on_where_one_dies(clew, tiny):
    with ExitStack() as second:
        urls = [second.enter_context(served(tiny)) for _ in range(1)]
        with served(tiny) as dying:
            line = ("train", "--name", "t", "--rollouts", ",".join([*urls, dying]), *LEARNS)
            first = json.loads(clew(*line, "--iterations", 6).stdout)["metrics"]
        done = clew(*line, "--iterations", 20)
    assert f"{dying} is left out" in done.stderr
    last = json.loads(done.stdout)["metrics"]
    assert last["19"]["success"] > first["0"]["success"] + 0.4, [values["success"] for values in last.values()]


@pytest.mark.skipif("CLEW_FLEETS" not in os.environ, reason="trains for minutes at two servers: set CLEW_FLEETS=1")
def test_adapters_at_two_servers_go_on_where_one_dies(clew, tiny):
    """Processes of their own; adapters of so small a model hardly learn, here as on local weights."""
    pytest.importorskip("peft")
    with ExitStack() as second:
        url = second.enter_context(served(tiny))
        with served(tiny) as dying:
            line = ("train", "--name", "t", "--rollouts", f"{url},{dying}", *LEARNS, "--lora", 8)
            first = json.loads(clew(*line, "--iterations", 4).stdout)["metrics"]
        done = clew(*line, "--iterations", 10)
        names = [one["id"] for one in httpx.get(f"{url}/v1/models").json()["data"]]
    assert f"{dying} is left out" in done.stderr
    metrics = {**first, **json.loads(done.stdout)["metrics"]}
    steps = [values["step/mismatch"] for values in metrics.values() if "step/mismatch" in values]
    assert len(steps) > 5
    assert max(steps) < 1e-4
    assert len(names) == 2
