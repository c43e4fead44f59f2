"""E168's tier worth: what is planted is what it is called, and its tables are made of its lines."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

pytest.importorskip("bm25s", reason="did not run: the extra [memory] is not installed")
pytest.importorskip("scipy", reason="did not run: the extra [stats] is not installed")

from clew.harness.memory import Memory
from clew.store import MemoryStore
from clew.worlds.apps import Apps
from papers.E168_metis import report_worth, tier_worth
from papers.E168_metis.reading import advice

pytestmark = pytest.mark.whole


def test_plants_are_what_they_are_called() -> None:
    for seed in range(3):
        world = Apps(288, 0.0, seed)
        for at, app in enumerate(("bank", "mail", "club")):
            habits = world.apps(0)[app]
            for what, kind, text in tier_worth.planted(world, app, at):
                told = advice([f"{kind}: {text}"], app)
                if what == "useless":
                    assert told == advice([], app)
                elif what in ("helpful", "redundant"):
                    assert (told.cents and habits.face.unit == 100) or (told.leaves_out and habits.leaves_out)
                elif what == "harmful":
                    assert (told.cents and habits.face.unit == 1) or (told.leaves_out and not habits.leaves_out)
                else:
                    assert told.fetch == [habits.face.fetch]
                    assert (told.pages == 1) is (what == "hasty")


def test_a_small_audit_of_planted_items_makes_lines_and_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier_worth, "AUDITS", 2)
    store = MemoryStore()
    kinds = tier_worth._filled(0, "planted", store, 4)
    items = Memory(store, "apps").items()
    assert {item.id for item in items} == {*kinds}
    assert all(item.given for item in items), "each item is recalled in its app"
    line = {"seed": 7, "errands": 4, "cpu_s": 1.0}
    found = {}
    for kind in ("noisy", "simulated"):
        found[kind] = {**line, "kind": kind, **tier_worth._one({**line, "kind": kind}, 7)}
    calls = found["noisy"]["verdicts"]["4"].values()
    assert {verdict for one in calls for verdict in one} == {"cannot tell"}, "four pairs tell nothing"
    lines = [{**found["noisy"], "kind": kind} for kind in ("planted", "noisy", "idle")]
    lines += [found["simulated"]]
    text = report_worth.report([*lines, *({**one, "seed": 0} for one in lines)])
    assert "met: few pairs" in text
    assert "1 memories made after the rule for cost was, 4 runs" in text
    assert "The 1 memories that the rule for cost was made by" in text


def test_what_is_wrong_with_a_verdict() -> None:
    assert tier_worth.wrong("useless", Counter({"helpful": 1, "no effect shown": 5})) == 1
    assert tier_worth.wrong("harmful", Counter({"harmful": 3, "cannot tell": 2})) == 0
    assert tier_worth.wrong("hasty", Counter({"helpful": 2, "harmful": 1})) == 2
