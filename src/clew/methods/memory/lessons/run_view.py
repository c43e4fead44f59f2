"""``RunView``: a stored run for one that reflects on it, a line a step, with a closer look at steps that it names.

``learn`` makes one of each run. Reflectors read it, and the screen looks up in it what was really done and answered. It
is built from the record alone: no agent and no world is asked. What a run says is hostile text; it is bounded here, and
whoever puts it before a model puts marks around it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from clew.core.printable import short
from clew.core.records import Call
from clew.store import Run
from clew.store.run import did, said

LINE, VIEW = 200, 8000  # characters of one line, and of all
LOOK, STEPS = 2000, 4  # characters of one text of a closer look, and steps of one


class Moment(NamedTuple):
    """One step: the number of its Call, what the agent did or said, and what was answered. An agent that opens a task
    did nothing yet; a word that nobody answers has no answer. ``acted``: it was done, and not only said."""

    seq: int
    did: str
    saw: str
    acted: bool = True


class RunView:
    """One run, as a reflector and a screen see it.

    Args:
        run: one that has ended.
    """

    def __init__(self, run: Run) -> None:
        self.run = run

    @property
    def id(self) -> str:
        return self.run.id

    @cached_property
    def prompt(self) -> str:
        """The task as the agent was given it; what judges know is not there."""
        return str(json.loads(self.run.row.task or "{}").get("prompt", ""))

    @cached_property
    def reward(self) -> float | None:
        """What the judge said; None where nobody judged."""
        return self.run.reward

    @cached_property
    def moments(self) -> tuple[Moment, ...]:
        """Every step of the run, whole. What a memory gave is none: it was not found out in this run."""
        return tuple(_relayed(self.run) if self.run.relayed else _moments(self.run))

    @property
    def done(self) -> list[tuple[int, str]]:
        """What the agent did: (Call, action)."""
        return [(one.seq, one.did) for one in self.moments if one.acted and one.did]

    @property
    def answered(self) -> list[tuple[int, str]]:
        """What the world and tools answered: (Call, text)."""
        return [(one.seq, one.saw) for one in self.moments if one.saw]

    def place(self, seq: int) -> str:
        """A Call of this run as provenance names it."""
        return f"{self.id}@{seq}"

    @property
    def text(self) -> str:
        """The whole run in at most 8,000 characters: task, verdict, and a line a step; of a long one the middle is left
        out, which ``look`` still shows."""
        reward = "not judged" if self.reward is None else f"{self.reward:g}"
        head = [f"task: {short(self.prompt, 1000)}", f"verdict: reward {reward}, {self.run.stop or 'not ended'}"]
        lines = [_line(one) for one in self.moments]
        room = VIEW - sum(map(len, head)) - 100
        if sum(len(line) + 1 for line in lines) > room:
            first, last = _fitting(lines, room // 3), _fitting(lines[::-1], room - room // 3)[::-1]
            left = self.moments[len(first) : len(lines) - len(last)]
            lines = [*first, f"(Calls {left[0].seq} to {left[-1].seq} are not shown)", *last]
        return "\n".join([*head, *lines])

    def look(self, calls: Iterable[int]) -> str:
        """Up to 4 steps closely, by the numbers of their Calls: each text up to 2,000 characters."""
        known = {one.seq: one for one in self.moments}
        found = []
        for seq in list(dict.fromkeys(calls))[:STEPS]:
            one = known.get(seq)
            found.append(f"@{seq} there is no such step" if one is None else _close(one))
        return "\n".join(found)


def _line(one: Moment) -> str:
    verb = "did" if one.acted else "said"
    did = f" {verb} {short(one.did, LINE // 2)}" if one.did else ""
    saw = f" -> {short(one.saw, LINE // 2)}" if one.saw else ""
    return f"@{one.seq}{did}{saw}"


def _close(one: Moment) -> str:
    parts = [f"{verb}: {_cut(text)}" for verb, text in (("did", one.did), ("answered", one.saw)) if text]
    return "\n".join([f"@{one.seq}", *parts])


def _cut(text: str) -> str:
    return text if len(text) <= LOOK else f"{text[:LOOK]} ({len(text) - LOOK:,} more characters)"


def _fitting(lines: list[str], room: int) -> list[str]:
    """The first lines that fit."""
    kept = list[str]()
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return kept


def _moments(run: Run) -> Iterator[Moment]:
    """Acts with their answers; replies that no act repeats."""
    calls = run.calls
    for place, call in enumerate(calls):
        if call.kind == "open":
            yield Moment(call.seq, "", call.text)
        elif call.kind == "act":
            yield Moment(call.seq, did(call), call.error or call.text)
        elif call.kind == "ask" and call.node_out:
            reply = said(run.store.node(call.node_out).message)
            if not _acts_out(reply, calls[place + 1 : place + 2]):
                yield Moment(call.seq, reply, "", False)
        elif call.kind == "end" and call.text:
            yield Moment(call.seq, "", call.text)


def _acts_out(reply: str, following: list[Call]) -> bool:
    return any(call.kind == "act" and did(call) == reply for call in following)


def _relayed(run: Run) -> Iterator[Moment]:
    """The run of a program behind the gateway: its tool calls are in the replies, their answers in the next prompts."""
    drawn, waiting = set[bytes](), dict[str, tuple[int, str]]()
    for call in (call for call in run.calls if call.kind == "ask" and call.node_out):
        for node in run.store.thread(call.node_in):
            if node.key not in drawn and node.message.role == "tool":
                seq, what = waiting.pop(node.message.call_id or "", (call.seq, ""))
                yield Moment(seq, what, node.message.text)
            drawn.add(node.key)
        message = run.store.node(call.node_out).message
        drawn.add(call.node_out)
        if message.text:
            yield Moment(call.seq, message.text, "", False)
        waiting |= {one.id: (call.seq, f"{one.name}({one.arguments})") for one in message.calls}
    yield from (Moment(seq, what, "") for seq, what in waiting.values())
