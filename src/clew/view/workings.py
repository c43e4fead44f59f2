"""Who worked at a run of several models: the plans of an orchestrator, and what a router decided, Call by Call.

The run's page draws it above the transcript. What a record says comes from models and from other people's files: it is
read with bounds, what is not what it should be is left out, and nothing of it is more than text and numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from clew.core.records import Call
from clew.models.compose.decision import SHORT, decision_of
from clew.store import Keeper

PIECE, READ = 2_000, 20_000  # Calls that are read at once, and in all
PARTS, PLANS, LINES, STEPS = 64, 50, 8, 500  # parts of a plan, plans, lines of a part, routed Calls that are shown
LONG = 300  # characters of a name or a subtask
NOTES = ("not asked", "worker failed", "withheld", "no plan", "refused", "limit")


def several(calls: Iterable[Call]) -> bool:
    """Whether one of these Calls tells of a plan or of a router."""
    return any(_is(call, "plan") or decision_of(call.inner) is not None for call in calls)


def workings(store: Keeper, run: str) -> dict[str, Any]:
    """Plans and their parts, and routed Calls with the workers that answered them.

    A part has its worker, what it reads, its ``level`` (one more than the highest that it reads: parts of one level are
    worked on side by side), the Calls of its answers, and their tokens, US dollars and seconds. Its ``state`` is done,
    nobody (no worker answered), open, or cut (the run ended before it did); ``plans``: whether it wrote a plan.

    Raises:
        UnknownName: no such run.
    """
    over, found, asks = bool(store.summary(run).stop), _Found(), dict[int, Call]()
    for start in range(0, READ, PIECE):
        calls = store.calls(run, start, start + PIECE)
        for call in calls:
            if call.kind == "ask":
                asks[call.seq] = call
                found.decided(call)
            elif call.kind == "note":
                found.noted(call)
        if len(calls) < PIECE:
            break
    taken = {seq for part in found.parts.values() for seq in part["asks"]}
    for part in found.parts.values():
        part |= _spent(asks[seq] for seq in part["asks"] if seq in asks)
        part["state"] = part["state"] or ("cut" if over else "open")
        part["plans"] = any(plan["place"].startswith(f"{part['place']}w") for plan in found.plans)
    led = _spent(call for seq, call in asks.items() if seq not in taken) if found.plans else None
    routed = {"workers": list(found.workers.values()), "steps": found.steps, "more": found.more}
    return {"plans": found.plans, "lead": led, "said": found.said, "routed": routed}


class _Found:
    """What the Calls of a run tell, in their order."""

    def __init__(self) -> None:
        self.plans, self.parts, self.said = list[dict[str, Any]](), dict[str, dict[str, Any]](), list[str]()
        self.workers, self.steps, self.more = dict[str, dict[str, Any]](), list[dict[str, Any]](), 0

    def noted(self, call: Call) -> None:
        """A note of an orchestrator, where it is one."""
        try:
            said = json.loads(call.text) if call.text else {}
        except (ValueError, RecursionError):
            return
        if not isinstance(said, dict):
            return
        if call.action == "plan" and len(self.plans) < PLANS:
            self._plan(call.seq, _text(said.get("at")), said.get("parts"))
        elif call.action == "part" and (part := self.parts.get(_text(said.get("at")))) is not None:
            given = said.get("asks")
            part["asks"] = [seq for seq in given if isinstance(seq, int)][:STEPS] if isinstance(given, list) else []
            part["classes"] = [_text(one) for one in _list(said.get("classes"))[:LINES]]
            part["by"], own = _text(said.get("worker")), part["worker"]
            part["state"] = "done" if part["asks"] or part["by"] == own else "nobody"
        elif call.action in NOTES:
            lines = self.parts[place]["said"] if (place := _text(said.get("part"))) in self.parts else self.said
            lines += [line for line in _told(call.action, said) if line not in self.said][: max(0, LINES - len(lines))]

    def _plan(self, seq: int, place: str, listed: object) -> None:
        parts = list[dict[str, Any]]()
        for at, one in enumerate(_list(listed)[:PARTS]):
            told = one if isinstance(one, dict) else {}
            reads = [j for j in _list(told.get("reads")) if isinstance(j, int) and 0 <= j < at]
            level = 1 + max((parts[j]["level"] for j in reads), default=-1)
            known = {"place": f"{place}s{at}", "at": at, "worker": _text(told.get("worker")), "reads": reads}
            empty = {"state": "", "by": "", "asks": [], "classes": [], "said": []}
            parts.append({**known, "level": level, "subtask": _text(told.get("subtask")), **empty})
        self.parts |= {part["place"]: part for part in parts}
        self.plans.append({"place": place, "seq": seq, "parts": parts})

    def decided(self, call: Call) -> None:
        """A router's decision, where an answer has one."""
        if (decision := decision_of(call.inner)) is None:
            return
        for name in dict.fromkeys((*decision.scores, decision.worker, *decision.refused, *decision.failed)):
            self._worker(name)
        one = self._worker(decision.worker)
        if one is not None:
            spent = _spent([call])
            one |= {name: one[name] + value for name, value in spent.items()} | {"answers": one["answers"] + 1}
        for kind, whys in (("refused", decision.refused), ("failed", decision.failed)):
            for name, why in whys.items():
                if (other := self._worker(name)) is not None:
                    other[kind] += 1
                    other["why"] = why[:SHORT]
        if len(self.steps) < STEPS:
            lines = [line[: 2 * LONG] for line in decision.lines()[:PARTS]]
            self.steps.append({"seq": call.seq, "worker": decision.worker[:LONG], "lines": lines})
        else:
            self.more += 1

    def _worker(self, name: str) -> dict[str, Any] | None:
        if name not in self.workers and len(self.workers) < PARTS:
            nothing = {"answers": 0, "tokens": 0, "cost": 0.0, "seconds": 0.0, "refused": 0, "failed": 0, "why": ""}
            self.workers[name] = {"name": name[:LONG], **nothing}
        return self.workers.get(name)


def _is(call: Call, action: str) -> bool:
    return call.kind == "note" and call.action == action


def _spent(calls: Iterable[Call]) -> dict[str, Any]:
    """Tokens of prompts and replies, US dollars and seconds of some asks."""
    listed = list(calls)
    cost = sum(one.cost for one in listed if math.isfinite(one.cost))
    seconds = sum(one.seconds for one in listed if math.isfinite(one.seconds))
    return {"tokens": sum(one.usage[0] + one.usage[1] for one in listed), "cost": cost, "seconds": seconds}


def _told(action: str, said: Mapping[str, Any]) -> list[str]:
    """A note in words."""
    worker = _text(said.get("worker"))
    if action == "refused":
        workers = said.get("workers")
        pairs = list(workers.items())[:LINES] if isinstance(workers, dict) else []
        return [f"{_text(name)} may not be asked: {_text(why)}" for name, why in pairs]
    if action == "withheld":
        classes = ", ".join(_text(one) for one in _list(said.get("classes"))[:LINES])
        return [f"{worker} was not shown what holds {classes}"]
    if action == "limit":
        return [f"limit reached: {', '.join(f'{_text(name)} {_text(value)}' for name, value in said.items())}"[:LONG]]
    why = _text(said.get("why") or said.get("error"))
    lines = {"not asked": f"{worker} was not asked: {why}", "worker failed": f"{worker} failed: {why}"}
    return [lines.get(action, f"no plan: {why}")]


def _text(value: object) -> str:
    return str(value)[:LONG] if isinstance(value, (str, int, float)) else ""


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
