"""A store made before files moved and circles of imports were cut (commit a3b4200) is used as if nothing had happened.

It opens, lists, shows, replays, forks, resumes with equal keys. ``store/make_store.py.txt`` made it with the code of
its time, and ``store/expected.json`` says what that code made of it. Every test has a copy of its own, in an empty
folder.

Not forked here, though replayed: the gate (its candidates ran outside of a sandbox, in a folder that is gone: nothing
restores them) and the tuner (its world needs the compiler, and times what it builds).
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.harness import Runner
from clew.serve.gateway.proxy import Gateway
from clew.store import Group, Run, open_store
from tests.compat import agents, reading
from tests.compat.shop import make

STORE = Path(__file__).parent / "store"
EXPECTED: dict[str, Any] = json.loads((STORE / "expected.json").read_text())

# a function whose imports alone were changed is another source; whether it still does the same, replay tells
pytestmark = pytest.mark.filterwarnings("ignore:the source of .* changed since run:UserWarning")


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("before") / "before.db"
    path.write_bytes(gzip.decompress((STORE / "before.db.gz").read_bytes()))
    return path


@pytest.fixture
def path(unpacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the store, its training and the file of its notepad; the names of its record are known."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLEW_STORE", raising=False)
    agents.register()
    shutil.copy(unpacked, tmp_path / "before.db")
    shutil.copy(STORE / "pad.txt", tmp_path / "pad.txt")
    shutil.copytree(STORE / "trainings", tmp_path / "trainings")
    return tmp_path / "before.db"


@pytest.fixture
def store(path: Path):  # type: ignore[no-untyped-def]
    opened = open_store(path)
    yield opened
    opened.close()


def runs(store: Any) -> list[Run]:
    return [Run(store, name) for name in EXPECTED["runs"]]


# ---- opens, lists, shows ---------------------------------------------------------------------------------------------


def test_it_opens_and_verifies(store):
    assert store.verify() == []
    assert store.verify(rebuild=True) == []
    assert {run.id: reading.fields(run) for run in runs(store)} == EXPECTED["runs"]
    assert sorted(store.run_ids()) == sorted(EXPECTED["runs"])


def test_what_is_filed_beside_the_runs_is_there(store):
    found = json.loads(json.dumps(reading.tables(store)))
    for name, wanted in EXPECTED["tables"].items():
        assert found[name] == wanted, name
    for name, (kind, task, _, members) in EXPECTED["tables"]["groups"].items():
        group = Group(store, name)
        assert (group.kind, group.task_id, [run.id for run in group]) == (kind, task, members)


def test_queries_find_the_same_runs_in_the_same_order(path, store):
    assert {query: store.find(query) for query in EXPECTED["find"]} == EXPECTED["find"]
    listed = json.loads(reading.clew("log", "-n", 0, "--json", "--store", path))
    assert [row["run"] for row in listed] == EXPECTED["find"][""]


def test_runs_are_drawn_as_they_were(path, store):
    """But conversations of the gateway, and tokens that nobody counted: their text in the fixture is the new one."""
    for name, (deep, full) in EXPECTED["trees"].items():
        assert str(clew.tree(Run(store, name), depth=2)) == deep
        assert str(clew.tree(Run(store, name), full=True)) == full
    for name, (forks, text) in EXPECTED["partings"].items():
        assert str(clew.tree(Run(store, name), [Run(store, fork) for fork in forks])) == text
    for name, text in EXPECTED["show"].items():
        assert reading.clew("show", name, "--width", 90, "--store", path) == text


def test_the_fixture_holds_what_the_issue_names(store):
    """Runs of every agent, forks of forks, in children, in groups and inside replies, gateway runs, open runs."""
    agents_of = {run.agent.rpartition(":")[2] for run in runs(store)}
    bundled = {"player", "demonstrator", "tool_user", "chatter", "transcript", "relay", "localiser", "gatekeeper",
               "tuner", "episode"}  # fmt: skip
    assert bundled | {"parent", "helper", "foreman", "everything"} == agents_of
    forks = [run for run in runs(store) if run.parent is not None]
    of_forks = [fork for fork in forks if Run(store, fork.parent.run).parent is not None]
    assert of_forks
    assert any(fork.row.spawned_by for fork in forks)
    assert any(fork.parent.token for fork in forks)
    assert {store.group(fork.group).kind for fork in forks if fork.group} == {"tree"}
    assert any(fork.agent.endswith(":relay") for fork in forks)
    assert len(store.find("stop=open")) == len([r for r in EXPECTED["runs"].values() if r["stop"] is None]) > 5


# ---- replays ---------------------------------------------------------------------------------------------------------


def test_every_run_replays_without_world_and_model(store):
    """All but the redacted run, two without a Call, and three that wait for the answer to a Call: an ask, an act in
    doubt, the gateway's next request. What a3b4200 made of those is no measure: it asked the model, and wrote."""
    assert len(EXPECTED["cannot replay"]) == 6
    for run in runs(store):
        if run.id not in EXPECTED["cannot replay"]:
            assert Runner.of(store, run, model=agents.Silent()).replay(run).calls == len(run.calls), run
            assert reading.keys(run) == EXPECTED["runs"][run.id]["keys"]


def test_runs_whose_model_is_known_by_name_replay_with_it(store):
    """But for a fork that changed to a model without tokens: a replay reads all of it by the one model it is given."""
    found = [
        run
        for run in runs(store)
        if run.model.startswith(("markov", "echo", "scripted("))
        and run.id not in EXPECTED["cannot replay"]
        and not any(edit.kind == "model" for edit in run.changes.edits)
    ]
    assert len(found) > 80
    for run in found:
        assert Runner.of(store, run).replay(run).calls == len(run.calls), run


def test_the_command_line_replays(path):
    for query in ("agent=gatekeeper", "agent=localiser", "agent=tuner", "agent=relay -stop=open", "agent=episode"):
        rows = json.loads(reading.clew("replay", query, "--json", "--store", path))
        assert rows
        assert all(row["error"] is None for row in rows)


# ---- forks -----------------------------------------------------------------------------------------------------------


def told(asked: dict[str, Any]) -> str:
    what = "-".join(asked.get("changes", ())) or f"seed-{asked['seed']}"
    agent = EXPECTED["runs"][asked["run"]]["agent"].rpartition(":")[2]
    return f"{agent}-{asked['run']}@{asked['seq']}+{asked.get('token', 0)}-{what}"


@pytest.mark.whole
@pytest.mark.parametrize("asked", EXPECTED["forks"], ids=told)
def test_forks_of_a_seed_are_the_same_forks(asked, store):
    if asked.get("model") == "policy":
        pytest.importorskip("torch", reason="did not run: torch is not installed")
    if asked.get("needs") == "git":
        if shutil.which("git") is None:
            pytest.skip("did not run: git is not installed")
        make(Path("shop"))
    before = set(store.run_ids())
    found, made = json.loads(json.dumps(reading.forked(store, asked))), asked["made"]
    if asked.get("model") == "policy":  # a key holds the bits of chances, which one processor rounds unlike another
        assert json.loads(json.dumps(reading.forked(store, asked))) == found, "here they are the same"
        found, made = ([[call[:-1] for call in fork] for fork in forks] for forks in (found, made))
    assert found == made
    assert store.verify() == []
    fresh = [Run(store, name) for name in store.run_ids() if name not in before]
    assert fresh
    for run in fresh:
        assert Runner.of(store, run, model=agents.Silent()).replay(run).calls == len(run.calls)


def test_the_command_line_forks(path, store):
    asked = EXPECTED["forks"][0]
    words = (f"{asked['run']}@{asked['seq']}", "-n", asked["n"], "--seed", asked["seed"], "--json", "--store", path)
    made = json.loads(reading.clew("fork", *words))["forks"]
    forks = [Run(store, row["run"]) for row in made]
    assert json.loads(json.dumps([reading.calls(fork, fork.shared) for fork in forks])) == asked["made"]


def as_before(value: Any, seen: bool = False) -> Any:
    """Calls without what the gateway did not yet keep of a request, and without the keys of the Calls from there on."""
    if not isinstance(value, list):
        return value
    out = []
    for item in value:
        call = isinstance(item, list) and len(item) == 5 and isinstance(item[4], str)
        if call and '"receive"' in item[1] and '"number"' in item[2]:
            told = {k: v for k, v in json.loads(item[2]).items() if k not in ("model", "tools", "rest")}
            item, seen = [*item[:2], told, *item[3:]], True
        out.append(item[:4] if call and seen else as_before(item))
    return out


def test_a_program_behind_the_gateway_is_answered_as_before(store):
    it = Gateway(store, lambda dialect, name, extra: agents.adder())
    for name, work in (("one", reading.restarted), ("killed", reading.gone_on)):
        run = store.runs(f"tag:{name}")[-1]
        assert as_before(json.loads(json.dumps(work(it, run)))) == as_before(EXPECTED["gateway"][name])
    assert store.verify() == []


# ---- resumes ---------------------------------------------------------------------------------------------------------


def resumed(store: Any) -> dict[str, list[Any]]:
    found = store.runs("name=cut/*")
    return {str(run.row.order): [str(run.stop), run.reward, reading.keys(run)] for run in found}


def test_interrupted_runs_end_as_if_nothing_had_happened(path, store):
    left = [run.id for run in store.runs("name=cut/*") if run.stop is None]
    assert len(left) == 3
    done = json.loads(reading.clew("resume", *left, "--json", "--store", path))
    assert sorted(row["run"] for row in done["finished"]) == sorted(left)
    assert resumed(store) == EXPECTED["resumed"]["cut"]
    assert store.verify() == []
    assert all(Runner.of(store, run).replay(run).calls == len(run.calls) for run in store.runs("name=cut/*"))


def test_an_interrupted_collection_of_a_name_goes_on(store):
    before = store.find("name=cut/*")
    runner = Runner.of(store, before[0])
    tasks = [runner.taskset.find(store.group(name).task_id)
             for name, row in EXPECTED["tables"]["groups"].items() if row[2].startswith("cut/")]  # fmt: skip
    runner.collect(tasks, n=3, seed=3, name="cut")
    assert store.find("name=cut/*") == before
    assert resumed(store) == EXPECTED["resumed"]["cut"]


def test_an_effect_in_doubt_is_still_in_doubt(path, store):
    (run,) = store.runs("name=doubt/*")
    assert run.stop is None
    refused = reading.clew("resume", run.id, "--json", "--store", path, code=2)
    assert "was begun" in json.loads(refused)["failed"][run.id]
    reading.clew("resume", run.id, "--redo", "--store", path)
    run = Run(store, run.id)
    assert [str(run.stop), run.reward, reading.keys(run)] == EXPECTED["resumed"]["doubt"]
    assert len(Path("pad.txt").read_text().splitlines()) == 3


def test_a_training_half_done_goes_on(path, store):
    """Runs of the stopped iteration that had ended are used, those that had not are finished; then come new ones."""
    pytest.importorskip("torch", reason="did not run: torch is not installed")
    begun, whole = store.find("name=half/*"), EXPECTED["training"]
    ended = {run.id: reading.keys(run) for run in store.runs("name=half/*") if run.stop is not None}
    made = json.loads(reading.clew(*reading.training("half", path), "--json"))
    assert sorted(made["metrics"]) == ["0", "1", "2"]
    assert set(begun) < set(store.find("name=half/*"))
    assert {name: reading.keys(Run(store, name)) for name in ended} == ended
    found = json.loads(json.dumps(reading.trained(store, "half")))
    assert found[:12] == whole["half"][:12], "what the weights of the checkpoint said"
    assert [row[:3] for row in found] == [row[:3] for row in whole["half"]]
    model = agents.policy()
    clew.Trainer(model, 0.001).load(path.parent / "trainings" / "half" / "checkpoint")
    assert reading.weights(model) == pytest.approx(whole["weights"], abs=3e-4)  # CPUs differ in last bits
    model.close()
    assert store.verify() == []


def test_trees_half_grown_grow_on(path, store):
    pytest.importorskip("torch", reason="did not run: torch is not installed")
    begun = store.find("name=half-tree/*")
    reading.clew(*reading.training("half-tree", path))
    assert set(begun) < set(store.find("name=half-tree/*"))
    assert json.loads(json.dumps(reading.trained(store, "half-tree"))) == EXPECTED["training"]["half-tree"]
    assert store.verify() == []
