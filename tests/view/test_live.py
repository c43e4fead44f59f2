"""While others write: runs appear, forks arrive, nothing is lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clew.core.records import Annotation
from clew.store import MemoryStore, open_store
from clew.store.contract import Script
from clew.store.sqlite import SQLiteStore
from clew.view.feed import Watcher
from tests.view.conftest import fill, serving

WRITER = """
import sys, time
sys.path[:0] = {paths!r}
from tests.view.conftest import runner
made = runner({store!r})
print("ready", flush=True)
sys.stdin.readline()
for number in range({groups}):
    made.collect(made.taskset.sample(2, seed=number), n=8, name=f"other{{number}}", seed=number)
    print(time.time(), flush=True)
made.store.close()
"""


def writer(store: Path, groups: int) -> subprocess.Popen:
    """Another process that makes runs once it is sent a line."""
    code = WRITER.format(paths=[str(Path(__file__).resolve().parents[2])], store=str(store), groups=groups)
    made = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert made.stdout.readline() == "ready\n"
    return made


@pytest.fixture
def copy(path, tmp_path):
    """A store that may be written."""
    place = tmp_path / "store.db"
    shutil.copy(path, place)
    return place


def test_a_run_of_another_process_is_in_the_stream_within_a_second(copy):
    with writer(copy, 1) as other, serving(copy) as client, client.events() as events:
        time.sleep(0.5)
        began = time.time()
        other.stdin.write("\n")
        other.stdin.flush()
        rows = {}
        for kind, data in events:
            if kind == "runs":
                rows.update((row["run"], (row, time.time())) for row in data["rows"])
            if len(rows) == 16 and all(row["reward"] is not None for row, _ in rows.values()):
                break
        assert time.time() - began < 10
        # `created` is when the run was filed: its first Call is committed no earlier
        assert max(seen - row["created"] for row, seen in rows.values()) < 1.0 + 1.0  # and a second to be judged
        assert other.wait(10) == 0
        assert {row["run"] for row in client.json("/api/runs", q="name=other0/*")["rows"]} == set(rows)


@pytest.mark.whole
def test_forks_run_while_another_process_writes_and_nothing_is_lost(copy):
    with writer(copy, 6) as other, serving(copy) as client, client.events() as events:
        other.stdin.write("\n")
        other.stdin.flush()
        body = {"run": "keep", "seq": 1, "n": 8, "seed": "fresh"}
        jobs = [client.push("/api/fork", body, status=202) for _ in range(3)]
        ended = {}
        for kind, data in events:
            if kind == "job" and data["state"] in ("done", "failed", "stopped"):
                ended[data["id"]] = data
                if len(ended) == 3:
                    break
        assert other.wait(60) == 0
        for job in jobs:
            done = ended[job["id"]]
            assert (done["state"], done["done"], done["error"]) == ("done", 8, "")
            assert done["rate"]["n"] == 8
            assert client.json("/api/runs", q=f"group={done['group']}")["total"] == 8
        name = client.json("/api/run/keep")["summary"]["run"]
        assert len(client.json(f"/api/run/{name}")["tree"]) == 1 + 24
        assert {job["state"] for job in client.json("/api/jobs")} == {"done"}
    with open_store(copy) as store:
        assert store.verify() == []
        assert store.page("name=other*").total == 6 * 16
        assert store.page("origin=fork").total == 24
        assert store.page("stop=open").total == 0


def test_a_fork_changes_what_was_asked_for(copy):
    with serving(copy) as client, client.events() as events:
        body = {"run": "keep", "seq": 1, "reply": "stop", "n": 1}
        assert client.push("/api/fork/command", body)["command"].endswith(f"@1 --reply stop --store {copy}")
        job = client.push("/api/fork", body, status=202)
        done = next(data for kind, data in events if kind == "job" and data["state"] in ("done", "failed"))
        assert done["id"] == job["id"]
        assert done["error"] == ""
        fork = done["runs"][0]["run"]
        (call,) = client.json(f"/api/run/{fork}/calls", start=1, stop=2)["calls"]
        assert (call["reply"]["text"], call["finish"]) == ("stop", "forced")
        assert [kind for *_, kind in call["reply"]["tokens"]][1] == "f"
        assert client.json(f"/api/run/{fork}")["tree"][1]["edits"] == ["reply := stop"]
        assert client.json("/api/diff", a="keep", b=fork)["at"] == 1


def test_a_job_that_fails_says_why(copy):
    with serving(copy) as client, client.events() as events:
        client.push("/api/fork", {"run": "keep", "seq": 1, "model": "no-such-model"}, status=202)
        done = next(data for kind, data in events if kind == "job" and data["state"] in ("done", "failed"))
        assert done["state"] == "failed"
        assert "no-such-model" in done["error"]
        assert client.json("/api/runs", q="origin=fork")["total"] == 0, "nothing is left behind"
        client.push("/api/jobs/none/stop", status=404)


@pytest.mark.whole
def test_a_job_can_be_stopped_and_its_runs_resumed(tmp_path):
    from clew.core.registry import build
    from clew.harness import Runner
    from clew.models.fakes import Markov

    place = tmp_path / "s.db"
    slow = build("tasksets", 'slow(of="counter(low=2, high=3, steps=8)",seconds=0.15)')
    made = Runner("player", slow, Markov(corpus="up\nup\ndown", order=1, tokens=True), place)
    name = made.collect(made.taskset.sample(1), n=1).runs[0].id
    made.store.close()
    with serving(place) as client, client.events() as events:
        job = client.push("/api/fork", {"run": name, "seq": 1, "n": 2, "seed": "fresh"}, status=202)
        late = client.push("/api/fork", {"run": name, "seq": 1, "n": 2, "seed": "fresh"}, status=202)
        for kind, data in events:
            if kind == "runs" and any(row["parent"] for row in data["rows"]):
                break
        client.push(f"/api/jobs/{late['id']}/stop")
        client.push(f"/api/jobs/{job['id']}/stop")
        for kind, data in events:
            if kind == "job" and data["id"] == job["id"] and data["remedy"]:
                break
        assert data["state"] == "stopped"
        assert "resume" in data["remedy"]
        assert {one["state"] for one in client.json("/api/jobs")} == {"stopped"}
        left = client.json("/api/runs", q="origin=fork")["rows"]
        assert [row["stop"] for row in left] == ["", ""]
    with open_store(place) as store:
        assert store.verify() == []
        assert store.leased() == []
        assert Runner.of(store, left[0]["run"]).resume(left[0]["run"]).stop is not None


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_the_watcher_reports_each_change_once(kind, tmp_path):
    now = [1000.0]
    store = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "s.db")
    other = store if kind == "memory" else SQLiteStore(tmp_path / "s.db")
    fill(other)
    watcher = Watcher(store, clock=lambda: now[0])
    assert [e for e in watcher.look() if e[0] != "live"] == []
    script = Script(other, "aaa", created=1000.0)
    script.open()
    other.commit()
    assert [row["run"] for row in watcher.look()[0][1]["rows"]] == ["aaa"]
    assert watcher.look() == []
    script.ask("what", "this")
    other.commit()
    assert watcher.look() == [], "an unfinished run is reported twice a second at most"
    now[0] += 0.6
    (event,) = watcher.look()
    assert [(row["run"], row["tokens"]) for row in event[1]["rows"]] == [("aaa", 2)]
    now[0] += 0.1
    script.end()
    other.commit()
    assert [row["stop"] for row in watcher.look()[0][1]["rows"]] == ["done"], "an end is reported at once"
    other.annotate([Annotation("run", "reward", 1.0, "aaa")])
    other.tag("aaa", "good")
    other.put_metrics("t", 0, {"x": 1.0})
    other.put_metrics("t", 1, {"x": 2.0})
    other.commit()
    now[0] += 2.0
    told = watcher.look()
    assert [kind for kind, _ in told] == ["runs", "training", "training", "live"]
    assert (told[0][1]["rows"][0]["reward"], told[0][1]["rows"][0]["tags"]) == (1.0, ["good"])
    assert told[2][1] == {"name": "t", "step": 1, "metrics": {"x": 2.0}}
    assert told[3][1]["success"] == 1.0
    now[0] += 2.0
    assert [kind for kind, _ in watcher.look()] in ([], ["live"])
    store.close()
    other.close()
