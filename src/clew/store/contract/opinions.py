# ruff: noqa: PT018  (checks are plain functions, not tests)
"""Checks of labels: authors side by side, the last word of each, merging, redaction, garbage collection."""

from __future__ import annotations

from clew.core.errors import BadInput, UnknownName
from clew.store.contract.script import Factory, Script, expect, fork_at
from clew.store.labels import Label, entries
from clew.store.run import Run

SECRET = "a secret that is longer than thirty-two characters"


def keeps_labels(make: Factory) -> None:
    """Two authors never overwrite each other; an author's last word stands, the earlier stays in the record."""
    store = make()
    run = Script(store, created=1.0).play(2, 1.0)
    store.label(run.id, by="ann", stars=2, note="slow")
    store.label(run.id, by="bob", stars=5, verdict="good")
    store.label(run.id, by="ann", stars=4)
    store.label(f"{run.id}@3", by="ann", verdict="bad")
    store.label(f"{run.id}@3+0:2", by="ann", note="here")
    store.label(f"{run.id}@3+1", by="ann", verdict="unsure")
    told = {(e.seq, e.span, e.by): (e.stars, e.verdict, e.note) for e in store.labels()}
    assert told == {
        (-1, None, "ann"): (4, "", "slow"),
        (-1, None, "bob"): (5, "good", ""),
        (3, None, "ann"): (None, "bad", ""),
        (3, (0, 2), "ann"): (None, "", "here"),
        (3, (1, 2), "ann"): (None, "unsure", ""),
    }
    assert [e.stars for e in entries(store, [run.id])][:3] == [2, 5, 4], "earlier words stay in the record"
    assert [e.at for e in entries(store)] == sorted(e.at for e in entries(store))
    other = [Script(store, created=float(n)).play(1, 1.0).id for n in (2, 3)]
    store.label(other[0], by="ann", stars=5)
    store.label(f"{other[1]}@1", by="ann", stars=5)
    assert store.find("sort:-stars") == [other[0], run.id, other[1]], "the mean of the stars on the whole run"
    assert store.find("sort:stars") == [run.id, other[0], other[1]], "a run without stars sorts last"
    store.label(run.id, by="ann", withdraw=["stars", "note"])
    assert [e.by for e in store.labels() if e.seq < 0 and e.run == run.id] == ["bob"]
    assert len(entries(store, [run.id])) == 7
    fork = fork_at(store, run, 4)
    fork.end()
    assert store.label(f"{fork.run}@3", by="cem", verdict="good").run == run.id, "a shared Call has one place"
    inside = {(e.seq, e.by) for e in Run(store, fork.run).labels}
    assert inside == {(3, "ann"), (3, "cem")}, "a fork has the labels of what it shares, not those of the run"
    for place in (f"{run.id}@99", f"{run.id}@3+2", f"{run.id}@3+1:9", f"{run.id}@3+2:1", f"{run.id}@2+0", "@", "a@b"):
        expect(BadInput, lambda place=place: store.label(place, by="ann", stars=1))  # type: ignore[misc]
    expect(UnknownName, lambda: store.label("nobody", by="ann", stars=1))
    assert store.verify() == []
    twin = make()
    twin.merge(store)
    twin.merge(store)
    assert entries(twin) == entries(store), "a union holds every entry once"
    twin.label(run.id, by="dee", verdict="bad")
    store.merge(twin)
    assert {e.by for e in store.labels() if e.seq < 0 and e.run == run.id} == {"bob", "dee"}


def forgets_labels(make: Factory) -> None:
    """A labelled run is no garbage; a redaction empties the notes that quote what it erases, and no others."""
    store = make()
    one, other = (Script(store, created=float(n)).play(1) for n in range(2))
    asked = Script(store, created=3.0)
    asked.open(SECRET)
    asked.ask(SECRET, "a reply")
    asked.end()
    store.commit()
    store.label(one.id, by="ann", stars=1)
    assert set(store.gc().runs) == {other.id, asked.run}
    store.label(asked.run, by="ann", note=f"it was told {SECRET}", verdict="bad")
    store.label(f"{asked.run}@0", by="ann", note="on the Call itself")
    store.label(asked.run, by="bob", note="nothing of it")
    store.label(one.id, by="bob", note="elsewhere")
    store.redact(f"{asked.run}@0")
    notes = {(e.run, e.seq, e.by): (e.note, e.verdict) for e in store.labels() if e.note}
    assert notes == {
        (asked.run, -1, "ann"): ("(redacted)", "bad"),
        (asked.run, 0, "ann"): ("(redacted)", ""),
        (asked.run, -1, "bob"): ("nothing of it", ""),
        (one.id, -1, "bob"): ("elsewhere", ""),
    }
    assert SECRET not in str(entries(store)) and store.verify() == []
    assert Label(one.id, 3, (1, 4)).place == f"{one.id}@3+1:4"
