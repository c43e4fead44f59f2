"""Lists of what is wrong with a memory, and what they do not catch."""

from __future__ import annotations

import pytest

from clew.core.records import Annotation
from clew.harness.memory import Item, Memory
from clew.harness.memory.fold import Given
from clew.methods.memory.lessons.likeness import contradictions, copies, relative
from clew.methods.memory.worth.unproven import junk, lists
from clew.store.contract.script import Script
from clew.store.entries import entry
from clew.store.memory import MemoryStore
from tests.audit.said_pairs import CONTRARY, LATER_CONTRARY, LATER_TWO, SAME, TWO


def fact(id: str, text: str, kind: str = "fact", **more: object) -> Item:
    return Item(id=id, memory="m", kind=kind, body={"text": text}, **more)


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        ("The bakery opens at six.", "The bakery opens at seven.", "six against seven"),
        ("A page of orders has 20 rows.", "A page of orders has 50 rows.", "20 against 50"),
        ("Log in to the bank before you read.", "Log in to the bank after you read.", "before against after"),
        ("The endpoint of orders is search.", "The endpoint of orders is list_items.", "search against list_items"),
        ("Pending rows of the shop count.", "Pending rows of the shop don't count.", "one of them says not"),
        ("Never retry a payment of the bank.", "Retry a payment of the bank.", "one of them says not"),
    ],
)
def test_a_contradiction_of_two_sentences_that_are_much_alike_is_found(a: str, b: str, why: str) -> None:
    found = contradictions([fact("a", a), fact("x", "whales sing in spring"), fact("b", b)])
    assert [(clash.items, clash.why) for clash in found] == [(("a", "b"), why)]


@pytest.mark.parametrize(
    ("a", "b", "more"),
    [
        ("The bakery opens at six.", "The library opens at six.", {}),  # of other things
        ("The bakery opens at six.", "The bakery opens at seven.", {"scope": ("mail",)}),  # it holds elsewhere
        ("The bakery opens at six.", "The bakery opens at seven.", {"kind": "plan"}),
        ("The bakery opens at six.", "Bread can be bought from 7 o'clock on.", {}),  # in other words: not found
        ("Pay once.", "Ask for the price, then pay, then leave.", {}),
    ],
)
def test_what_is_no_contradiction_or_is_said_in_other_words_is_not_listed(a: str, b: str, more: dict) -> None:
    assert contradictions([fact("a", a), fact("b", b, **more)]) == []


def test_copies_are_grouped_and_what_contradicts_is_no_copy() -> None:
    text = "Ask for the next page until has_more is false, then add up all rows."
    items = [fact("a", text), fact("b", f"Always {text}"), fact("c", text.replace("until", "while"))]
    items += [fact("d", text, scope=("mail",)), fact("e", text.replace("false", "true"))]
    assert copies(items) == [("a", "b", "c")]


def test_pairs_are_found_among_many_items() -> None:
    items = [fact(f"i{i}", f"row {i} of the list number {i * 7} names colour {i * 13}") for i in range(800)]
    items += [fact("x", "row 5 of the list number 35 names a colour 65")]
    assert copies(items) == [("i5", "x")]


def screened(a: str, b: str) -> str:
    """What the screen of lessons makes of a text beside an item that says another."""
    found = relative("fact", {"text": b}, ("shop",), [fact("a", a, scope=("shop",))])
    return found.how if found else "two"


def listed(a: str, b: str) -> str:
    """In which list of the audit two items stand."""
    items = [fact("a", a), fact("b", b)]
    return "contrary" if contradictions(items) else "same" if copies(items) else "two"


@pytest.mark.parametrize(("pairs", "label", "screen", "audit"), [
    (CONTRARY, "contrary", 17, 20), (SAME, "same", 8, 8), (TWO, "two", 24, 18),
    (LATER_CONTRARY, "contrary", 6, 8), (LATER_TWO, "two", 7, 5),
])  # fmt: skip
def test_screen_and_audit_read_labelled_pairs_as_docs_say(pairs, label: str, screen: int, audit: int) -> None:
    assert sum(screened(a, b) == label for a, b in pairs) == screen
    assert sum(listed(a, b) == label for a, b in pairs) == audit
    if label == "contrary":
        assert all(listed(a, b) == "contrary" for a, b in pairs if screened(a, b) == "contrary"), "one rule for both"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Be careful.", "no two words"),
        ("Always check your answer and make sure that it is correct.", "fits every task"),
        ("food " * 30, "no two words"),
        ("pay rent " * 15, "repeats the same few words"),
        ("The bank writes amounts in cents.", ""),
        ("Do not pay twice.", ""),
    ],
)
def test_junk_says_why(text: str, why: str) -> None:
    found = junk(fact("a", text))
    assert why in found
    assert bool(found) is bool(why)


def test_an_item_that_repeats_the_one_task_it_was_given_for_is_junk() -> None:
    query = "How much do my transfers in bank over 30 dollars come to?"
    asked = {"given": (Given("r@1", query, 1.0),)}
    assert "what the one task asked" in junk(
        fact("a", "How much my transfers in bank over 30 dollars come to", **asked)
    )
    assert junk(fact("a", "Transfers in bank are in cents, so divide by a hundred", **asked)) == ""
    assert junk(fact("a", "x", kind="tool")) == ""


def test_items_that_were_never_given_and_those_whose_runs_failed_or_are_gone() -> None:
    store = MemoryStore()
    runs = []
    for reward in (1.0, 0.0):
        run = Script(store)
        run.open()
        run.ask("what", "this")
        store.annotate([Annotation("run", "reward", reward, run.run)])
        runs.append(run.run)
    store.commit()
    memory = Memory(store, "m", clock=iter(range(100)).__next__)
    good = memory.add("fact", {"text": "bread is sold from six on"}, provenance=f"{runs[0]}@1")
    bad = memory.add("plan", {"text": "buy milk and go home"}, provenance=f"{runs[1]}@1")
    body = {"trigger": "a page is full", "mistake": "to stop", "consequence": "rows are missing"}
    pit = memory.add("pitfall", body, provenance=f"{runs[1]}@1")
    fresh = memory.add("fact", {"text": "the sea is salt water"}, by="ann")
    gone = {"kind": "fact", "body": {"text": "cheese is old milk"}, "scope": [], "provenance": ["nobody@1"], "by": ""}
    store.put_entries([entry("m", "lost", 3.5, "add", gone)])
    place = {"place": f"{runs[0]}@1", "query": "milk"}
    store.put_entries([entry("m", bad.id, 2.5, "selected", place)])
    found = lists(store, memory.items())
    assert [one.items for one in found.unfounded] == [(bad.id,), ("lost",)]
    assert "failed" in found.unfounded[0].why
    assert "gone" in found.unfounded[1].why
    assert [one.items for one in found.never] == [(good.id,), (pit.id,)], (
        "the others came after the only recall, or were given"
    )
    assert fresh.id not in str(found)
    assert found.junk == found.copies == found.contradictions == []
