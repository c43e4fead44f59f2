"""The gate as an agent: critics, oracle and refinement are acts on the world, decisions are notes.

``clew gate`` runs it, so that a gate replays and forks. Stored runs name ``keep`` and, those from before,
``gatekeeper``, as ``harness.loading.RECORDED`` says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from clew.core.errors import BadInput
from clew.harness.run.live import LiveRun
from clew.methods.gate.line_rules import AUDIT, REFINE, SHIP, STOP, VERIFY, Rule, Seen
from clew.store import Keeper, Run

AGENT = "clew.coding.gate_agent:keep"
BEFORE = "clew.coding.gate_agent:gatekeeper"
SMOOTH = 0.3  # weight of the last run time in the running mean of a command's cost
MEMORY = 1000  # labelled candidates that are looked back on


async def keep(
    run: LiveRun,
    rule: Sequence[str] = (),
    critics: Sequence[str] = (),
    oracle: str = "",
    ships: bool = False,
    explore: bool = False,
    probe: bool = False,
    twice: bool = False,
    audit: float = AUDIT,
    horizon: int = 1,
    cell: str = "",
    invented: bool = False,
) -> str:
    """Follows a one-line rule over one candidate of a ``checks`` world, and over what is made from it.

    Gives ``ship``, ``stop`` or ``undecided``.

    Args:
        rule, ships: the rule's critics, and whether it ships what passes them unverified.
        critics: the commands of all critics.
        oracle: the command, by which labels are told from those of another oracle.
        explore: run every critic, whatever the rule needs. probe: run the others where the rule's have passed. twice:
            run each twice: one that answers differently on the same candidate has answered nothing.
        audit: share of the candidates that the rule would not verify, which are verified all the same.
        horizon: candidates at most.
        cell: what the labels are filed under. invented: the candidate is a mutant, and always verified.
    """
    follow, end, good = Rule(tuple(rule), ships), "", None
    for left in range(horizon - 1, -1, -1):
        asked = critics if explore else follow.checks
        also: list[str] = [name for name in critics if probe and name not in asked]
        said, content = await _asked(run, asked, explore, twice)
        if also and follow.passes(said):
            more, content = await _asked(run, also, True, twice)
            said |= more
        action = VERIFY if invented else follow.action(said)
        chance = audit if follow.checks and not invented else 1.0
        lot = action != VERIFY and await run.draw("audit") < audit
        run.note("gate decision", action=action, lot=lot, verdicts=said, left=left)
        good = None
        if lot or action == VERIFY:
            found = await _act(run, VERIFY)
            good, content = found["passed"], found.get("content", content)
        about: dict[str, Any] = {"cell": cell, "oracle": oracle, "content": content, "invented": invented}
        about |= {"asked": None if explore else list(asked), "also": also}
        run.note("gate candidate", verdicts=said, good=good, weight=1 / audit if lot else 1.0, chance=chance, **about)
        if action == SHIP and not lot:
            end = SHIP
        elif (lot or action == VERIFY) and good is not False:
            end = "undecided" if good is None else SHIP
        elif left and (await _act(run, REFINE))["passed"]:
            continue
        else:
            end = STOP
        break
    run.note("gate end", verdict=end, good=good, reward=float(good) if good is not None else None)
    return end


async def _act(run: LiveRun, action: str) -> dict[str, Any]:
    """What the world found, as it said it."""
    found: dict[str, Any] = json.loads((await run.act(action)).text)
    return found


async def _asked(run: LiveRun, names: Sequence[str], whole: bool, twice: bool) -> tuple[dict[str, bool], str]:
    """What critics said, up to the first that failed unless all of them are to be asked; and what was looked at."""
    said, content = dict[str, bool](), ""
    for name in names:
        found = await _act(run, f"critic {name}")
        passed, content = found["passed"], found.get("content", content)
        if twice and (again := (await _act(run, f"critic {name}"))["passed"]) != passed:
            run.note("gate flip", critic=name, first=passed, second=again)
            passed = None
        if passed is not None:
            said[name] = passed
        if passed is False and not whole:
            break
    return said, content


async def gatekeeper(run: LiveRun, **config: object) -> str:
    """The gate of earlier runs, which planned instead of following a rule. Its planner is gone; its record is read.

    Raises:
        BadInput: the run is to go on beyond its record.
    """
    end = ""
    for call in run.record:
        if call.kind == "note":
            data = json.loads(call.text) if call.text else {}
            end = str(data.get("verdict", end))
            run.note(call.action, **data)
        elif call.kind == "draw":
            await run.draw(call.action)
        elif call.kind == "act":
            await run.act(call.action)
    if not end:
        raise BadInput(f"run {run.id} is of an earlier gate, which can be read but not continued", remedy="Gate anew.")
    return end


# ---- what earlier runs know ------------------------------------------------------------------------------------------


class History(NamedTuple):
    """What a store's gate runs have seen, oldest first; each command's running time in seconds (a running mean that
    forgets); and by the state of a whole tree the run in which the oracle spoke last."""

    rows: list[Seen]
    seconds: dict[str, float]
    verified: dict[bytes, str]


def history(store: Keeper, cell: str, oracle: str) -> History:
    """What is known of a cell and its oracle. Forks are left out: their candidates are the first run's."""
    rows, seconds, verified = list[Seen](), dict[str, float](), dict[bytes, str]()
    labels = 0
    for name in store.find("world=checks"):  # newest first
        run = Run(store, name)
        if run.agent not in (AGENT, BEFORE) or run.parent is not None:
            continue
        here = list[Seen]()
        for call in run.calls:
            if call.kind == "note" and call.action in ("gate candidate", "gate label"):
                found = json.loads(call.text)
                if found["cell"] != cell or found.get("oracle", oracle) != oracle or found.get("before") is not None:
                    continue
                here.append(_seen(run, found))
                if found["good"] is not None and run.agent == AGENT:
                    verified.setdefault(run.state(1), run.id)
            elif call.kind == "act" and call.text.startswith("{"):
                command, took = call.action.removeprefix("critic "), json.loads(call.text)["seconds"]
                known = seconds.get(command)
                seconds[command] = took if known is None else SMOOTH * known + (1 - SMOOTH) * took
        rows += reversed(here)
        labels += sum(row.good is not None for row in here)
        if labels >= MEMORY:
            break
    return History(rows[::-1], seconds, verified)


def _seen(run: Run, found: Mapping[str, Any]) -> Seen:
    """A candidate's note; those of earlier runs name no content: theirs is the state that the run began with, or, of
    one outside of the sandbox, whose state says nothing of its files, the run."""
    asked, invented = found.get("asked"), bool(found.get("invented"))
    content = str(found.get("content") or (run.id if "outside=True" in run.taskset else run.state(1).hex()))
    verdicts = {str(name): bool(said) for name, said in found["verdicts"].items()}
    known = (found["good"], None if asked is None else tuple(asked), float(found["weight"]))
    return Seen(content, verdicts, *known, float(found.get("chance", 1.0)), invented, tuple(found.get("also", ())))
