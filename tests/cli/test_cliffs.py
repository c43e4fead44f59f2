"""clew audit cliffs and clew tune on a model whose chances are known."""

from __future__ import annotations

import json

import pytest

from clew.core.registry import register
from clew.harness import Runner
from clew.models.local import small
from clew.store import open_store
from clew.train.losses import dpo
from clew.worlds.sums import Sums
from tests.audit import planted

register("tasksets", "sums", Sums)


@pytest.fixture
def solved(tmp_path, monkeypatch):
    path = tmp_path / "sums.db"
    register("tasksets", "sums", Sums)
    register("models", "planted", lambda: planted.Markov(planted.CORPUS, order=8, tokens=True))
    runner, _ = planted.solutions(path, n=6)
    runner.store.close()
    return path


@pytest.mark.whole
def test_a_search_with_all_it_leads_to(clew, solved):
    # Chances are .6 or more, or 0; of 24 continuations at .6 now and then no more than 8 succeed, and which are drawn
    # hangs on the names of the runs.
    args = ("audit", "cliffs", "world=sums", "--model", "planted", "-n", 48, "--store", solved)
    dry = clew(*args, "--dry").output
    assert "11 of them could lower" in dry
    assert "to sample:" in dry
    assert "continuations, about" in dry
    told = clew(*args, "--effect", "--pairs", "pairs.jsonl").output
    assert "0 undecided" in told
    assert "del@1 - keep@1" in told
    assert "control: the same at random positions" in told
    line = f"clew tune world=sums --loss cliff-dpo --name cliffs --model FOLDER --store {solved}"
    assert f"name a FOLDER of weights in: {line}" in told
    found = json.loads(clew(*args, "--effect", "--pairs", "pairs.jsonl", "--json").output)
    assert found["pairs"] == len([c for c in found["cliffs"] if c["confirmed"]])
    assert {round(p["potential"], 1) > 0.3 or p["high"] < 0.3 for p in found["potential"]} == {True}
    assert "to sample: 0 continuations" in clew(*args, "--dry").output
    with open("pairs.jsonl") as file:
        assert len(file.readlines()) == found["pairs"]
    one = clew("audit", "cliffs", found["cliffs"][0]["at"].partition("@")[0], *args[3:]).output
    assert "after token" in one
    store = open_store(solved)
    assert len(store.run_ids()) == 6
    store.close()
    low = clew("log", "--store", solved).output
    assert low


def test_refusals_name_input_and_remedy(clew, solved, store):
    at = ("--store", solved, "--model", "planted")
    assert (
        "Leave out --at steps"
        in clew("audit", "cliffs", "world=sums", "--at", "steps", "--pairs", "f", *at, code=2).output
    )
    assert "clew log" in clew("audit", "cliffs", "world=maze", *at, code=2).output
    assert "--model" in clew("audit", "cliffs", "world=sums", "--store", solved, code=2).output
    assert (
        "--at steps"
        in clew("audit", "cliffs", "--at", "tokens", "--store", store, "world=household", *at[2:], code=2).output
    )


@pytest.mark.whole
def test_training_on_pairs_goes_on_and_refuses_others(clew, tmp_path):
    register("tasksets", "sums", Sums)
    register("losses", "cliff-dpo", dpo)
    path, folder = tmp_path / "made.db", tmp_path / "weights"
    taskset = Sums(low=2, high=2)
    model = small(taskset.vocabulary(), 16, 1, 2, 1, context=64, ref=str(folder))
    model.save(folder)
    runner = Runner("clew.harness.agents:player", taskset, model, path, sampling={"max_tokens": 6})
    run = runner.collect(taskset.sample(1), n=1).runs[0]
    from clew.core.records import Annotation

    item = {"token": 1, "rejected": 5, "chosen": 6, "kind": "uncertain"}
    runner.store.annotate([Annotation("call", "cliff-pair", 1.0, run.id, 1, params="p", data=json.dumps([item]))])
    runner.store.commit()
    runner.store.close()
    line = ("tune", run.id, "--name", "steep", "--loss", "cliff-dpo", "--model", folder, "--store", path)
    done = clew(*line, "--epochs", 3)
    assert "2 rows, 2 tokens with loss" in done.output
    assert "begun with other settings: epochs was 3 and is 4" in clew(*line, "--epochs", 4, code=2).output
    again = json.loads(clew(*line, "--epochs", 3, "--json").stdout)
    assert again["rows"] == 2
    assert "clew audit cliffs" in clew(*line, "--types", "deterministic", code=2).output
    assert "RUNS" in clew("tune", "--name", "x", "--loss", "dpo", "--store", path, code=2).output


def test_training_on_what_people_prefer(clew, tmp_path):
    register("tasksets", "sums", Sums)
    path, folder = tmp_path / "made.db", tmp_path / "weights"
    taskset = Sums(low=2, high=2)
    model = small(taskset.vocabulary(), 16, 1, 2, 1, context=64, ref=str(folder))
    model.save(folder)
    runner = Runner("clew.harness.agents:player", taskset, model, path, sampling={"max_tokens": 6})
    one, other = runner.collect(taskset.sample(1), n=2).runs
    runner.store.close()
    at = ("--model", folder, "--store", path)
    line = ("tune", "origin=collect", "--name", "p", "--loss", "dpo", "--by-labels", *at)
    assert "Label more runs of one task" in clew(*line, code=2).output
    clew("label", one.id, "--stars", 2, "--by", "ann", "--store", path)
    clew("label", other.id, "--stars", 4, "--by", "ann", "--store", path)
    done = clew(*line)
    assert "labels give 1 pairs" in done.output
    assert "2 rows" in done.output
    wrong = clew("tune", one.id, "--name", "q", "--loss", "cliff-dpo", "--by-labels", *at, code=2)
    assert "Write --loss dpo" in wrong.output


def test_released_rollouts_are_read(clew, tmp_path):
    """A planted cliff is kept, one dip that its neighbours do not share is flagged and not kept, noise is neither."""
    cliff, dip = [60] * 8 + [20] * 8, [60] * 8 + [40] + [60] * 7
    lines = [
        {"id": name, "tokens": [f"t{i}" for i in range(16)], "potential": [k / 64 for k in right], "n_rollouts": 64}
        for name, right in (("cliff", cliff), ("dip", dip), ("flat", [60] * 16))
    ]
    lines[0]["cliffs"] = [{"position": 8}]
    (tmp_path / "released.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = json.loads(clew("audit", "cliffs", tmp_path / "released.jsonl", "--json").output)
    assert told["solutions"] == 3
    assert [(c["path"], c["position"], c["kept"], c["listed"]) for c in told["cliffs"]] == [
        ("cliff", 8, True, True),
        ("dip", 8, False, False),
    ]
    said = clew("audit", "cliffs", tmp_path / "released.jsonl").output
    assert "3 solutions, 48 tokens: the published rule flags 2, the places around share the drop in 1" in said
    assert "without --effect" in clew("audit", "cliffs", tmp_path / "released.jsonl", "--effect", code=2).output
    for field, value, why in (
        ("potential", [2.0] * 16, "a potential is 2.0"),
        ("potential", [0.5] * 17, "16 tokens and 17 shares"),
        ("n_rollouts", 10**30, "n_rollouts is 1000"),
        ("tokens", "text", "no tokens"),
        ("cliffs", ["x"], "cliffs without a position: ['x']"),
        ("cliffs", 7, "'int' object is not iterable"),
    ):
        (tmp_path / "bad.jsonl").write_text(json.dumps(lines[0] | {field: value}))
        said = clew("audit", "cliffs", tmp_path / "bad.jsonl", code=2).output
        assert "bad.jsonl:1: " in said
        assert why in said


def test_what_is_found_in_the_authors_release(clew, shared):
    told = json.loads(clew("audit", "cliffs", shared / "data" / "cliffs" / "paths.jsonl.gz", "--json").output)
    assert sum(c["listed"] for c in told["cliffs"]) == len(told["cliffs"]) - 1  # one is found and not listed
    assert 0 < sum(c["kept"] for c in told["cliffs"]) < len(told["cliffs"])


def test_what_a_step_gained_is_the_difference_of_the_values_around_it(clew, tmp_path):
    from clew.models.markov import Markov
    from clew.worlds.toys import Counter

    register("tasksets", "counter", Counter)
    register("models", "stroller", lambda: Markov("up\nup\nup\ndown\nstop", order=1, tokens=True))
    world, path = Counter(2, 3, 8), tmp_path / "steps.db"
    with open_store(path) as store:
        model = Markov("up\nup\nup\ndown\nstop", order=1, tokens=True)
        runner = Runner("clew.harness.agents:player", world, model, store, sampling={"max_tokens": 2})
        runner.collect(world.sample(2), n=3)
    clew("audit", "cliffs", "world=counter", "--at", "steps", "--model", "stroller", "-n", 16, "--store", path)
    with open_store(path) as store:
        counted = 0
        for run in store.runs("world=counter"):
            value = {a.seq: a.value for a in run.annotations("potential", "call")}
            gain = {a.seq: a.value for a in run.annotations("gain", "call")}
            asks = [call.seq for call in run.calls if call.kind == "ask"]
            for seq, after in zip(asks, [*asks[1:], None], strict=True):
                ends = float(run.reward) if after is None else value.get(after)
                assert (seq in gain) == (seq in value and ends is not None)
                if seq in gain:
                    assert gain[seq] == pytest.approx(ends - value[seq])
                    counted += 1
            if value and asks[0] in value and len(gain) == len(asks):
                assert sum(gain.values()) == pytest.approx(float(run.reward) - value[asks[0]]), "gains add up"
        assert counted > 6
