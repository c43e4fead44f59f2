"""E168's tier worth: what is planted is what it is called, and its tables are made of its lines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

pytest.importorskip("bm25s", reason="did not run: the extra [memory] is not installed")
pytest.importorskip("scipy", reason="did not run: the extra [stats] is not installed")

from clew.harness.memory import Memory
from clew.store import MemoryStore
from clew.worlds.apps import Apps
from papers.E168_metis import tier_worth
from papers.E168_metis.reading import advice


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


def test_a_small_audit_of_planted_items_makes_lines_and_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier_worth, "TASKS", 4)
    monkeypatch.setattr(tier_worth, "SIZES", (4,))
    monkeypatch.setattr(tier_worth, "AUDITS", 2)
    store = MemoryStore()
    kinds = tier_worth._filled(0, "planted", store)
    items = Memory(store, "apps").items()
    assert {item.id for item in items} == {*kinds}
    assert all(item.given for item in items), "each item is recalled in its app"
    line = {"seed": 0, **tier_worth._one({"kind": "noisy"}, 0)}
    found = {verdict for calls in line["calls"]["4"].values() for verdict in calls}
    assert found == {"cannot tell"}, "four pairs tell nothing"
    lines = [{**line, "kind": kind} for kind in ("planted", "noisy", "idle")]
    text = tier_worth.tables([*lines, {"kind": "simulated", **tier_worth._one({"kind": "simulated"}, 0)}])
    assert "| harmful |" in text
    assert "simulated" in text
