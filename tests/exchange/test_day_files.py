"""Parquet files by day: each run once, no file written twice."""

from __future__ import annotations

import fcntl

import pytest

from clew.core.errors import BadInput
from clew.exchange.day_files import append, known_runs
from clew.store import MemoryStore
from clew.store.contract import Script

DAY = 86_400.0


def held(folder):
    return {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in folder.rglob("*.parquet")}


def test_runs_are_appended_and_no_file_is_written_again(tmp_path):
    dataset = pytest.importorskip("pyarrow.dataset", reason="did not run: pyarrow is not installed")
    store, folder, seen = MemoryStore(), tmp_path / "runs", []
    for number in range(5):
        Script(store, f"run{number}", created=number * DAY / 2).play(2, float(number % 2))
    going = Script(store, "going", created=0.5)
    going.open()
    store.commit()
    assert append(store, store.run_ids(), folder, progress=seen.append) == (5, 0, 1)
    assert seen[-1] == 5
    before = held(folder)
    assert sorted(file.parent.name for file in before) == ["day=1970-01-01", "day=1970-01-02", "day=1970-01-03"]
    assert append(store, store.run_ids(), folder) == (0, 5, 1)
    assert held(folder) == before
    going.end()
    Script(store, "later", agent="\ud800", created=2.5 * DAY).play(1, end=True)
    assert append(store, ["going", "later", "run1"], folder) == (2, 1, 0)
    assert {file: held(folder)[file] for file in before} == before
    table = dataset.dataset(folder, partitioning="hive", exclude_invalid_files=True).to_table()
    rows = {row["run"]: row for row in table.to_pylist()}
    assert len(table) == len(rows) == 7
    assert known_runs(folder) == set(rows)
    for made in store.summaries():
        row = rows[made.run]
        assert (row["world"], row["task_id"], row["steps"], row["tokens"], row["cost"], row["reward"], row["stop"]) == (
            made.world, made.task, made.steps, made.tokens, made.cost, made.reward, made.stop,
        )  # fmt: skip
    assert rows["run1"]["messages"][0]["content"] == "view 0"


def test_a_folder_of_others_and_one_that_is_in_use(tmp_path):
    pytest.importorskip("pyarrow", reason="did not run: pyarrow is not installed")
    store = MemoryStore()
    Script(store, "run", created=1.0).play(1)
    with (tmp_path / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BadInput, match="another process"):
            append(store, ["run"], tmp_path)
    (tmp_path / "day=2026-01-01").mkdir()
    (tmp_path / "day=2026-01-01" / "theirs.parquet").write_bytes(b"no")
    with pytest.raises(BadInput, match="theirs"):
        append(store, ["run"], tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput):
        append(store, ["run"], tmp_path / "file")


def test_what_a_killed_export_left_is_ignored_and_removed(tmp_path):
    """Half a Parquet file of ours, of a process that is gone; a file of somebody else that begins so stays."""
    store = MemoryStore()
    run = Script(store, created=1e9).play(1)
    day = tmp_path / "day=2026-11-28"
    day.mkdir()
    left, theirs = day / ".runs-yqms7hvhz4pr.32683.parquet", day / ".notes.parquet"
    left.write_bytes(b"PAR1 and then the power failed")
    theirs.write_bytes(b"PAR1 mine")
    assert known_runs(tmp_path) == set()
    assert append(store, [run.id], tmp_path).written == 1
    assert not left.exists()
    assert theirs.read_bytes() == b"PAR1 mine"
    assert append(store, [run.id], tmp_path) == (0, 1, 0)
