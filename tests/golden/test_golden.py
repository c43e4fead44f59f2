"""The golden store, recorded before the house was built, is used as if nothing had happened.

``make.py`` made it with the code of its time and says when it may be made anew; ``facts.json.xz`` holds what that code
said of it. Every test has a copy of its own in an empty folder. A difference is told by run and field.
"""

from __future__ import annotations

import json
import lzma
import shutil
from pathlib import Path
from typing import Any

import pytest

import clew
from tests.golden import agents, facts

HERE = Path(__file__).parent
FACTS: dict[str, Any] = json.loads(lzma.decompress((HERE / "facts.json.xz").read_bytes()))

# a function whose imports alone were changed is another source; whether it still does the same, replay tells
pytestmark = pytest.mark.filterwarnings("ignore:the source of .* changed since run:UserWarning")


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("golden") / "golden.db"
    path.write_bytes(lzma.decompress((HERE / "store.db.xz").read_bytes()))
    return path


@pytest.fixture
def store(unpacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A copy of the store, its training and the file of its notepad; the names of its record are known."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLEW_STORE", raising=False)
    agents.register()
    shutil.copy(unpacked, tmp_path / "golden.db")
    shutil.copy(HERE / "pad.txt", tmp_path / "pad.txt")
    shutil.copytree(HERE / "trainings", tmp_path / "trainings")
    with clew.open_store("golden.db") as opened:
        yield opened


def same(wanted: Any, found: Any, what: str) -> None:
    """Fail with a line for each place at which the facts differ."""
    told = list(facts.differences(wanted, found, what))
    assert not told, f"{len(told)} differences\n" + "\n".join(told[:40])


# ---- the record ------------------------------------------------------------------------------------------------------


def test_it_is_whole(store: Any) -> None:
    assert store.verify() == []
    assert store.verify(rebuild=True) == []
    assert sorted(store.run_ids()) == sorted(FACTS["runs"])
    assert len(FACTS["runs"]) >= 200


def test_keys_edges_and_what_show_prints_of_each_run(store: Any) -> None:
    same(FACTS["runs"], facts.run_facts(store), "runs")


def test_what_is_filed_beside_the_runs(store: Any) -> None:
    same(FACTS["tables"], facts.tables(store), "tables")


def test_runs_are_drawn_as_they_were(store: Any) -> None:
    same(FACTS["drawings"], facts.drawings(store), "drawings")


def test_what_other_programs_read_of_them(store: Any, tmp_path: Path) -> None:
    """Messages, trajectories, spans, the list of runs, labels, data for fine-tuning, pairs."""
    same(FACTS["exports"], facts.exports(store, tmp_path), "exports")


def test_the_store_holds_what_it_is_for(store: Any) -> None:
    """Each kind of effect, edit, origin and end that a run may have."""
    runs = [clew.Run(store, name) for name in FACTS["runs"]]
    kinds = {call.kind for run in runs for call in run.calls}
    assert kinds == {"open", "ask", "act", "spawn", "note", "draw", "now", "recall", "end"}
    edits = {edit.kind for run in runs for edit in run.changes.edits}
    assert edits == {
        "reply", "prefix", "result", "say", "insert", "delete", "model", "sampling", "world", "child", "tap", "memory",
    }  # fmt: skip
    ends = {run.stop and str(run.stop) for run in runs}
    assert ends >= {"done", "returned", "token_limit", "step_limit", "model_error", "agent_error", "no_world", None}
    of_forks = [run for run in runs if run.parent and clew.Run(store, run.parent.run).parent]
    assert of_forks
    assert {store.group(run.group).kind for run in runs if run.group} >= {"iid", "tree"}


# ---- replays ---------------------------------------------------------------------------------------------------------


def test_every_run_replays_without_world_and_model(store: Any) -> None:
    """All but the redacted one, two that have no Call yet, and the killed program's, which waits for its request."""
    assert len(FACTS["cannot replay"]) == 4
    failed = []
    for name in sorted(FACTS["runs"].keys() - set(FACTS["cannot replay"])):
        run = clew.Run(store, name)
        try:
            done = clew.Runner.of(store, run, model=agents.Silent()).replay(run)
        except clew.core.errors.ClewError as error:
            failed.append(f"run {name} of {run.agent}: {error}")
            continue
        if done.calls != len(run.calls) or facts.keys(run) != FACTS["runs"][name]["keys"]:
            failed.append(f"run {name} of {run.agent}: {done.calls} of {len(run.calls)} Calls, or other keys")
    assert not failed, "\n".join(failed)


def test_the_command_line_replays(store: Any) -> None:
    for query in ("agent=keep", "agent=localiser", "agent=relay -stop=open", "name=house/*", "origin=spawn"):
        rows = json.loads(facts.said("replay", query, "--json", "--store", store.path))
        assert rows
        assert [row["error"] for row in rows] == [None] * len(rows), query


# ---- forks -----------------------------------------------------------------------------------------------------------


def called(asked: dict[str, Any]) -> str:
    what = "-".join(asked.get("changes", ())) or f"seed-{asked['seed']}"
    agent = FACTS["runs"][asked["run"]]["show"]["agent"].rpartition(":")[2]
    return f"{agent}-{asked['run']}@{asked['seq']}+{asked.get('token', 0)}-{what}"


LOCAL = ("policy", "steered")  # weights: a key holds the bits of chances, which one processor rounds unlike another


@pytest.mark.parametrize("asked", FACTS["forks"], ids=called)
def test_forks_of_a_seed_are_the_same_forks(asked: dict[str, Any], store: Any) -> None:
    if asked.get("model") in LOCAL:
        pytest.importorskip("torch", reason="did not run: torch is not installed")
    if "memory" in asked.get("changes", ()):
        pytest.importorskip("bm25s", reason="did not run: the extra [memory] is not installed")
    before = set(store.run_ids())
    found, made = facts.forked(store, asked), asked["made"]
    if asked.get("model") in LOCAL:
        found, made = ([[call[:-1] for call in fork] for fork in forks] for forks in (found, made))
    same(made, found, "forks")
    assert store.verify() == []
    fresh = [clew.Run(store, name) for name in store.run_ids() if name not in before]
    assert fresh
    for run in fresh:
        assert clew.Runner.of(store, run, model=agents.Silent()).replay(run).calls == len(run.calls), run


def test_the_command_line_forks(store: Any) -> None:
    asked = FACTS["forks"][0]
    words = (f"{asked['run']}@{asked['seq']}", "-n", asked["n"], "--seed", asked["seed"], "--json")
    with facts.fixed("fork"):
        made = json.loads(facts.said("fork", *words, "--store", store.path))["forks"]
    forks = [clew.Run(store, row["run"]) for row in made]
    same(asked["made"], facts.plain([facts.calls(fork, fork.shared) for fork in forks]), "forks")


@pytest.mark.parametrize(("name", "work"), [("one", facts.restarted), ("killed", facts.gone_on)])
def test_a_program_behind_the_gateway_is_answered_as_before(store: Any, name: str, work: Any) -> None:
    pytest.importorskip("starlette", reason="did not run: the extra [serve] is not installed")
    from clew.serve.gateway.proxy import Gateway

    it = Gateway(store, lambda dialect, name, extra: agents.adder())
    same(FACTS["gateway"][name], work(it, store.runs(f"tag:{name}")[-1]), f"gateway / {name}")
    assert store.verify() == []


# ---- resumes ---------------------------------------------------------------------------------------------------------


def test_interrupted_runs_end_as_if_nothing_had_happened(store: Any) -> None:
    left = [run.id for run in store.runs("name=cut/*") if run.stop is None]
    assert len(left) == 3
    done = json.loads(facts.said("resume", *left, "--json", "--store", store.path))
    assert sorted(row["run"] for row in done["finished"]) == sorted(left)
    runs = store.runs("name=cut/*")
    same(FACTS["resumed"], facts.ends(runs), "resumed")
    assert store.verify() == []
    assert all(clew.Runner.of(store, run).replay(run).calls == len(run.calls) for run in runs)


def test_an_interrupted_collection_of_a_name_goes_on(store: Any) -> None:
    before = store.find("name=cut/*")
    runner = clew.Runner.of(store, before[0])
    groups = [store.group(name) for name, row in FACTS["tables"]["groups"].items() if row[2].startswith("cut/")]
    tasks = [runner.taskset.find(group.task_id) for group in sorted(groups, key=lambda group: group.name)]
    runner.collect(tasks, n=3, seed=3, name="cut")
    assert store.find("name=cut/*") == before
    runs = store.runs("name=cut/*")
    same(FACTS["resumed"], facts.ends(runs), "resumed")


def test_an_effect_in_doubt_is_still_in_doubt(store: Any) -> None:
    (run,) = store.runs("name=doubt/*")
    assert run.stop is None
    refused = facts.said("resume", run.id, "--json", "--store", store.path, code=2)
    assert "was begun" in json.loads(refused)["failed"][run.id]
    facts.said("resume", run.id, "--redo", "--store", store.path)
    run = clew.Run(store, run.id)
    same(FACTS["doubt"], [str(run.stop), run.reward, facts.keys(run)], f"runs / {run.id}")
    assert len(Path("pad.txt").read_text().splitlines()) == 3


@pytest.mark.whole
def test_a_training_half_done_goes_on(store: Any) -> None:
    """Runs of the stopped iteration that had ended are used, those that had not are finished; then come new ones."""
    pytest.importorskip("torch", reason="did not run: torch is not installed")
    begun, whole = store.find("name=half/*"), FACTS["training"]
    ended = {run.id: facts.keys(run) for run in store.runs("name=half/*") if run.stop is not None}
    made = json.loads(facts.said(*facts.training(store.path), "--json"))
    assert sorted(made["metrics"]) == ["0", "1", "2"]
    assert set(begun) < set(store.find("name=half/*"))
    same(ended, {name: facts.keys(clew.Run(store, name)) for name in ended}, "runs")
    found = facts.trained(store)
    same(whole[:12], found[:12], "what the weights of the checkpoint said")
    same([row[:3] for row in whole], [row[:3] for row in found], "training")
    assert store.verify() == []


# ---- the comparison itself -------------------------------------------------------------------------------------------


def test_a_difference_names_the_run_and_the_field(store: Any) -> None:
    (long,) = store.find("tag:long")
    found = json.loads(json.dumps(FACTS["runs"][long]))
    found["keys"][3] = "00"
    found["show"]["calls"]["fields"]["text"] = "~0"
    del found["edges"]["parent"]
    told = list(facts.differences({long: FACTS["runs"][long]}, {long: found}, "runs"))
    assert [line.partition(":")[0] for line in told] == [
        f"runs / {long} / keys / 3",
        f"runs / {long} / edges / parent",
        f"runs / {long} / show / calls / fields / text",
    ]
    swapped = dict(reversed(found.items()))
    assert next(facts.differences(found, swapped)).startswith(": the same fields in another order")
