"""Labels over HTTP: filed whole or refused in one sentence, told to every tab, and never where read-only."""

from __future__ import annotations

import pytest

from clew.store import open_store
from clew.store.labels import entries
from clew.store.sqlite import SQLiteStore
from tests.view.conftest import fill, serving


@pytest.fixture
def place(tmp_path):
    path = tmp_path / "store.db"
    with SQLiteStore(path) as store:
        fill(store)
    return path


@pytest.fixture
def client(place):
    with serving(place) as client:
        yield client


@pytest.fixture
def run(place):
    with open_store(place) as store:
        return store.find("name=evening*")[0]


def test_a_label_is_filed_shown_and_told(client, place, run):
    with client.events() as events:
        told = client.push("/api/label", {"place": f"{run}@1", "by": "ann", "stars": 4, "verdict": "good"}, 201)
        assert next(data for kind, data in events if kind == "label") == {"run": run, "place": f"{run}@1"}
        rows = next(data for kind, data in events if kind == "runs")["rows"]
    assert [(row["run"], row["labels"]) for row in rows] == [(run, ["1 inside"])]
    assert told["labels"][0] | {"at": 0} == {
        "place": f"{run}@1", "run": run, "seq": 1, "by": "ann", "at": 0, "stars": 4, "verdict": "good", "stands": True
    }  # fmt: skip
    page = client.json(f"/api/run/{run}/labels")
    assert (page["labels"], page["entries"], page["verdicts"]) == (told["labels"], 1, ["good", "unsure", "bad"])
    listed = {row["run"]: row["labels"] for row in client.json("/api/runs")["rows"]}
    assert listed[run] == ["1 inside"]
    assert sum(map(len, listed.values())) == 1
    assert [row["run"] for row in client.json("/api/runs", q="label:good stars>3 labelled-by:an")["rows"]] == [run]
    assert not any(a["method"] == "label" for a in client.json(f"/api/run/{run}/call/1")["annotations"])


@pytest.mark.parametrize(
    ("given", "status", "told"),
    [
        ({"stars": 9}, 400, "9 stars cannot be given"),
        ({"stars": "4"}, 400, "4 stars cannot be given"),
        ({"verdict": "goood"}, 400, "is no verdict"),
        ({"verdict": ["good"]}, 400, "verdict is a list"),
        ({"note": "x" * 20_001}, 400, "a note of 20,001 characters is too long"),
        ({"stars": 3, "by": ""}, 400, "cannot be the name of an author"),
        ({"stars": 3, "place": "RUN@99"}, 400, "has no Call 99"),
        ({"stars": 3, "place": "RUN@1+77"}, 400, "has no token 77"),
        ({"stars": 3, "place": "nobody"}, 404, "no run is called"),
        ({"stars": 3, "place": 7}, 400, "place is a int"),
        ({"withdraw": "stars"}, 400, "withdraw is no list"),
        ({"withdraw": ["reward"]}, 400, "cannot be withdrawn"),
        ({"stars": 3, "at": 5}, 400, "'at' is no field of a label"),
        ({}, 400, "says nothing"),
    ],
)
def test_bad_input_is_one_sentence_and_files_nothing(client, place, run, given, status, told):
    body = {"place": "RUN", "by": "ann", **given}
    body["place"] = str(body["place"]).replace("RUN", run) if isinstance(body["place"], str) else body["place"]
    answer = client.push("/api/label", body, status)
    assert told in answer["error"]
    assert answer["remedy"]
    with open_store(place) as store:
        assert not entries(store)


def test_a_note_of_ten_megabytes_is_refused(client, place, run):
    answer = client.post("/api/label", json={"place": run, "by": "ann", "note": "x" * 10_000_000})
    assert answer.status_code in (400, 413)
    assert len(answer.text) < 400
    with open_store(place) as store:
        assert not entries(store)


def test_nothing_is_filed_read_only_or_from_elsewhere(place, run):
    body = {"place": run, "by": "ann", "stars": 3}
    with serving(place, readonly=True) as client:
        assert "without --read-only" in client.push("/api/label", body, 403)["remedy"]
    with serving(place, token="secret") as client:
        assert client.post("/api/label", json=body).status_code == 401
        wrong = {"authorization": "Bearer secret", "origin": "http://elsewhere.example"}
        assert client.post("/api/label", json=body, headers=wrong).status_code == 403
        form = {"authorization": "Bearer secret", "content-type": "text/plain"}
        assert client.post("/api/label", content="{}", headers=form).status_code == 415
    with open_store(place) as store:
        assert not entries(store)
