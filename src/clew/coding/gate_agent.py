"""The gate as an agent: critics, oracle and refinement are acts on the world, decisions are notes.

``clew gate`` runs it, so that a gate replays and forks. Stored runs name ``clew.coding.gate_agent:gatekeeper``: the
module must never move.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from clew.coding.gate.controller import Controller, Decision
from clew.coding.gate.plan import REFINE, SHIP, STOP, VERIFY, Stakes
from clew.coding.gate.rates import Evidence
from clew.harness.run.live import LiveRun
from clew.store import Keeper, Run

AGENT = "clew.coding.gate_agent:gatekeeper"
SMOOTH = 0.3  # weight of the last run time in the running mean of a command's cost


async def gatekeeper(
    run: LiveRun,
    stakes: Mapping[str, Any],
    evidence: str = "{}",
    cell: str = "",
    resample: bool = False,
    audit: float = 0.05,
    learn: bool = False,
    invented: bool = False,
) -> str:
    """Decides over one candidate of a ``checks`` world, and what is made from it: ``ship``, ``stop`` or ``undecided``.

    Args:
        stakes: the fields of ``Stakes``; its critics are the world's commands.
        evidence: ``Evidence.dumps`` of what is known before.
        cell, resample, audit: as in ``Controller``.
        learn: run every critic, twice, and the oracle, whatever they are worth: a critic that answers differently on
            the same candidate has answered nothing.
        invented: the candidate is a mutant: it speaks for the critics' rates, not for the prior.
    """
    gate = Controller(Stakes(**stakes), Evidence.loads(evidence), cell, resample, audit)
    run.note("gate plan", regime=gate.regime(), thresholds=gate.stakes.thresholds(), thin=gate.thin)
    spent, end, good = 0.0, "", None
    if learn:
        spent, good = await _learn(run, gate, invented)
        end = _last(good)
    while not end:
        decision = gate.decide(await run.draw("audit"))
        run.note("gate decision", **_noted(decision))
        if decision.action in (SHIP, STOP):
            end = decision.action
            break
        found = await _act(run, decision.action)
        spent += _cost(gate.stakes, decision.action)
        if decision.action == REFINE:
            if found["passed"] is not True:
                end = STOP
                break
            gate.renew()
        elif decision.action == VERIFY:
            before, good = gate._before, found["passed"]
            gate.feedback(good)
            _label(run, gate, good, decision.audit, before, invented)
            if good or good is None:
                end = _last(good)
        else:
            gate.observe(decision.action, found["passed"])
    utility = _utility(gate.stakes, end, good, spent)
    run.note("gate end", verdict=end, belief=gate.state.belief, good=good, spent=round(spent, 6), utility=utility)
    return end


def _last(good: bool | None) -> str:
    return "undecided" if good is None else SHIP if good else STOP


def _utility(stakes: Stakes, end: str, good: bool | None, spent: float) -> float | None:
    """Reward or loss less costs; None where what was shipped was never verified, or the oracle gave no verdict."""
    if end == STOP:
        return -spent
    if end == SHIP and good is not None:
        return (stakes.reward if good else -(stakes.loss or 0.0)) - spent
    return None


def _cost(stakes: Stakes, action: str) -> float:
    return {VERIFY: stakes.verify, REFINE: stakes.refine}.get(action, stakes.critics.get(action, 0.0))


def _noted(decision: Decision) -> dict[str, Any]:
    found = decision._asdict()
    return {k: {n: round(v, 6) for n, v in x.items()} if isinstance(x, Mapping) else x for k, x in found.items()}


async def _act(run: LiveRun, action: str) -> dict[str, Any]:
    """What the world found, as it said it."""
    observation = await run.act(action if action in (VERIFY, REFINE) else f"critic {action}")
    found: dict[str, Any] = json.loads(observation.text)
    return found


async def _learn(run: LiveRun, gate: Controller, invented: bool) -> tuple[float, bool | None]:
    spent = 0.0
    for name in gate.stakes.critics:
        first, second = await _act(run, name), await _act(run, name)
        spent += 2 * gate.stakes.critics[name]
        steady = first["passed"] == second["passed"]
        if not steady:
            run.note("gate flip", critic=name, first=first["passed"], second=second["passed"])
        gate.observe(name, first["passed"] if steady else None)
    good = (await _act(run, VERIFY))["passed"]
    said = gate.state.seen
    gate.feedback(good)
    if good is not None:
        run.note(
            "gate label", cell=gate.cell, verdicts=dict(said), good=good, weight=1.0, before=None, invented=invented
        )
    return spent + gate.stakes.verify, good


def _label(run: LiveRun, gate: Controller, good: bool | None, audit: bool, before: bool | None, invented: bool) -> None:
    """Keep what the oracle said beside what the critics had said, for the next run to learn from."""
    if good is None or (gate.state.t and (before is None or gate.resample)):
        return
    weight = 1 / gate.audit if audit else 1.0
    verdicts = {} if gate.state.t else dict(gate.state.seen)
    known = before if gate.state.t else None
    run.note("gate label", cell=gate.cell, verdicts=verdicts, good=good, weight=weight, before=known, invented=invented)


# ---- what earlier runs know ------------------------------------------------------------------------------------------


def history(store: Keeper, runs: Iterable[str] | None = None) -> tuple[Evidence, dict[str, float]]:
    """What the gate's runs in a store have seen: the counts, and each command's running time in seconds (a running mean
    that forgets).

    Forks are left out: their candidates are the first run's.
    """
    evidence, seconds = Evidence(), dict[str, float]()
    for name in runs if runs is not None else reversed(store.find("world=checks")):
        run = Run(store, name)
        if run.agent != AGENT or run.parent is not None:
            continue
        for call in run.calls:
            if call.kind == "note" and call.action == "gate label":
                seen = json.loads(call.text)
                evidence.add(
                    seen["cell"], seen["verdicts"], seen["good"], seen["before"], seen["weight"], not seen["invented"]
                )
            elif call.kind == "act" and call.text.startswith("{"):
                command, took = call.action.removeprefix("critic "), json.loads(call.text)["seconds"]
                seconds[command] = (1 - SMOOTH) * seconds.get(command, took) + SMOOTH * took
    return evidence, seconds
