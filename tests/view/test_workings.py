"""Who worked at a run, read from its notes: hostile and broken notes give less, never an error."""

from __future__ import annotations

import json

import pytest

from clew.store.contract.script import Script
from clew.store.memory import MemoryStore
from clew.view.workings import LINES, LONG, PARTS, PLANS, several, workings

PLAN = {"at": "w0", "parts": [{"worker": "a", "subtask": "look", "reads": []}, {"worker": "b", "reads": [0]}]}


def noted(*notes: tuple[str, object]) -> tuple[MemoryStore, str]:
    store = MemoryStore()
    run = Script(store)
    run.open()
    run.ask("what", "a plan")
    for name, said in notes:
        run.put("note", action=name, text=said if isinstance(said, str) else json.dumps(said))
    run.ask("look", "seen")
    store.commit()
    return store, run.run


def test_a_part_has_the_calls_that_its_note_names_and_the_rest_is_planning() -> None:
    store, run = noted(("plan", PLAN), ("part", {"at": "w0s0", "worker": "a", "asks": [4], "classes": ["health"]}))
    found = workings(store, run)
    one, other = found["plans"][0]["parts"]
    assert (one["state"], one["asks"], one["tokens"], one["classes"]) == ("done", [4], 4, ["health"])
    assert (other["state"], other["level"], other["tokens"]) == ("open", 1, 0)
    assert (found["lead"]["tokens"], one["seconds"]) == (4, 0.5)
    assert several(store.calls(run))


@pytest.mark.parametrize(
    "said",
    ["{", "[" * 5000, "3", {"at": 7, "parts": "no"}, {"parts": [3, {"reads": [0, 5, "x", -1], "worker": [1]}]},
     {"at": "w0", "parts": [{"worker": "x" * 9000, "subtask": "y" * 9000}] * 900}],
)  # fmt: skip
def test_notes_that_are_none_are_passed_over_and_long_ones_are_cut(said: object) -> None:
    store, run = noted(("plan", said), *((name, said) for name in ("part", "refused", "withheld", "limit", "no plan")))
    found = workings(store, run)
    assert len(found["plans"]) <= 1
    assert len(json.dumps(found)) < 100 * LONG + PARTS * 4 * LONG
    assert len(found["said"]) <= LINES


def test_many_plans_are_shown_up_to_a_number() -> None:
    store, run = noted(*[("plan", PLAN)] * (PLANS + 9))
    assert len(workings(store, run)["plans"]) == PLANS
