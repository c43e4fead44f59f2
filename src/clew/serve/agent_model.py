"""An agent served as a Model: each completion is a run of the agent, kept in a store like any other run.

``clew serve --agent`` makes one; so may any program that gives an agent to a Runner, a router or a judge in a model's
place. The run is the record of how the answer came about: it replays and forks on its own, and its children are named
in it. The agent must never be told what only the caller's own record may know, such as the caller's run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clew.core.errors import BadInput, ModelError
from clew.core.keys import value_digest
from clew.core.protocols import Model, Renderer, Taskset
from clew.core.records import Call, Request
from clew.core.values import Completion, Message, StopReason, Task, Usage
from clew.harness import LiveRun, Runner
from clew.harness.loading import Agent
from clew.harness.run.nodes import message_json
from clew.harness.run.pending import revive
from clew.models.dialects import dumps, media, tags
from clew.store import Keeper, Run

FINISH = dict.fromkeys(("step_limit", "token_limit", "time_limit", "cost_limit"), "length")
FINISH |= dict.fromkeys(("returned", "done"), "stop")


class AgentModel:
    """Answers by running an agent. Its task: ``prompt`` is the last user message, ``data["messages"]`` all of them.

    The reply is the text that the agent returns, else the last reply of its own model. In the chat dialect the reply's
    field ``clew_run`` names the run. The caller's seed becomes the run's; its other settings are not the agent's.

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
        self.runner.agent = self._heard

    async def _heard(self, run: LiveRun, **config: Any) -> None:
        """The agent, whose answer is kept until the completion has it."""
        self._said[run.id] = await self._agent(run, **config)

    async def complete(self, request: Request) -> Completion:
        """Run the agent once.

        Raises:
            BadInput: tools, a begun reply or images are sent, which an agent is not handed. ModelError: its run failed.
        """
        if request.tools or request.forced or request.forced_text:
            raise BadInput(
                f"agent {self.ref} takes neither tools nor the beginning of a reply", remedy="Send messages alone."
            )
        if any(media(tags(node.message)) for node in request.path):
            raise BadInput(f"agent {self.ref} is handed text alone", remedy="Leave images and files out.")
        messages = [message_json(node.message._replace(extra="")) for node in request.path]
        prompt = next((m["text"] for m in reversed(messages) if m["role"] == "user"), "")
        task = Task(f"chat-{value_digest(messages).hex()[:12]}", prompt, {"messages": messages})
        (run,) = [run async for group in self.runner.stream([task], 1, request.seed) for run in group]
        return self._completion(run, self._said.pop(run.id, None))

    def _completion(self, run: Run, said: object) -> Completion:
        calls, stop = run.calls, run.stop or StopReason.CANCELLED
        asks = [call for call in calls if call.kind == "ask"]
        if stop not in FINISH:
            failed = revive(asks[-1].error) if asks and asks[-1].error else None
            if stop == StopReason.MODEL_ERROR and isinstance(failed, ModelError):
                raise failed
            raise ModelError(f"run {run.id} of agent {self.ref} ended with {stop}", remedy=f"clew show {run.id}")
        if not isinstance(said, str):
            said = next((self.runner.store.node(c.node_out).message.text for c in reversed(asks) if c.node_out), "")
        message = Message("assistant", said, extra=dumps({"chat": {"clew_run": run.id}}))
        spent = list(_asks(run))
        usage = Usage(*(sum(call.usage[i] for call in spent) for i in range(3)))
        cost, took = sum(call.cost for call in spent), sum(call.seconds for call in calls)
        return Completion(message, finish=FINISH[stop], model=self.ref, usage=usage, cost=cost, seconds=took)


def _asks(run: Run) -> Iterator[Call]:
    """All asks of a run and of its children."""
    runs = [run]
    while runs:
        for call in runs.pop().calls:
            if call.kind == "ask":
                yield call
            elif call.child:
                runs.append(Run(run.store, call.child))
