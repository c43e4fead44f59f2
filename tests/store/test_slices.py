"""Derived tables that are filled slice by slice are the same as those that are filled in one go."""

from __future__ import annotations

import pytest

from clew.store import MemoryStore
from clew.store.contract import Script
from clew.store.slices import Unfinished, limited
from clew.store.sqlite import SQLiteStore

RUNS = 30


def filled(path):
    """Runs that ended, and every fifth that goes on."""
    store = SQLiteStore(path)
    for number in range(RUNS):
        Script(store, f"run{number:02}", created=float(number)).play(2, float(number % 2), end=number % 5 > 0)
    store.close()


def in_slices(work):
    """What work gives at last, and how far it was each time that it was left."""
    far = []
    while True:
        assert len(far) < 200, "it does not end"
        try:
            with limited(0.0):
                return work(), far
        except Unfinished as told:
            far.append((told.what, told.done, told.total))


@pytest.mark.parametrize("readonly", [False, True])
def test_a_list_made_in_slices_is_the_list(tmp_path, readonly):
    filled(tmp_path / "a.db")
    with SQLiteStore(tmp_path / "a.db", readonly=True) as store:
        whole = store.page("sort:-steps")
    with SQLiteStore(tmp_path / "a.db", readonly=readonly) as store:
        page, far = in_slices(lambda: store.page("sort:-steps"))
        assert far == [("list", done, RUNS) for done in range(1, RUNS)], "each slice goes on where the last one ended"
        assert page == whole
        assert page.total == RUNS


def test_what_is_counted_in_slices_is_told_once(tmp_path):
    filled(tmp_path / "a.db")
    store, told = SQLiteStore(tmp_path / "a.db"), []
    mark = 0
    for _ in range(RUNS + 1):
        try:
            with limited(0.0):
                mark, fresh = store.changed(mark)
        except Unfinished:
            continue
        told += fresh
    assert sorted(told) == sorted(store.run_ids())
    store.close()


def test_another_connection_goes_on_where_one_stopped(tmp_path):
    filled(tmp_path / "a.db")
    one, other = SQLiteStore(tmp_path / "a.db"), SQLiteStore(tmp_path / "a.db")
    for _ in range(20):
        with pytest.raises(Unfinished), limited(0.0):
            one.changed()
    with pytest.raises(Unfinished) as told, limited(0.0):
        other.changed()
    assert told.value.done > 15, "the ended ones of the first twenty are in the file"
    readonly, twin = (SQLiteStore(tmp_path / "a.db", readonly=True) for _ in range(2))
    in_slices(readonly.changed)
    twin.adopt(readonly)
    assert len(in_slices(twin.changed)[1]) < RUNS // 5, "only those that go on are left"
    assert twin.page("").rows == readonly.page("").rows
    for store in (one, other, readonly, twin):
        store.close()


@pytest.mark.parametrize("readonly", [False, True])
def test_a_search_in_slices_finds_what_one_in_one_go_finds(tmp_path, readonly):
    filled(tmp_path / "a.db")
    memory = MemoryStore()
    memory.merge(SQLiteStore(tmp_path / "a.db", readonly=True))
    with SQLiteStore(tmp_path / "a.db", readonly=readonly) as store:
        found, far = in_slices(lambda: store.search(["act", "1"]))
        assert found == memory.search(["act", "1"]) == set(store.run_ids())
        assert len(far) >= RUNS - 2
        assert far == sorted(far), "it only ever goes on"
        again, far = in_slices(lambda: store.search(["act", "1"]))
        assert (again, far) == (found, []), "nothing is read twice"
        assert store.search(["no", "such"]) == set()


def test_a_run_that_went_on_is_read_again(tmp_path):
    store = SQLiteStore(tmp_path / "a.db")
    script = Script(store, "live")
    script.open("a closed door")
    store.commit()
    assert store.search(["window"]) == set()
    script.ask("and now?", "a window")
    store.commit()
    assert store.search(["window"]) == {"live"}
    script.end()
    store.commit()
    assert store.search(["window"]) == {"live"}
    store.close()


def test_what_was_redacted_is_not_found_by_a_reader_that_once_read_it(tmp_path):
    with SQLiteStore(tmp_path / "a.db") as store:
        Script(store, "run").play(2, 1.0)
        reader = SQLiteStore(tmp_path / "a.db", readonly=True)
        assert reader.search(["result", "1"]) == {"run"}
        call = next(call for call in store.calls("run") if call.text == "result 1")
        store.redact(f"run@{call.seq}")
        assert reader.search(["result", "1"]) == set()
        reader.close()
