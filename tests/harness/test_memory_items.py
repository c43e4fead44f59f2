"""Items of a memory: checked when they come in, never changed in place, taken elsewhere as lines, deleted for good."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from clew.core.errors import BadInput, BadRecord, UnknownName
from clew.harness.memory import Memory
from clew.harness.memory.forgetting import forget, places
from clew.harness.memory.item_lines import Taken, line_of, take_lines
from clew.harness.memory.recalled import Recalled, Shown, recorded
from clew.harness.memory.telling import told
from clew.store import Keeper, open_store
from clew.store.contract import Script
from clew.store.entries import entry

PIT = {"trigger": "a page is full", "mistake": "stop", "consequence": "half the rows", "fix": "ask for the next page"}
SECRET = "the safe opens with 4711, which nobody may ever read again"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Keeper]:
    with open_store(tmp_path / "a.db") as opened:
        yield opened


def test_an_item_is_kept_with_where_it_comes_from(store: Keeper) -> None:
    run = Script(store, created=1.0).play(2)
    memory = Memory(store, "shop")
    item = memory.add("pitfall", PIT, scope=["mail", "bank", "mail"], provenance=f"{run.id[:6]}@2")
    assert item.provenance == (f"{run.id}@2",)
    assert (item.scope, item.state, item.by) == (("bank", "mail"), "active", "")
    assert item.text.splitlines() == [
        "Trigger: a page is full",
        "Mistake: stop",
        "Consequence: half the rows",
        "Fix: ask for the next page",
    ]
    assert memory.item(item.id[:5]) == item
    tool = memory.add("tool", {"name": "pay", "signature": "(id)", "doc": "Pays once."}, by="ann")
    assert tool.text == "pay(id): Pays once."
    assert store.gc().runs == []
    with pytest.raises(UnknownName):
        memory.add("fact", {"text": "x"}, provenance=f"{run.id}@99")
    with pytest.raises(UnknownName):
        memory.item("nobody")
    with pytest.raises(BadInput):
        Memory(store, "no name")


@pytest.mark.parametrize(
    ("kind", "body", "more"),
    [
        ("rumour", {"text": "x"}, {"by": "ann"}),
        ("fact", {}, {"by": "ann"}),
        ("fact", {"text": "  "}, {"by": "ann"}),
        ("fact", {"text": "x" * 4001}, {"by": "ann"}),
        ("fact", {"text": "x", "mood": "y"}, {"by": "ann"}),
        ("fact", {"text": 3}, {"by": "ann"}),
        ("pitfall", {"trigger": "x", "mistake": "y"}, {"by": "ann"}),
        ("fact", {"text": "x"}, {}),
        ("fact", {"text": "x"}, {"by": "ann", "scope": [""]}),
        ("fact", {"text": "x"}, {"by": "ann", "scope": [str(n) for n in range(17)]}),
        ("fact", {"text": "x"}, {"provenance": "no cursor"}),
    ],
)
def test_what_cannot_be_an_item_is_refused(store: Keeper, kind: str, body: dict[str, object], more) -> None:
    with pytest.raises(BadInput) as refused:
        Memory(store, "shop").add(kind, body, **more)
    assert refused.value.message
    assert store.memories() == []


def test_nothing_is_changed_in_place(store: Keeper) -> None:
    memory = Memory(store, "shop")
    first = memory.add("plan", {"text": "one"}, by="ann", scope="mail")
    second = memory.edit(first.id, {"text": "two"}, why="wrong")
    third = memory.edit(second.id, {"text": "three"}, by="bob", scope=())
    old = memory.item(first.id)
    assert (old.state, old.replaced_by, old.why, old.text) == ("superseded", second.id, "wrong", "one")
    assert (third.scope, third.by, second.scope, second.by) == ((), "bob", ("mail",), "ann")
    assert [item.id for item in memory.line(third)] == [third.id, second.id, first.id]
    assert [item.id for item in memory.items("active")] == [third.id]
    tool = memory.add("tool", {"name": "three", "doc": "does it"}, by="ann")
    assert memory.promote(third.id, tool.id, "often").replaced_by == tool.id
    assert memory.retire(third.id, "no more").state == "retired"
    for refused in (
        lambda: memory.edit(first.id, {"text": "x"}),
        lambda: memory.retire(third.id),
        lambda: memory.promote(tool.id, tool.id),
    ):
        with pytest.raises(BadInput):
            refused()
    other = memory.add("fact", {"text": "same as before"}, by="ann")
    kept = memory.add("fact", {"text": "kept"}, by="ann")
    assert memory.supersede(other.id, kept.id, "the same").replaced_by == kept.id


def test_an_export_reads_back(store: Keeper, tmp_path: Path) -> None:
    memory = Memory(store, "shop")
    first = memory.add("fact", {"text": "one \ud800 \u2028"}, by="ann", scope="mail")
    memory.edit(first.id, {"text": "two"}, why="wrong")
    memory.retire(memory.add("pitfall", PIT, by="ann").id, "gone")
    plan = memory.add("plan", {"text": "plan"}, by="ann")
    memory.promote(plan.id, memory.add("tool", {"name": "t", "doc": "d"}, by="ann").id)
    lines = [line_of(item) for item in memory.items()]
    assert all(line.isascii() and "\n" not in line for line in lines)
    with open_store(tmp_path / "b.db") as elsewhere:
        other = Memory(elsewhere, "taken")
        assert take_lines(other, [*lines, ""]) == Taken(5, 0)
        assert [line_of(item) for item in other.items()] == sorted(
            lines, key=lambda line: [item.id for item in other.items()].index(json.loads(line)["id"])
        )
        assert take_lines(other, lines) == Taken(0, 5)
        other.delete([first.id])
        assert take_lines(other, lines) == Taken(0, 4, deleted=1), "what was deleted stays deleted"
        assert len(other.items()) == 4


def test_an_import_into_another_memory_of_the_store_holds_the_items(store: Keeper) -> None:
    shop = Memory(store, "shop")
    old = shop.add("fact", {"text": "the bakery opens at six"}, by="ann")
    shop.edit(old.id, {"text": "the bakery opens at seven"}, why="it moved")
    lines = [line_of(item) for item in shop.items()]
    bakery = Memory(store, "bakery")
    assert take_lines(bakery, lines) == Taken(2, 0, copied=2)
    assert {(item.text, item.state) for item in bakery.items()} == {(item.text, item.state) for item in shop.items()}
    new = next(item for item in bakery.items("superseded"))
    assert bakery.item(new.replaced_by).text == "the bakery opens at seven", "it names the copy, not the other memory's"
    assert not {item.id for item in bakery.items()} & {item.id for item in shop.items()}
    assert take_lines(bakery, lines) == Taken(0, 2), "the same file again adds nothing"
    assert take_lines(bakery, [line_of(item) for item in bakery.items()]) == Taken(0, 2)
    assert take_lines(shop, lines) == Taken(0, 2)
    bakery.delete([new.id])
    assert take_lines(bakery, lines) == Taken(0, 1, deleted=1)
    assert len(shop.items()) == 2, "the other memory keeps its own"
    shop.delete([old.id])
    assert take_lines(Memory(store, "third"), lines) == Taken(1, 0, deleted=1, copied=1)


def test_a_bad_line_is_told_by_its_number_and_nothing_is_taken(store: Keeper) -> None:
    memory = Memory(store, "shop")
    good = line_of(memory.add("fact", {"text": "one"}, by="ann"))
    fresh = json.loads(good) | {"id": "another"}
    told_ = {
        "no JSON": "{",
        "no JSON object": "[]",
        "clew.memory.2": json.dumps(fresh | {"schema": "clew.memory.2"}),
        "no state": json.dumps(fresh | {"state": "lost"}),
        "without text": json.dumps(fresh | {"body": {}}),
        "no list": json.dumps(fresh | {"scope": "mail"}),
        "no text": json.dumps(fresh | {"by": 3}),
        "of the size": json.dumps(fresh | {"id": "x" * 81}),
        "more than 100,000": " " * 100_001 + "{}",
        "comes from nowhere": json.dumps(fresh | {"by": ""}),
    }
    for says, line in told_.items():
        with pytest.raises(BadRecord, match=f"line 2 .*{says}"):
            take_lines(memory, [json.dumps(fresh), line])
    assert len(memory.items()) == 1
    assert take_lines(memory, [json.dumps(fresh), "[" * 1000 + "]" * 1000][:1]) == Taken(1, 0)


def test_a_deletion_reaches_the_runs_that_were_given_the_item(store: Keeper, tmp_path: Path) -> None:
    memory = Memory(store, "shop")
    item, kept = (memory.add("fact", {"text": text}, by="ann") for text in (SECRET, "milk is cheap"))
    shown = [Shown(one.id, one.kind, one.text) for one in (item, kept)]
    script = Script(store, created=1.0, task="task-1")
    script.open()
    script.put("recall", action="how does the safe open, in plain words please", text=recorded("shop", {}, shown))
    script.ask(Recalled("shop", tuple(shown)).text, "I see.")
    script.ask("how does the safe open, in plain words please", "Let me look.")
    script.end()
    store.commit()
    other = Script(store, created=2.0)
    other.open()
    other.put("recall", action="milk", text=recorded("shop", {}, shown[1:]))
    other.end()
    store.commit()
    where = places(store, [item])
    assert [str(place) for place in where] == [f"{script.run}@1"]
    erased = forget(memory, [item], where)
    assert f"{script.run}@1" in erased
    assert len(erased) >= 2, "the message with the block too"
    for file in tmp_path.iterdir():
        assert b"4711" not in file.read_bytes(), file.name
    asked = store.node(store.calls(script.run)[3].node_in)
    assert asked.message.text.startswith("how does the safe open"), "the query itself stays where it was asked"
    assert [one.id for one in memory.items()] == [kept.id]
    assert store.verify() == []


def test_what_is_told_of_success_has_n_and_an_interval(store: Keeper) -> None:
    memory = Memory(store, "shop")
    item, rest = (memory.add("fact", {"text": text}, by="ann") for text in ("one", "two"))
    lines = []
    for n, reward in enumerate([1.0, 1.0, 0.0, 1.0, 0.0, None]):
        run = Script(store, created=float(n)).play(1, reward)
        lines.append(entry("shop", (item if n < 3 else rest).id, n + 1.0, "selected", {"place": f"{run.id}@1"}))
    store.put_entries(lines)
    found = told(store, memory.item(item.id), memory.items())
    assert (found.given, found.others) == ((2, 3), (1, 2))
    assert found.report is not None
    assert (found.report.n, round(found.report.estimate, 3)) == (5, 0.167)
    assert found.report.low < found.report.estimate < found.report.high
    assert "no causal claim" in found.report.caveats[0]
    assert told(store, memory.add("fact", {"text": "three"}, by="ann"), memory.items()).report is None
