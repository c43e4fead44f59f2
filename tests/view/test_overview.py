"""The runs of a query as a whole, and their export."""

from __future__ import annotations

import csv
import io
import json

import pytest

from clew.core.errors import BadInput, BadQuery
from clew.core.records import Annotation
from clew.store import MemoryStore
from clew.store.contract import Script
from clew.view.pages import list_pages
from clew.view.pages.overview import export, histogram, over, overview, table
from tests.view.conftest import serving

FORMULA = '=HYPERLINK("http://example.invalid","x")'


def filled():
    store = MemoryStore()
    for task in range(6):
        for nth in range(2):
            run = Script(store, f"r{task}x{nth}", task=f"t{task}", created=1e9 + 60 * task, model=f"m{nth}")
            run.play(task + 1, float(task > 2))
            store.annotate([Annotation("run", "stars", float(task), run.run)])
    one = Script(store, "crash", task=FORMULA, created=2e9)
    one.open()
    one.end("agent_error")
    Script(store, "live", task="t-live", created=2e9 + 1).open()
    return store


def test_a_query_is_summed_up_with_intervals_over_tasks():
    store = filled()
    found = overview(store, "")
    assert (found["runs"], found["tasks"], found["open"]) == (14, 8, 1)
    assert found["success"]["estimate"] == 0.5
    assert found["success"]["how"] == "bootstrap over 6 tasks"
    low, high = found["success"]["low"], found["success"]["high"]
    alone = overview(store, "model=m0")["success"]
    assert alone["how"] == "Wilson"
    assert (alone["estimate"], alone["n"]) == (0.5, 6)
    wilson = list_pages.share(6, 12)
    assert high - low > wilson["high"] - wilson["low"], "runs of a task are no independent ones"
    assert found["crashed"]["estimate"] == pytest.approx(1 / 13)
    assert found["lengths"]["steps"][1] == 3.0
    assert found["chart"]["counts"] == [6, 6]
    assert overview(store, "model=nobody")["success"] is None


def test_a_chart_counts_any_figure_or_label():
    store = filled()
    assert "stars" in overview(store, "")["values"]
    stars = overview(store, "", "stars")["chart"]
    assert (stars["counts"], stars["n"], stars["mean"]) == ([2] * 6, 12, 2.5)
    assert [mean for mean in stars["over"]["means"] if mean is not None] == [0, 1, 2, 3, 4, 5]
    assert overview(store, "", "nothing of the kind")["chart"]["counts"] == []
    assert overview(store, "", "steps")["chart"]["n"] == 14


def test_bins_hold_every_value():
    for values in ([1.0], [0.5, 0.5], [0.1, 0.9, 7.0], [float(n) for n in range(500)], [-1e9, 1e9], [-3.0, 4.0]):
        found = histogram(values)
        assert sum(found["counts"]) == len(values)
        assert len(found["counts"]) <= 32
    assert over([(1.0, 2.0)]) is None


def test_an_export_holds_every_run_once_as_jsonl_and_csv(monkeypatch):
    monkeypatch.setattr("clew.view.pages.overview.PIECE", 5)
    store = filled()
    lines = [json.loads(line) for line in export(store, "sort:task", "jsonl")]
    assert [line["run"] for line in lines] == store.find("sort:task")
    shown = [*list_pages.runs(store, "sort:task", 100, 0)["rows"]]
    assert [{name: line[name] for name in row} for line, row in zip(lines, shown, strict=True)] == shown
    table = list(csv.DictReader(io.StringIO("".join(export(store, "", "csv")))))
    assert {row["run"] for row in table} == set(store.find())
    crash = next(row for row in table if row["run"] == "crash")
    assert crash["task"] == "'" + FORMULA, "no spreadsheet runs it"
    assert crash["reward"] == ""
    with pytest.raises(BadInput):
        export(store, "", "xlsx")
    with pytest.raises(BadQuery):
        export(store, "wrld=x", "csv")


def test_labels_are_columns_of_an_export():
    store = filled()
    run, other = store.find()[:2]
    store.label(run, by="ann", stars=2, verdict="bad", note="=SUM(A1)")
    store.label(run, by="bob", stars=5, verdict="good")
    store.label(f"{other}@1", by="cem", verdict="bad")
    for line in (*csv.DictReader(io.StringIO("".join(export(store, "", "csv")))),):
        told = {"stars": "3.5", "verdicts": "bad good", "labelled_by": "ann bob", "notes": "ann: =SUM(A1)"}
        if line["run"] == run:
            assert line.items() >= told.items()
        else:
            assert (line["stars"], line["verdicts"], line["notes"]) == ("", "", "")
            assert line["labels_inside"] == ("1" if line["run"] == other else "0")
    best = next(json.loads(line) for line in export(store, "sort:-stars", "jsonl"))
    assert (best["run"], best["stars"], best["labelled_by"]) == (run, 3.5, ["ann", "bob"])
    assert list(csv.DictReader(io.StringIO("".join(table(store, [other, run])))))[1]["stars"] == "3.5"


def test_the_server_streams_an_export_and_explains_what_it_cannot():
    with serving(filled()) as client:
        assert client.json("/api/overview", q="return>0.5")["runs"] == 6
        answer = client.get("/api/export", params={"q": "return>0.5", "format": "csv"})
        assert answer.headers["content-disposition"] == 'attachment; filename="runs.csv"'
        assert len(answer.text.splitlines()) == 7
        assert len(client.get("/api/export").text.splitlines()) == 14
        assert client.json("/api/export", 400, q="wrld=x")["kind"] == "BadQuery"
        assert client.json("/api/export", 400, format="xlsx")["kind"] == "BadInput"
