"""Tools that the client of a served agent performs: the run is left where it waits for them, and taken up again.

``AgentModel`` uses it. A call of such a tool is an act of the run like any other. While its result is away nothing is
kept in memory: the run lies in the store, unfinished, and the next request, which names it by the ids of the calls,
goes on with it, in this process or after a restart. Results are text from outside and are never parsed here.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from clew.core.errors import BadInput
from clew.core.keys import value_digest
from clew.core.records import NO_TOOL, Call, Node, action_text
from clew.core.values import Message, Observation, ToolCall, ToolSpec
from clew.harness import LiveRun
from clew.harness.tools import Tool

PAUSE = 0.01  # seconds between two looks at whether anything but the client is waited for
ID = re.compile(r"([0-9a-z]{6,40})-[0-9a-f]{12}(?:-\d+)?")


class Outside:
    """What a run waits for from its client.

    Args:
        run: its id. results: id of a call as the client knows it -> text. recorded: Calls of the run that are answered.

    A client knows a call by the run, a digest of the call, and its number among equal ones: so the id is the same when
    the run is taken up again, and can be found in the record.
    """

    def __init__(self, run: str, results: Mapping[str, str], recorded: Iterable[Call]) -> None:
        self.run, self.results, self.live = run, results, list[LiveRun]()
        self.waiting: dict[str, ToolCall] = {}
        self._name = _Names(run)
        self._asked = asyncio.Event()
        self.known = {self._name(call) for call in _acts(recorded)}

    def tools(self, specs: Iterable[ToolSpec]) -> dict[str, Tool]:
        """The client's tools, by name."""
        return {spec.name: ClientTool(spec, self.perform, idempotent=True, parallel=True) for spec in specs}

    async def perform(self, action: ToolCall) -> Observation:
        """The client's result where it has brought one; else wait until the run is left."""
        name = self._name(action)
        if name not in self.results:
            self.waiting[name] = action
            self._asked.set()
            await asyncio.Event().wait()
        self.known.add(name)
        return Observation(self.results[name], call_id=action.id)

    async def settled(self, work: asyncio.Future[Any]) -> bool:
        """Wait until the run has ended (True), or waits for the client alone.

        A run that is taken for waiting a moment too early loses nothing: what was under way is asked again.
        """
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait({work, asked}, return_when=asyncio.FIRST_COMPLETED)
            still = 0
            while not work.done() and still < 2:
                still = still + 1 if sum(run.under_way for run in self.live) <= len(self.waiting) else 0
                await asyncio.wait({work}, timeout=PAUSE)
        finally:
            asked.cancel()
        return work.done()

    def check(self) -> None:
        """See that each result was of a call that the run made.

        Raises:
            BadInput: one was not.
        """
        if unknown := self.results.keys() - self.known:
            told = f"run {self.run} made no call {min(unknown)!r}"
            raise BadInput(told, remedy="Send each result under the id that its call had.")


class _Names:
    """Ids of a run's calls as the client knows them, the calls in order."""

    def __init__(self, run: str) -> None:
        self._run, self._seen = run, Counter[str]()

    def __call__(self, action: ToolCall) -> str:
        name = f"{self._run}-{value_digest(list(action)).hex()[:12]}"
        self._seen[name] += 1
        return name if self._seen[name] == 1 else f"{name}-{self._seen[name]}"


def answered(run: str, calls: Iterable[Call]) -> dict[str, ToolCall]:
    """The calls of tools that a run made and that were answered, by the ids that the client knows them by."""
    name = _Names(run)
    return {name(call): call for call in _acts(call for call in calls if call.done >= 0)}


def _acts(recorded: Iterable[Call]) -> Iterator[ToolCall]:
    for call in recorded:
        if call.kind == "act" and call.finish == "tool":
            yield ToolCall(*json.loads(call.action or action_text(NO_TOOL)))


class ClientTool(Tool):
    """A tool that the client performs; its arguments go to the client as the model wrote them."""

    __slots__ = ()

    async def call(self, action: ToolCall, folder: Path | None = None) -> Observation:
        observation: Observation = await self.function(action)
        return observation


def brought(path: Sequence[Node]) -> tuple[str, dict[str, str]]:
    """The run that a request goes on with, and the results that it brings: its last messages, where they are a tool's.

    Raises:
        BadInput: the calls are none of a served run, or of several runs, or one of them is answered twice.
    """
    results = dict[str, str]()
    for node in reversed(path):
        message = node.message
        if message.role != "tool":
            break
        if message.call_id in results:
            raise BadInput(f"call {message.call_id!r} is answered twice", remedy="Send one message for each call.")
        results[message.call_id or ""] = message.text
    runs = {found[1] if (found := ID.fullmatch(name)) else "" for name in results}
    if not results:
        return "", {}
    if len(runs) > 1 or "" in runs:
        told = "the results are of calls that no run of this server made"
        raise BadInput(told, remedy="Send each result under the id that its call had.")
    return runs.pop(), results


def message(waiting: Mapping[str, ToolCall], extra: str) -> Message:
    """The reply that asks the client for its tools."""
    return Message("assistant", "", calls=tuple(call._replace(id=name) for name, call in waiting.items()), extra=extra)
