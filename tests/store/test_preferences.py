"""Which of two things people prefer: planted labels whose order is known, and labels that order nothing."""

from __future__ import annotations

import pytest

from clew.store import MemoryStore, Run
from clew.store import preferences as module
from clew.store.contract import Script, fork_at
from clew.store.preferences import preferences


def store_of(tasks: str) -> tuple[MemoryStore, list[Run]]:
    store = MemoryStore()
    return store, [Script(store, f"r{n}", task=task, created=float(n)).play(2, 1.0) for n, task in enumerate(tasks)]


def told(pairs):
    return sorted((p.chosen.place, p.rejected.place, p.by, p.votes) for p in pairs.found)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("ann r0 stars=4; ann r1 stars=2", [("r0", "r1", ("ann",), 1)]),
        ("ann r0 verdict=bad; ann r1 verdict=good", [("r1", "r0", ("ann",), 1)]),
        ("ann r0 stars=3 verdict=bad; ann r1 stars=3 verdict=good", [("r1", "r0", ("ann",), 1)]),
        ("ann r0 stars=4; ann r1 stars=2; bob r0 stars=5; bob r1 stars=1", [("r0", "r1", ("ann", "bob"), 2)]),
        ("ann r0 stars=4; ann r1 stars=2; bob r0 stars=1; bob r1 stars=5", []),
        ("ann r0 verdict=good; bob r1 verdict=bad", [("r0", "r1", ("ann", "bob"), 1)]),
        ("ann r0 stars=5; bob r1 stars=1", []),
        ("ann r0 verdict=unsure; ann r1 verdict=good", []),
        ("ann r0 verdict=good; bob r0 verdict=bad; cem r1 verdict=bad", []),
        ("ann r0 stars=3; ann r1 stars=3", []),
        ("ann r0 note=x; ann r1 note=y", []),
        ("ann r0 stars=5; ann r2 stars=1", []),
    ],
)
def test_planted_labels(said, wanted):
    store, runs = store_of("aab")
    for line in said.split("; "):
        by, run, *given = line.split()
        values = {name: int(v) if v.isdecimal() else v for name, v in (pair.split("=") for pair in given)}
        store.label(run, by=by, **values)
    assert told(preferences(runs)) == wanted


def test_a_set_of_ones_own_is_ordered_best_first():
    store, runs = store_of("aa")
    own = ("helpful", "plain", "harmful")
    store.label("r0", by="ann", verdict="harmful", verdicts=own)
    store.label("r1", by="ann", verdict="plain", verdicts=own)
    assert told(preferences(runs, own)) == [("r1", "r0", ("ann",), 1)]
    assert told(preferences(runs)) == []
    assert preferences(runs).tied == 1


def test_replies_to_the_same_messages_are_compared_and_spans_are_not():
    store, runs = store_of("a")
    fork = fork_at(store, runs[0], 3, run="fork")
    fork.ask("view 1", "> other", 2)
    fork.end()
    store.label("r0@3", by="ann", stars=1)
    store.label("fork@3", by="ann", stars=5)
    store.label("r0@1", by="ann", stars=2)
    store.label("r0@3+0", by="bob", stars=5)
    store.label("fork@3+0", by="bob", stars=1)
    store.label("r0@2", by="ann", stars=5)
    pairs = preferences([*runs, Run(store, "fork")])
    same = store.calls("r0")[3].node_in == store.calls("fork")[3].node_in
    assert same
    assert told(pairs) == [("fork@3", "r0@3", ("ann",), 1)]
    assert pairs.single == 1


def test_what_gave_no_pair_is_counted(monkeypatch):
    monkeypatch.setattr(module, "MOST", 2)
    store, runs = store_of("aaab")
    for n, run in enumerate(runs):
        store.label(run.id, by="ann", stars=5 - n)
    store.label("r0", by="ann", stars=4)
    pairs = preferences(runs)
    assert (len(pairs.found), pairs.tied, pairs.left_out, pairs.single) == (2, 1, 0, 1)
    assert str(pairs) == "2 pairs; 1 that people do not order; 1 labelled alone in their task or prompt"
    store.label("r0", by="ann", stars=5)
    assert preferences(runs).left_out == 1
