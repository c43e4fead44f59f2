"""Labels by hand: what is refused, what other programs may have put there, and many authors at once."""

from __future__ import annotations

import json
import threading

import pytest

from clew.core.errors import BadInput
from clew.core.records import Annotation
from clew.store import MemoryStore, open_store
from clew.store.contract import Script
from clew.store.labels import NOTE, VERDICTS, Label, brief, entries, said, verdict_set


@pytest.fixture
def run():
    return Script(MemoryStore(), created=1.0).play(2, 1.0)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"stars": 9}, "9 stars cannot be given\n  Give a whole number from 1 to 5."),
        ({"stars": 0}, "0 stars cannot be given"),
        ({"stars": True}, "True stars cannot be given"),
        ({"stars": 3.5}, "3.5 stars cannot be given"),
        ({"verdict": "goood"}, "'goood' is no verdict\n  Did you mean good?"),
        ({"note": "x" * 10_000_000}, "a note of 10,000,000 characters is too long\n  Write at most 20,000"),
        ({}, "says nothing\n  Give stars (1 to 5), a verdict or a note"),
        ({"note": " \n "}, "says nothing"),
        ({"stars": 3, "by": " "}, "'' cannot be the name of an author"),
        ({"stars": 3, "by": "x" * 81}, "cannot be the name of an author"),
        ({"stars": 3, "by": "ann\u202e"}, "'ann⟨RLO⟩' cannot be the name of an author"),
        ({"withdraw": ["reward"]}, "'reward' cannot be withdrawn\n  Name some of stars, verdict, note."),
    ],
)
def test_bad_input_is_one_sentence_and_a_remedy_and_files_nothing(run, given, told):
    with pytest.raises(BadInput) as caught:
        run.store.label(run.id, **{"by": "ann", **given})
    assert told in str(caught.value)
    assert len(str(caught.value)) < 300
    assert caught.value.remedy
    assert not entries(run.store)


@pytest.mark.parametrize("words", ["good", "good,good", "", "a b!", ",".join("abcdefghij"), ["good", "x" * 50]])
def test_a_set_of_verdicts_is_checked(words):
    with pytest.raises(BadInput, match="is no set of verdicts"):
        verdict_set(words)


def test_a_set_of_ones_own_takes_its_words_and_no_others(run):
    own = verdict_set("Helpful, off-topic harmful")
    assert own == ("helpful", "off-topic", "harmful")
    assert verdict_set(VERDICTS) == VERDICTS
    assert run.store.label(run.id, by="ann", verdict="Off-Topic", verdicts=own).verdict == "off-topic"
    with pytest.raises(BadInput, match="Known: helpful, off-topic, harmful"):
        run.store.label(run.id, by="ann", verdict="good", verdicts=own)


@pytest.mark.parametrize(
    "data",
    ["", "{", "[]", "7", '{"by": "x"}', '{"by": "x", "at": "soon"}', '{"by": 3, "at": 1}', '{"by": "x", "at": NaN}',
     '{"by": "x", "at": 1, "stars": 9}', '{"by": "x", "at": 1, "span": [5, 2]}', '{"by": "x", "at": 1, "span": 4}',
     '{"by": "x", "at": 1, "verdict": ["good"]}', json.dumps({"by": "x", "at": 1, "note": "y" * (NOTE + 1)})],
)  # fmt: skip
def test_what_another_program_filed_under_the_name_is_no_label(run, data):
    run.store.annotate([Annotation("run", "label", None, run.id, data=data)])
    run.store.label(run.id, by="ann", stars=3)
    assert [e.by for e in run.store.labels()] == ["ann"]
    assert run.store.find("stars=3") == [run.id]


def test_a_label_is_no_verdict_of_the_judge(run):
    run.store.label(run.id, by="ann", stars=1, verdict="bad")
    assert run.reward == 1.0
    assert run.store.summary(run.id).reward == 1.0


def test_a_clock_that_was_set_back_does_not_bring_an_earlier_word_back(run, monkeypatch):
    run.store.label(run.id, by="ann", stars=2)
    monkeypatch.setattr("clew.store.labels.time.time", lambda: 5.0)
    run.store.label(run.id, by="ann", stars=4)
    assert [e.stars for e in run.store.labels()] == [4]


def test_what_a_line_says_of_a_label_is_fit_for_a_terminal():
    label = Label("r", by="ann", stars=4, verdict="good", note="a\x1b[31mb\nc" + "x" * 999)
    assert said(label).startswith("good 4★ by ann: a␛[31mb c")
    assert len(said(label)) < 230
    assert brief([label, label._replace(by="bob"), label._replace(seq=3)]) == ["4★ ×2", "good ×2", "1 inside"]
    assert brief([Label("r", by="ann", note="n")]) == ["note"]


def test_two_authors_who_label_at_once_through_two_connections_lose_nothing(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        runs = [Script(store, created=float(n)).play(1).id for n in range(5)]

    def work(by):
        with open_store(path) as mine:
            for n, run in enumerate(runs * 4):
                mine.label(run, by=by, stars=1 + n % 5)

    threads = [threading.Thread(target=work, args=(by,)) for by in ("ann", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open_store(path) as store:
        assert len(entries(store)) == 40
        assert len(store.labels()) == 10
        assert store.verify() == []
