"""What a memory gave, read for the page: hostile and broken records give less, never an error."""

from __future__ import annotations

import json

import pytest

from clew.core.records import Report
from clew.harness.memory.recalled import Shown, recorded
from clew.store.contract.script import Script
from clew.store.memory import MemoryStore
from clew.view.pages import transcript_page
from clew.view.recalls import ITEMS, LONG


def recalling(text: str) -> tuple[MemoryStore, str]:
    store = MemoryStore()
    run = Script(store)
    run.open()
    run.put("recall", action="what is known", text=text)
    store.commit()
    return store, run.run


def shown(text: str) -> object:
    store, run = recalling(text)
    return transcript_page.calls(store, run, 0, 9)[-1]["recalled"]


def test_items_are_shown_with_what_an_audit_found_and_without_it() -> None:
    from clew.methods.memory.worth.filed_worth import key_of

    store, run = recalling(recorded("shop", {"k": 8}, [Shown("a1", "fact", "<b>six</b>"), Shown("b2", "plan", "go")]))
    for estimate in (0.1, -0.4):  # of two audits the last one counts
        told = Report(
            claim="c", estimate=estimate, low=-0.6, high=0.2, n=40, design="d", caveats=("verdict: harmful: w",)
        )
        label = f"{round(100 * abs(estimate)):08x}"
        store.put_report(told, f"worth-{label}-{key_of('shop', 'a1')}-success-00000000")
    first, second = transcript_page.calls(store, run, 0, 9)[-1]["recalled"]["items"]
    assert first["text"] == "<b>six</b>"
    assert (first["worth"]["verdict"], first["worth"]["why"]) == ("harmful", "w")
    assert first["worth"]["figures"]["success"]["estimate"] == -0.4
    assert second["worth"] is None
    assert transcript_page.calls(store, run, 0, 1)[0]["recalled"] is None


@pytest.mark.parametrize("text", ["", "{", "[" * 90_000, "3", '{"items": 3}', '{"memory": 3}', "[]"])
def test_a_record_that_cannot_be_read_is_shown_as_it_is(text: str) -> None:
    assert shown(text) is None


def test_what_is_read_is_bounded() -> None:
    items = [{"id": "x" * 999, "kind": ["k"], "text": "y" * 2 * LONG}] * 3 * ITEMS
    found = shown(json.dumps({"memory": {"a": 1}, "items": [7, {"id": 3}, {"text": "z"}, *items]}))
    assert found["more"] == 2 * ITEMS + 3
    assert len(found["items"]) == ITEMS - 3
    assert found["memory"] == found["items"][0]["kind"] == ""
    assert len(json.dumps(found)) < ITEMS * (LONG + 400)
    assert found["items"][0]["cut"]
    assert shown(json.dumps({"items": [{"id": "a"}] * 300_000})) is None, "more than anybody reads"


def test_steps_of_a_tool_say_how_far_it_came() -> None:
    steps = [{"call": ["fetch", "{}"]}, {"call": None, "answer": "7"}, {"call": [3], "answer": None, "why": "late"}]
    for number, (step, did) in enumerate(zip(steps, ("it calls fetch({})", "it answers 7", "plan: late"), strict=True)):
        found = shown(json.dumps({"memory": "m", "tool": "pager", "step": number, "items": [], **step}))
        assert (found["step"]["tool"], found["step"]["number"]) == ("pager", number)
        assert found["step"]["did"].endswith(did)
    assert shown(json.dumps({"memory": "m", "items": []}))["step"] is None


def test_a_verdict_that_is_none_is_not_shown() -> None:
    from clew.methods.memory.worth.filed_worth import key_of

    store, run = recalling(recorded("shop", {}, [Shown("a1", "fact", "six")]))
    for caveats in ((), ("verdict: <script>",), ("harmful",)):
        told = Report(claim="c", estimate=0.0, low=-0.6, high=0.2, n=40, design=str(caveats), caveats=caveats)
        store.put_report(told, f"worth-0000000a-{key_of('shop', 'a1')}-success-0000000{len(caveats)}")
    told = Report(claim="c", estimate=0.0, low=-0.6, high=0.2, n=4, design="d", caveats=("verdict: harmful: w",))
    store.put_report(told, f"worth-0000000b-{key_of('shop', 'a1')}-turns-00000000")
    (item,) = transcript_page.calls(store, run, 0, 9)[-1]["recalled"]["items"]
    assert item["worth"] is None
