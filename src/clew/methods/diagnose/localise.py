"""The agent of a diagnosis: at most 20 turns of looking, then findings (SHERLOC, arXiv 2606.24820).

``clew diagnose`` runs it over a LiveRun, so that a diagnosis is recorded, replays without its model, and forks at any
turn. Stored runs name it as ``harness.loading.RECORDED`` says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clew.core.errors import BadInput
from clew.core.protocols import Model
from clew.core.values import Observation
from clew.harness.run.live import Conversation, LiveRun
from clew.harness.run.nodes import Reply
from clew.harness.runner import Runner
from clew.methods.diagnose import recover
from clew.methods.diagnose.choose import FIRST, Chooser, unmatched
from clew.methods.diagnose.code_tools import shown
from clew.methods.diagnose.confidence import Calibration
from clew.methods.diagnose.finding import Finding, answer, finding
from clew.methods.diagnose.known import ELSEWHERE
from clew.methods.diagnose.repository_world import Diagnosis
from clew.store import Keeper, Run

TURNS = 20
SYSTEM = """You find where a bug is; you do not fix it and never propose code. Name every file and the exact line ranges
that must be edited.

Protocol: your first reply calls a tool. Each reply is one or more tool calls, or the final answer. Rather look once too
often than miss a second place that must be edited. Answer only when you are confident, from what the tools showed.

Tools: view_file, codebase_search (literal text), repo_tree, connected_tree (imports in both directions).

Final answer, and nothing after it:
<findings>[{"location": {"file": "...", "start": 1, "end": 2}, "location_explanation": "why this span",
"root_cause": "the mechanism, as a statement that could be shown false",
"solution_idea": "direction of an edit, no code", "dependencies": ["other files affected"] or "standalone",
"testing_impact": "tests to add or update"}]</findings>"""
MISSHAPEN = "That was neither a tool call nor findings. Call a tool, or answer with <findings>[...]</findings>."
LOOK_FIRST = "You have not looked at the repository yet. Call a tool before you answer."


@dataclass(slots=True)
class _State:
    """What the loop carries: evidence gathered, equal calls, and what was told once."""

    evidence: list[dict[str, Any]] = field(default_factory=list)
    repeats: recover.Repeats = field(default_factory=recover.Repeats)
    short: int = 0  # shorter replies asked for in a row
    sent_back: bool = False


async def localiser(run: LiveRun, turns: int = TURNS, window: int = 32_000, cap: int = 8_000) -> None:
    """Diagnose the task's report with the tools of its world; the findings are the note ``findings``.

    Args:
        turns: replies of the model in all. window: tokens of its context. cap: tokens of one reply.
    """
    chat, state = run.chat(SYSTEM, tools=run.tools), _State()
    chat.say("user", run.view)
    for turn in range(turns):
        if recover.final(turns - turn):
            run.note("recovery", part="final turn")
            chat.say("user", recover.FINAL)
        chat = _shortened(run, chat, window)
        reply = await chat.ask(max_tokens=cap)
        found = await _turn(run, chat, reply, state, cap)
        if found is not None:
            run.note("findings", findings=found)
            return
    run.note("no answer", turns=turns)


async def _turn(run: LiveRun, chat: Conversation, reply: Reply, state: _State, cap: int) -> list[dict[str, Any]] | None:
    """What one reply leads to: tools are called, something is asked for again, or the findings are there."""
    calls = reply.calls
    if not calls and recover.too_long(reply.finish, len(reply.tokens or ()), cap) and state.short < recover.RETRIES:
        state.short += 1
        run.note("recovery", part="response length")
        chat.say("user", recover.SHORTER)
        return None
    state.short = 0
    try:
        found = None if calls else answer(reply.text)
    except BadInput as error:
        chat.say("user", f"{error.message}. {error.remedy}")
        return None
    if found is not None:
        if not state.evidence and not state.sent_back:
            state.sent_back = True
            chat.say("user", LOOK_FIRST)
            return None
        return [{**f.json(), "evidence": f.json()["evidence"] or _about(f, state.evidence)} for f in found]
    if not calls:
        call = recover.implicit_call(reply.text, run.tools, f"implicit_{len(chat.nodes)}")
        if call is None:
            chat.say("user", MISSHAPEN)
            return None
        run.note("recovery", part="implicit call")
        calls = (call,)
    for call in calls:
        count = state.repeats.count(call)
        warning = state.repeats.told(call, count)
        if warning:
            run.note("recovery", part="loop detection", tool=call.name, count=count)
        observation = Observation(warning, call_id=call.id)
        if count < recover.REFUSE:
            seen = await run.act(call)
            observation = seen._replace(text=f"{seen.text}\n\n{warning}" if warning else seen.text)
            if not seen.text.startswith("error:"):
                state.evidence.append(shown(call.name, call.arguments, seen.text))
        chat.say("tool" if reply.calls else "user", observation if reply.calls else observation.text)
    return None


def _about(found: Finding, evidence: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was looked at of a finding's file."""
    return [e for e in evidence if e["lines"].rpartition(":")[0] == found.file or e["args"].get("path") == found.file]


def _shortened(run: LiveRun, chat: Conversation, window: int) -> Conversation:
    """The conversation, or where it fills its window a new one with its beginning and its newest turns."""
    short = recover.first_and_recent([node.message for node in chat.nodes], window)
    if short is None:
        return chat
    run.note("recovery", part="context", dropped=len(chat.nodes) - len(short))
    fresh = run.chat(tools=run.tools)
    for message in short:
        fresh.say(message.role, message)
    return fresh


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """What a diagnosis came to. ``run`` is its record; ``recoveries`` names the self-recovery parts that were used, in
    order; ``fallback``: the model gave no usable answer, and these are the deterministic chooser's findings."""

    findings: tuple[Finding, ...]
    run: Run
    recoveries: tuple[str, ...] = ()
    fallback: bool = False


def localise(
    repo: str | Diagnosis,
    report: str,
    chooser: Model | None = None,
    *,
    store: str | Path | Keeper = ":memory:",
    calibration: Calibration = ELSEWHERE,
    name: str = "",
    n: int = FIRST,
    **config: Any,
) -> Diagnosed:
    """Find where a bug report points.

    Args:
        repo: folder of a git repository, or a Diagnosis over one.
        chooser: any Model; None for the deterministic chooser, which needs none.
        store: where the run is kept.
        calibration: of the confidences.
        n: most findings.
        config: arguments of ``localiser``: ``turns``, ``window``, ``cap``.

    Raises:
        BadInput: not a git repository, nothing to look at, an empty report, or nothing in it matches the report.
    """
    taskset = repo if isinstance(repo, Diagnosis) else Diagnosis(str(repo))
    task = taskset.task(report)
    own = Chooser.over(taskset.tools(), n)
    if not own.findings(task.prompt):
        raise unmatched()
    runner = Runner("clew.coding.localise:localiser", taskset, chooser or own, store, config)
    run = runner.collect([task], n=1, name=name).runs[0]
    found, recoveries = _noted(run)
    usable = [f for f in found if not f.problems(taskset.tools().view)][:n]
    chosen = own.confident(task.prompt, usable or own.findings(task.prompt), calibration)
    return Diagnosed(tuple(chosen), run, recoveries, fallback=not usable)


def _noted(run: Run) -> tuple[list[Finding], tuple[str, ...]]:
    found, recoveries = list[Finding](), list[str]()
    for call in run.calls:
        if call.kind == "note" and call.action == "findings":
            found = [finding(f) for f in json.loads(call.text)["findings"]]
        elif call.kind == "note" and call.action == "recovery":
            recoveries.append(json.loads(call.text)["part"])
    return found, tuple(recoveries)
