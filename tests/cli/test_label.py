"""clew label: what two people say of runs and places in them, shown, found and taken back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clew.cli import label as verb
from clew.cli.shared import common
from clew.store import open_store
from clew.store.labels import VERDICTS, verdict_set

ATTACK = "\x1b[31mred\u202e\x07<script>"


@pytest.fixture
def run(store):
    with open_store(store) as opened:
        return opened.find()[0]


@pytest.fixture
def say(clew, store):
    return lambda *args, **more: clew(*args, "--store", store, **more)


def test_two_people_label_and_every_list_shows_it(say, run):
    out = say("label", run, "--stars", 4, "--verdict", "good", "--by", "ann", "--note", f"why {ATTACK}").output
    assert f"{run}  good 4★ by ann: why ␛[31mred⟨RLO⟩␇<script>" in out
    assert "\x1b" not in out
    say("label", run[:6], "--stars", 2, "--by", "bob")
    say("label", f"{run}@1", "--verdict", "bad", "--note", "here", env={"CLEW_AUTHOR": "bob"})
    shown = say("show", run).output
    assert "label: 2★ by bob" in shown
    assert "label: bad by bob: here" in shown
    assert "\x1b" not in shown
    for query in ("label=good", "stars>3", "labelled-by:ANN", "label=bad stars=2", "note:script", "label:oo -stars=5"):
        assert [row["run"] for row in json.loads(say("log", query, "--json").output)] == [run], query
    rows = json.loads(say("log", "--json").output)
    assert {row["run"]: row["labels"] for row in rows}[run] == ["2★", "4★", "good", "1 inside"]
    assert "labels" in say("log").output.split("\n")[0]
    told = json.loads(say("label", run, "--json").output)
    assert [(e["by"], e["place"], e.get("stars")) for e in told] == [
        ("ann", run, 4),
        ("bob", run, 2),
        ("bob", f"{run}@1", None),
    ]
    assert told[0]["note"] == f"why {ATTACK}".strip()
    assert len(json.loads(say("show", run, "--json").output)[0]["labels"]) == 3


def test_a_later_word_stands_and_what_is_cleared_is_gone_from_lists(say, run):
    say("label", run, "--stars", 4, "--note", "x", "--by", "ann")
    assert json.loads(say("label", run, "--stars", 1, "--by", "ann", "--json").output)["stars"] == 1
    assert say("log", "stars=4").output.startswith("no run matches")
    out = say("label", run, "--clear", "all", "--by", "ann").output
    assert f"{run}  nothing by ann" in out
    assert "has no labels; what makes one: clew label" in say("label", run).output
    assert json.loads(say("label", "--json").output) == []


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["@", "--stars", 3], "no run is called"),
        (["RUN@99", "--stars", 3], "has no Call 99"),
        (["RUN@1+999", "--stars", 3], "has no character 999"),
        (["RUN@x", "--stars", 3], "is no place"),
        (["RUN", "--stars", 9], "9 stars cannot be given"),
        (["RUN", "--verdict", "goood"], "Did you mean good?"),
        (["RUN", "--verdict", "good", "--verdicts", "yes,no"], "Known: yes, no"),
        (["RUN", "--verdict", "yes", "--verdicts", "yes"], "is no set of verdicts"),
        (["RUN", "--note", "x" * 20_001], "a note of 20,001 characters is too long"),
        (["RUN", "--stars", 3, "--by", " "], "cannot be the name of an author"),
        (["--stars", 3], "nothing is named"),
    ],
)
def test_bad_input_is_one_sentence_with_a_remedy(say, run, args, told):
    done = say("label", *(str(a).replace("RUN", run) for a in args), code=2)
    assert told in done.output
    assert len(done.output.strip().split("\n")) <= 3
    assert len(done.output) < 400


def test_without_a_login_name_a_label_asks_who_speaks(say, run, monkeypatch):
    def nobody():
        raise OSError("No username set in the environment")

    monkeypatch.setattr(verb.getpass, "getuser", nobody)
    assert "Give a name with --by, or set CLEW_AUTHOR." in say("label", run, "--stars", 3, code=2).output


def test_the_default_set_of_verdicts_is_that_of_the_store():
    default = common.verdicts_option(lambda: None).__click_params__[0].default
    assert set(verdict_set(default)) == set(VERDICTS)
    assert verdict_set(default) == VERDICTS


def test_exports_hold_what_two_people_say(say, store, tmp_path):
    rows = [row["run"] for row in json.loads(say("log", "--json").output)]
    with open_store(store) as opened:
        task = opened.row(rows[0]).task_id
        alike = [run for run in rows if opened.row(run).task_id == task]
    say("label", alike[0], "--stars", 5, "--by", "ann")
    say("label", alike[1], "--stars", 1, "--by", "ann")
    say("label", alike[1], "--verdict", "bad", "--by", "bob")
    assert "l.jsonl: 3 labels" in say("export", "--labels", "l.jsonl").output
    assert [json.loads(line)["by"] for line in Path("l.jsonl").read_text().splitlines()] == ["ann", "ann", "bob"]
    told = json.loads(say("export", "--pairs", "p.jsonl", "has=label", "--json").output)
    assert told["pairs"] == 1
    assert set(json.loads(Path("p.jsonl").read_text())) >= {"prompt", "chosen", "rejected"}
    assert "one kind of data" in say("export", "x.jsonl", "--pairs", "--labels", code=2).output
    assert "none of these runs is labelled" in say("export", "--labels", "x.jsonl", alike[2], code=2).output


def test_a_list_is_exported_with_labels_as_columns(clew, store):
    import csv
    import json

    runs = [row["run"] for row in json.loads(clew("log", "--json", "--store", store).stdout)]
    clew("label", runs[1], "--stars", 4, "--verdict", "good", "--by", "ann", "--store", store)
    clew("label", runs[2], "--stars", 2, "--by", "ann", "--store", store)
    assert clew("export", "list.csv", "sort:-stars", "--store", store).output == f"list.csv: {len(runs)} runs\n"
    with open("list.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["run"], row["stars"], row["verdicts"], row["labelled_by"]) for row in rows[:3]] == [
        (runs[1], "4.0", "good", "ann"), (runs[2], "2.0", "", "ann"), (rows[2]["run"], "", "", ""),
    ]  # fmt: skip
    clew("export", "two.csv", runs[0], runs[1], "--store", store)
    with open("two.csv", newline="") as file:
        assert [row["run"] for row in csv.DictReader(file)] == runs[:2]
    listed = json.loads(clew("log", "sort:-stars", "--json", "--store", store).stdout)
    assert [row["stars"] for row in listed[:3]] == [4.0, 2.0, None]
