"""clew audit decay: the structure of Clew's own stacks, and the behaviour of agents of known obedience."""

from __future__ import annotations

import json

from clew.core.registry import register
from clew.store import open_store
from tests.audit.test_behaviour import agent


def test_own_stacks_lose_what_they_cut_and_the_pin_saves_it(clew):
    told = json.loads(clew("audit", "decay", "--stack", "clew-truncate", "--json").stdout)
    (truncate,) = told["stacks"]
    assert truncate["kept"] < truncate["n"] == 192
    assert (truncate["pinned"]["kept"], truncate["pinned"]["torn"]) == (192, 0)
    assert len(told["verdicts"]) == 1
    assert "with the pin in 0 of 192 requests" in told["verdicts"][0]
    assert "clew-summarise" in clew("audit", "decay", "--list").output
    assert "head-and-tail" in json.loads(clew("audit", "decay", "--list", "--json").output)["arms"]


def test_behaviour_of_a_model_is_recorded_compared_and_resumed(clew, tmp_path):
    made = agent(True)
    register("models", "obedient", lambda: made)
    chosen = (
        "full context",
        "truncate",
        "truncate, pin",
        "head-and-tail",
        "irrelevant pin",
        "twin, full context",
        "twin, pin",
    )
    names = [x for name in chosen for x in ("--arm", name)]
    line = ("audit", "decay", "--model", "obedient", "-n", 12, "--store", tmp_path / "s.db", *names)
    told = json.loads(clew(*line, "--json").stdout)
    by = {row["arm"]: row for row in told["arms"]}
    assert by["full context"]["violation"]["estimate"] == 0
    assert by["truncate"]["rise"]["low"] > 0.5
    assert by["truncate, pin"]["rise"]["low"] <= 0
    assert by["irrelevant pin"]["violation"]["estimate"] == 1
    said = "\n".join(told["verdict"])
    assert "truncate: violations rise by 100%" in said
    assert "with Pins they are not told from full context" in said
    assert "head-and-tail: cannot tell at n = 12" in said
    assert "allowed twins not done: 0% with the pin, 0% in full context" in said
    asked = made.calls
    assert "less full context" in clew(*line).output
    assert made.calls == asked, "what the store holds is not asked again"
    kept = open_store(tmp_path / "s.db")
    assert len(kept.find()) == 12 * len(told["arms"])


def test_refusals_name_a_remedy(clew):
    assert "clew-truncate" in clew("audit", "decay", "--stack", "ghost", code=2).output
    assert "full context" in clew("audit", "decay", "--model", "echo", "--arm", "ghost", code=2).output
    assert "No such command" in clew("audit", "ghost", code=2).output
