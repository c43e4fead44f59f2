# ruff: noqa: PT018  (checks are plain functions, not tests)
"""Checks of agents' memories: entries are kept as they are, united by union, and leave nothing when forgotten."""

from __future__ import annotations

from clew.core.errors import BadInput
from clew.store.contract.script import Factory, Script, expect
from clew.store.entries import Entry, Vector, entry
from clew.store.protocol import Tables

ODD = "a lone surrogate \ud800, a quote ' and a newline\n"


def _added(item: str, at: float, memory: str = "shop", **body: object) -> Entry:
    return entry(memory, item, at, "add", {"kind": "fact", "text": f"about {item}", **body})


def _items(store: Tables, memory: str | None = None) -> dict[str, str]:
    """Each item that is there, with what ended it; ``add`` where nothing did."""
    said: dict[str, list[str]] = {}
    for one in sorted((one for _, one in store.entries(memory)), key=lambda one: (one.at, one.key)):
        said.setdefault(one.item, []).append(one.what)
    ends = {item: [what for what in whats if what in ("supersede", "retire")] for item, whats in said.items()}
    return {item: [*ends[item], "add"][0] for item, w in said.items() if "add" in w and "deleted" not in w}


def keeps_entries(make: Factory) -> None:
    """Entries come back as they went in, numbered; the same twice is one; what is altered or too large is refused."""
    store = make()
    assert store.entries() == [] and store.memories() == []
    first = [_added("a", 1.0), entry("shop", "a", 2.0, "retire", {"why": ODD})]
    assert store.put_entries(first) == 2 and store.put_entries(first) == 0
    assert [one for _, one in store.entries()] == first
    last = store.entries()[-1].no
    assert store.put_entries([_added("b", 3.0, "desk"), first[0]]) == 1
    assert [one.item for _, one in store.entries(since=last)] == ["b"]
    assert [one.item for _, one in store.entries("desk")] == ["b"] and store.entries(
        "desk", store.entries()[-1].no
    ) == []
    assert store.memories() == ["desk", "shop"]
    assert _items(store) == {"a": "retire", "b": "add"}
    bad = [first[0]._replace(at=9.0), entry("shop", "c", 1.0, "sing"), entry("", "c", 1.0, "add")]
    bad += [entry("shop", "c", float("nan"), "add"), entry("shop", "c", 1.0, "add", {"text": "x" * 200_001})]
    bad += [entry("shop", "c", 1.0, "deleted", {"text": "still here"})]
    for one in bad:
        expect(BadInput, lambda one=one: store.put_entries([_added("d", 1.0), one]))  # type: ignore[misc]
    assert set(_items(store)) == {"a", "b"}, "of entries that come together, all are kept or none"
    assert store.verify() == []


def unites_memories(make: Factory) -> None:
    """A union holds what either had, in whatever order; a deleted item stays deleted; provenance keeps a run."""
    one, two = make(), make()
    run = Script(one, created=1.0).play(1)
    other = Script(one, created=2.0).play(1)
    one.put_entries([_added("a", 1.0, provenance=[f"{run.id}@2"]), _added("b", 2.0), _added("c", 3.0)])
    assert one.gc().runs == [other.id], "an item's provenance keeps the run"
    two.merge(one)
    two.put_entries([entry("shop", "b", 4.0, "supersede", {"by": "c", "why": "newer"})])
    one.put_entries([entry("shop", "b", 5.0, "retire"), entry("shop", "c", 5.0, "selected", {"place": "r@1"})])
    assert two.forget(["c", "nobody"]) == ["c"] and two.forget(["c"]) == []
    assert one.merge(two)["entries"] == 1 and one.merge(two)["entries"] == 0
    two.merge(one)
    assert _items(one) == _items(two) == {"a": "add", "b": "supersede"}
    said = [{entry for _, entry in store.entries()} for store in (one, two)]
    assert said[0] == said[1] and {e.what for e in said[0] if e.item == "c"} == {"deleted"}
    assert one.put_entries([_added("c", 9.0)]) == 0, "what was deleted is not added again"
    assert one.verify() == [] and one.memories() == ["shop"]


def forgets_items(make: Factory) -> None:
    """Of a forgotten item a tombstone is left, which a reader that asks for what is new hears of."""
    store = make()
    store.put_entries([_added("a", 1.0), _added("b", 2.0), entry("shop", "b", 3.0, "selected", {"query": "secret"})])
    last = store.entries()[-1].no
    assert store.forget(["b"]) == ["b"]
    assert [(one.item, one.what, one.body) for _, one in store.entries(since=last)] == [("b", "deleted", "{}")]
    assert set(_items(store)) == {"a"} and not any("secret" in one.body for _, one in store.entries())
    store.put_entries([_added("z", 4.0)])
    assert [one.item for _, one in store.entries(since=last)] == ["b", "z"], "no number is given twice"
    assert store.verify() == []


def keeps_vectors(make: Factory) -> None:
    """A vector is kept for each item and model, replaced when made anew, and gone with its item; no union takes it."""
    store, odd = make(), ODD[:40]
    store.put_entries([_added("a", 1.0), _added("b", 2.0), _added(odd, 3.0)])
    made = [Vector(item, "http://h/v1#m", bytes(16), item.encode(errors="replace") * 9) for item in ("a", "b", odd)]
    assert store.put_vectors([*made, Vector("nobody", "http://h/v1#m", bytes(16), b"1")]) == 3
    wanted = [odd, "a", "nobody", "b"]
    assert store.vectors("http://h/v1#m", wanted) == [made[2], made[0], made[1]]
    assert store.vectors("http://h/v1#other", wanted) == []
    again = made[0]._replace(text=b"1" * 16, values=b"anew")
    assert store.put_vectors([again, made[0]._replace(model="n")]) == 2
    assert store.vectors("http://h/v1#m", ["a"]) == [again] and len(store.vectors("n", ["a", "b"])) == 1
    for bad in (made[1]._replace(text=b""), made[1]._replace(values=b""), made[1]._replace(values=bytes(40_000))):
        expect(BadInput, lambda bad=bad: store.put_vectors([made[0], bad]))  # type: ignore[misc]
    assert store.vectors("http://h/v1#m", ["a"]) == [again], "of vectors that come together, all are kept or none"
    other = make()
    other.merge(store)
    assert other.vectors("http://h/v1#m", ["a"]) == []
    assert store.forget(["a"]) == ["a"] and store.vectors("http://h/v1#m", ["a"]) == store.vectors("n", ["a"]) == []
    assert store.put_vectors([again]) == 0, "what was deleted gets no vector again"
    assert store.vectors("http://h/v1#m", ["b"]) == [made[1]] and store.verify() == []
