"""The classes of data of what a served agent said before: its replies, and what the tools gave that it had called.

``AgentModel`` asks it for each request whose agent keeps a policy. What is known stands in the record of the runs, so a
restart forgets nothing. What no run of this agent said or called for must stay ``unknown``.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from clew.core.errors import UnknownName
from clew.core.records import Call, RunRow
from clew.core.values import Message
from clew.models.compose.origins import Origins
from clew.models.compose.policy import UNKNOWN
from clew.serve import client_tools
from clew.store import Run
from clew.store.base import Keeper

RUNS = 10_000  # of the agent, the newest, whose answers are looked up after a restart
KEPT = 8_000  # characters of a call's arguments
OPEN = 1_000  # runs whose calls of tools are remembered
TURN = re.compile(r"(.+)t\d+c\d+")  # a part's own id of a call; see ``harness.workflow.crew.work``


class Called(NamedTuple):
    """A call of a client's tool: in words, and the classes of who called it."""

    text: str
    classes: frozenset[str]


class ServedOrigins:
    """What an agent's runs said, by the record.

    Args:
        store: of the runs. like: a row of the agent with its arguments; runs with others had other rules, and do not
            count.
    """

    def __init__(self, store: Keeper, like: RunRow) -> None:
        self._store, self._like = store, like
        self._said: Origins | None = None
        self._calls = OrderedDict[str, dict[str, Called]]()

    def said(self, message: Message, calls: Sequence[Call]) -> None:
        """A run with these Calls, its children's among them, has answered so."""
        self._answers().said(message, classes_of(calls))

    def told(self, path: Sequence[Message], labelled: bool) -> list[dict[str, Any]]:
        """What a task keeps of each message beside it: of what a tool gave the call, with ``labelled`` of all the
        classes."""
        said, each = list[dict[str, Any]](), self._answers().classes(path) if labelled else []
        for at, one in enumerate(path):
            known = self._called(one.call_id or "") if one.role == "tool" else None
            more: dict[str, Any] = {} if known is None else {"called": known.text}
            if labelled:
                more["classes"] = sorted(each[at] if known is None else known.classes)
            said.append(more)
        return said

    def _answers(self) -> Origins:
        """Answers of this process, and those of the store's runs, which are read once."""
        if self._said is None:
            self._said = Origins()
            named = json.dumps(self._like.agent, ensure_ascii=False)
            for one in self._store.page(f"agent={named}", limit=RUNS).rows:
                run = Run(self._store, one.run)
                if one.stop and self._ours(run.row):
                    calls = list(every_call(run))
                    self._said.said(Message("assistant", last_said(run, calls)), classes_of(calls))
        return self._said

    def _ours(self, row: RunRow) -> bool:
        return (row.agent, row.config) == (self._like.agent, self._like.config)

    def _called(self, id: str) -> Called | None:
        found = client_tools.ID.fullmatch(id)
        run = found[1] if found else ""
        if run and run not in self._calls:
            try:
                row = self._store.row(run)
            except UnknownName:
                return None
            self._calls[run] = _calls_of(Run(self._store, row)) if self._ours(row) else {}
            if len(self._calls) > OPEN:
                self._calls.popitem(last=False)
        return self._calls[run].get(id) if run else None


def _calls_of(run: Run) -> dict[str, Called]:
    """The calls of tools that a client has answered, by the ids that it knows them by."""
    calls = list(every_call(run))
    by_part = dict[str, set[str]]()
    for said in _notes(calls, "calls"):
        by_part.setdefault(str(said.get("part", "")), set()).update(said.get("classes", ()))
    found = dict[str, Called]()
    for id, call in client_tools.answered(run.id, calls).items():
        part = TURN.fullmatch(call.id)
        classes = by_part.get(part[1], {UNKNOWN}) if part else {UNKNOWN}
        found[id] = Called(f"{call.name} {call.arguments[:KEPT]}", frozenset(classes))
    return found


def _notes(calls: Sequence[Call], *names: str) -> Iterator[dict[str, Any]]:
    for call in calls:
        if call.kind == "note" and call.text and (not names or call.action in names):
            yield json.loads(call.text)


def classes_of(calls: Sequence[Call]) -> set[str]:
    """The classes of data that a run's answer holds by its note, else those of all that its notes name."""
    for said in _notes(calls[::-1], "answer"):
        return set(said.get("classes", ()))
    return {one for said in _notes(calls) for one in said.get("classes", ())}


def last_said(run: Run, calls: Sequence[Call]) -> str:
    """What a run answered, where its agent's own value is not at hand: its note ``answer``, else the last reply."""
    for said in _notes(run.calls[::-1], "answer"):
        return str(said.get("text", ""))
    asked = [call for call in calls if call.kind == "ask" and call.node_out and call.run == run.id]
    return run.store.node(asked[-1].node_out).message.text if asked else ""


def every_call(run: Run) -> Iterator[Call]:
    """All Calls of a run and of its children."""
    runs = [run]
    while runs:
        for call in runs.pop().calls:
            yield call
            if call.child:
                runs.append(Run(run.store, call.child))
