"""A store that was never listed or searched: pages hear how far that is, and nothing goes on for those who left."""

from __future__ import annotations

import sqlite3
import time

import pytest

from clew.store.contract import Script
from clew.store.sqlite import SQLiteStore
from clew.view import stores
from tests.view.conftest import serving

RUNS = 40


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A store whose every run takes a request of its own to be indexed, as thousands do in a large one."""
    monkeypatch.setattr(stores, "SLICE", 0.0)
    store = SQLiteStore(tmp_path / "large.db")
    for number in range(RUNS):
        Script(store, f"run{number:02}", created=float(number)).play(3, 1.0)
    long = Script(store, "long", created=99.0)
    for number in range(2000):
        long.ask(f"look {number}", f"a thing {number}")
    long.end()
    store.close()
    return store.path


def rows_of(path, table):
    with sqlite3.connect(path) as db:
        known = db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        return db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] if known else 0


def asked(client, path, **params):
    """The answer at last, and what was said before it."""
    told = []
    while True:
        answer = client.get(path, params=params)
        assert answer.status_code in (200, 202), answer.text
        if answer.status_code == 200:
            return answer.json(), told
        told.append(answer.json())
        params |= {"from": told[-1]["done"]} if told[-1]["wait"] == "calls" else {}


@pytest.mark.parametrize("readonly", [False, True])
def test_a_list_that_is_still_made_says_how_far_it_is(large, readonly):
    with serving(large, readonly=readonly) as client:
        first = client.get("/api/runs")
        assert (first.status_code, set(first.json())) == (202, {"wait", "done", "total"})
        assert first.json()["total"] == RUNS + 1
        assert client.json("/api/jobs") == [], "what needs no list does not wait for it"
        assert client.json("/api/run/run00/call/1")["usage"]
        page, told = asked(client, "/api/runs")
        assert page["total"] == RUNS + 1
        far = [one["done"] for one in told]
        assert far == sorted(far)
        assert {one["wait"] for one in told} == {"list"}
        assert len(asked(client, "/api/run/run00")[1]) < 5, "other pages need not begin anew"


@pytest.mark.parametrize("readonly", [False, True])
def test_a_search_says_how_far_it_is_and_finds_all(large, readonly):
    with serving(large, readonly=readonly) as client:
        asked(client, "/api/runs")
        page, told = asked(client, "/api/runs", q='text:"a thing 7"')
        assert [row["run"] for row in page["rows"]] == ["long"]
        assert {one["wait"] for one in told} == {"words"}
        assert len(told) > RUNS - 2


def test_a_search_that_nobody_waits_for_ends(large):
    with serving(large) as client:
        asked(client, "/api/runs")
        client.get("/api/runs", params={"q": "text:result"})
        read = rows_of(large, "worded_1")
        time.sleep(0.3)
        assert 0 < read == rows_of(large, "worded_1") < RUNS, "it went on after its client left"
        assert client.json("/api/runs", q="calls>1", limit=1)["total"] == RUNS + 1


def test_a_search_in_one_run_goes_on_from_where_it_was(large):
    with serving(large) as client:
        asked(client, "/api/run/long")
        found, told = asked(client, "/api/find", run="long", text="a thing 1900")
        assert found == {"seq": 1900}
        assert [one["done"] for one in told] == sorted({one["done"] for one in told})
        assert len(told) > 3
