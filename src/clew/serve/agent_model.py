"""An agent served as a Model: each completion is a run of the agent, kept in a store like any other run.

``clew serve --agent`` makes one; so may any program that gives an agent to a Runner, a router or a judge in a model's
place. The run is the record of how the answer came about: it replays and forks on its own, and its children are named
in it. The agent must never be told what only the caller's own record may know, such as the caller's run.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from clew.core.errors import BadInput, ModelError
from clew.core.keys import value_digest
from clew.core.protocols import Model, Renderer, Taskset
from clew.core.records import Request, RunRow
from clew.core.values import Completion, Message, StopReason, Task, ToolCall, Usage
from clew.harness import LiveRun, Runner
from clew.harness.collecting import open_groups
from clew.harness.loading import Agent
from clew.harness.run.dispatch import Dispatcher
from clew.harness.run.drive import drive
from clew.harness.run.nodes import message_json
from clew.harness.run.pending import revive
from clew.harness.run.spec import RunSpec
from clew.harness.workflow.clearance import Team
from clew.models.compose.policy import Policy
from clew.models.dialects import dumps, media, tags
from clew.serve import client_tools
from clew.serve.client_tools import Outside, brought
from clew.serve.served_origins import ServedOrigins, every_call, last_said
from clew.store import Keeper, Run

FINISH = dict.fromkeys(("step_limit", "token_limit", "time_limit", "cost_limit"), "length")
FINISH |= dict.fromkeys(("returned", "done"), "stop")


class AgentModel:
    """Answers by running an agent. Its task: ``prompt`` is the last user message, ``data["messages"]`` all of them.

    The request's tools are the run's tools, which the client performs: where the run waits for them alone it is left in
    the store, and the request that brings their results goes on with it, also after a restart.

    The reply is the text that the agent returns, else its note ``answer``, else the last reply of its own model. In
    the chat dialect the reply's field ``clew_run`` names the run. The caller's seed becomes the run's; its other
    settings are not the agent's.

    An agent that takes ``workers`` and ``policy``, as the orchestrator does, is held to the policy that a request
    states, too: it is judged before a run is opened, and becomes the task's. What such an agent wrote before, and what
    its client's tools gave, is known by the classes of data that the record names; anything else is ``unknown``.

    Args:
        agent: an async function over a LiveRun, or its reference.
        model, taskset, store: of the agent's runs; so are ``options``, which Runner explains.
    """

    renderer: Renderer | None = None
    version = 0

    def __init__(
        self,
        agent: Agent | str,
        model: Model | None = None,
        taskset: Taskset | None = None,
        store: str | Path | Keeper = ":memory:",
        **options: Any,
    ) -> None:
        self.runner = Runner(agent, taskset, model, store, **options)
        self.ref, self._agent, self._said = self.runner.agent_ref, self.runner.agent, dict[str, object]()
        self._busy = set[str]()
        takes = inspect.signature(self._agent).parameters.keys() >= {"workers", "policy"}
        said = [self.runner.config.get(name) for name in ("workers", "lead", "policy")]
        self._team = Team.read(*said) if takes else None
        self._origins = ServedOrigins(self.runner.store, self.runner.row(Task("", "")))

    @property
    def under(self) -> Callable[[object], Team]:
        """Who may be asked under a policy as well; there is none where the agent keeps no policies."""
        if self._team is None:
            raise AttributeError(f"agent {self.ref} keeps no policy")
        return self._team.under

    async def _heard(self, outside: Outside, run: LiveRun, **config: Any) -> None:
        """The agent, whose answer is kept until the completion has it."""
        outside.live.append(run)
        self._said[run.id] = await self._agent(run, **config)

    async def complete(self, request: Request) -> Completion:
        """Run the agent, from its task on or with results of the client's tools from where its run was left.

        Raises:
            BadInput: a begun reply or images are sent, which an agent is not handed; a tool has the name of one of the
                agent's own; results of calls that no run made; a policy that is none, or another than
                that of the run that goes on. Refused: the policy allows nobody. ModelError: the run failed.
        """
        if request.forced or request.forced_text:
            raise BadInput(f"agent {self.ref} takes no beginning of a reply", remedy="Send messages alone.")
        if any(media(tags(node.message)) for node in request.path):
            raise BadInput(f"agent {self.ref} is handed text alone", remedy="Leave images and files out.")
        spec = self.runner.spec
        if twice := sorted(spec.tools.keys() & {tool.name for tool in request.tools}):
            raise BadInput(f"agent {self.ref} has a tool {twice[0]!r} of its own", remedy="Give the tool another name.")
        team = self._allowed(request)
        name, results = brought(request.path)
        if name:
            row = self._left(name)
            task = spec.task_of(row)
            if request.policy is not None and Policy.read(request.policy) != Policy.read(task.data.get("policy", {})):
                raise BadInput(f"run {name} began under another policy", remedy="Send the policy that it began with.")
        else:
            task = _task(request, team, self._origins)
            (opened,) = open_groups(spec, [task], 1, request.seed, "", 0)
            row = opened.runs[0].row
        recorded = [call for call in every_call(Run(spec.store, row)) if call.done >= 0]
        outside = Outside(row.id, results, recorded)
        tools = {**spec.tools, **outside.tools(request.tools)}
        spec = replace(spec, agent=partial(self._heard, outside), tools=tools)
        self._busy.add(row.id)
        try:
            ended = await self._driven(spec, outside, row, task)
        finally:
            self._busy.discard(row.id)
        outside.check()
        before = {(call.run, call.seq) for call in recorded}
        waiting = {} if ended else outside.waiting
        return self._completion(Run(spec.store, row), self._said.pop(row.id, None), waiting, before)

    async def _driven(self, spec: RunSpec, outside: Outside, row: RunRow, task: Task) -> bool:
        """Drive a run until it ends (True), or waits for its client alone: then it is left in the store as it is."""
        async with Dispatcher(spec.store, spec.owner, spec.concurrency) as dispatch:
            work = asyncio.ensure_future(drive(spec, dispatch, row, task))
            try:
                if await outside.settled(work):
                    work.result()
                return work.done()
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    def _allowed(self, request: Request) -> Team | None:
        """Who may be asked; None where the agent keeps no policies.

        Raises:
            BadInput: the request states a policy, and it is none, or nobody keeps it. Refused: it allows nobody.
        """
        if self._team is None:
            if request.policy is not None:
                raise BadInput(f"agent {self.ref} keeps no policy", remedy="Ask without one.")
            return None
        team = self._team.under(request.policy)
        if not team.open()[0]:
            raise team.nobody()
        return team

    def _left(self, name: str) -> RunRow:
        """The run of this agent that waits for its client.

        Raises:
            BadInput: there is none, or it is being answered. UnknownName: the store has no such run.
        """
        row = self.runner.store.row(name)
        if row.agent != self.ref:
            raise BadInput(f"run {name} is not of agent {self.ref}", remedy="Ask the server that made its calls.")
        if name in self._busy:
            raise BadInput(f"run {name} is being answered", remedy="Wait for the answer of the request before.")
        return row

    def _completion(
        self, run: Run, said: object, waiting: Mapping[str, ToolCall], before: set[tuple[str, int]]
    ) -> Completion:
        calls, stop = run.calls, run.stop or StopReason.CANCELLED
        asks = [call for call in calls if call.kind == "ask"]
        if stop not in FINISH and not waiting:
            failed = revive(asks[-1].error) if asks and asks[-1].error else None
            if stop == StopReason.MODEL_ERROR and isinstance(failed, ModelError):
                raise failed
            raise ModelError(f"run {run.id} of agent {self.ref} ended with {stop}", remedy=f"clew show {run.id}")
        if not isinstance(said, str):
            said = last_said(run, calls)
        extra = dumps({"chat": {"clew_run": run.id}})
        message = client_tools.message(waiting, extra) if waiting else Message("assistant", said, extra=extra)
        spent = [call for call in every_call(run) if call.kind == "ask" and (call.run, call.seq) not in before]
        usage = Usage(*(sum(call.usage[i] for call in spent) for i in range(3)))
        cost, took = sum(call.cost for call in spent), sum(call.seconds for call in calls)
        finish = "tool_calls" if waiting else FINISH[stop]
        if self._team is not None:
            self._origins.said(message, calls)
        return Completion(message, finish=finish, model=self.ref, usage=usage, cost=cost, seconds=took)


def _task(request: Request, team: Team | None, origins: ServedOrigins) -> Task:
    path = [node.message for node in request.path]
    messages = [message_json(one._replace(extra="")) for one in path]
    name = f"chat-{value_digest(messages).hex()[:12]}"
    if team is not None:
        messages = [one | more for one, more in zip(messages, origins.told(path, team.labelled), strict=True)]
    prompt = next((m["text"] for m in reversed(messages) if m["role"] == "user"), "")
    stated = {"policy": dict(request.policy)} if request.policy is not None else {}
    return Task(name, prompt, {"messages": messages, **stated})
