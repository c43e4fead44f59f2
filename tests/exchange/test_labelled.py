"""Labels and preference pairs as files: whole, hostile text included, and pairs as trainers read them."""

from __future__ import annotations

import json

import pytest

from clew.core.errors import BadInput
from clew.exchange.labelled import write_labels, write_pairs
from clew.store import MemoryStore, Run
from clew.store.contract import Script, fork_at

ATTACK = '\x1b[31m\u202e"}\n{"by": "mallory"}\u2028</script>'


@pytest.fixture
def store():
    store = MemoryStore()
    runs = [Script(store, f"r{n}", task=task, created=float(n)) for n, task in enumerate("aab")]
    for n, script in enumerate(runs):
        script.open("see")
        script.ask("see", "> same", 2)
        script.act("> same", "then")
        script.ask("then", f"> other {n}", 2)
        script.end()
    store.commit()
    return store


def lines(path):
    return [json.loads(line) for line in path.read_text().strip().split("\n")]


def test_every_entry_is_a_line_and_says_whether_it_stands(store, tmp_path):
    store.label("r0", by="ann", stars=2)
    store.label("r0", by="ann", stars=4, note=ATTACK)
    store.label("r0@1+0:2", by="bob", verdict="bad")
    fork = fork_at(store, Run(store, "r0"), 2, run="fork")
    fork.end()
    assert write_labels([Run(store, "r0"), Run(store, "fork")], tmp_path / "l.jsonl") == 3
    made = lines(tmp_path / "l.jsonl")
    assert [(m["place"], m["by"], m["stands"]) for m in made] == [
        ("r0", "ann", False), ("r0", "ann", True), ("r0@1+0:2", "bob", True)]  # fmt: skip
    assert made[1]["note"] == ATTACK
    assert made[2]["span"] == [0, 2]
    assert made[2]["verdict"] == "bad"


def test_a_pair_begins_with_what_both_saw_and_parts_at_a_reply(store, tmp_path):
    store.label("r0", by="ann", stars=2)
    store.label("r1", by="ann", stars=4)
    store.label("r2", by="ann", stars=5)
    count, alone, pairs = write_pairs(map(store.run, store.run_ids()), tmp_path / "p.jsonl")
    assert (count, alone, pairs.single) == (1, 0, 1)
    line = lines(tmp_path / "p.jsonl")[0]
    assert [m["content"] for m in line["prompt"]] == ["see", "> same", "then"]
    assert line["chosen"] == [{"role": "assistant", "content": "> other 1"}]
    assert line["rejected"] == [{"role": "assistant", "content": "> other 0"}]
    assert line["clew"] == {"chosen": "r1", "rejected": "r0", "by": ["ann"], "votes": 1}


def test_runs_that_say_the_same_are_no_pair(store, tmp_path):
    Script(store, "twin", task="b").play(1)
    Script(store, "other", task="b").play(1)
    store.label("twin", by="ann", stars=1)
    store.label("other", by="ann", stars=5)
    with pytest.raises(BadInput, match="the 1 pairs of these runs say the same, or share no prompt"):
        write_pairs([Run(store, "twin"), Run(store, "other")], tmp_path / "p.jsonl")


def test_nothing_labelled_and_other_files_are_one_sentence(store, tmp_path):
    runs = [Run(store, "r0")]
    with pytest.raises(BadInput, match="none of these runs is labelled\n  Label some"):
        write_labels(runs, tmp_path / "l.jsonl")
    with pytest.raises(BadInput, match="order no two runs of a task"):
        write_pairs(runs, tmp_path / "p.jsonl")
    with pytest.raises(BadInput, match=r"Name a \.jsonl file"):
        write_pairs(runs, tmp_path / "p.parquet")
    assert not list(tmp_path.iterdir())
