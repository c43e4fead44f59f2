"""Tasksets of `verifiers` as Clew tasks: a question, tools where the taskset has some, and its own rewards as judge.

The registry makes one as ``verifiers(NAME)``; NAME is a package that is installed, as `vf-eval` takes it. Written for
the API of verifiers 0.4 (``verifiers.v1``). The package is other people's code and runs in this process, as whatever is
imported does. What needs more than a conversation and tools to be judged is refused, never judged by less.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from itertools import islice
from typing import Any

from clew.core.errors import BadInput, MissingExtra, Undecided, UnknownName
from clew.core.protocols import World
from clew.core.reading import Record
from clew.core.registry import make_ref
from clew.core.values import Message, Task
from clew.exchange.dataset.tasks import Dataset
from clew.exchange.transcript import recall
from clew.harness.tools import Tool, tool
from clew.store import Run

MOST = 10_000  # tasks that are read of one taskset, which may be endless
INSTALL = "Run `pip install verifiers==0.4.0`, in an environment of its own: it pins packages."
ELSEWHERE = "Run it with `vf-eval` and `clew gateway`, which records what any OpenAI-style client does."


class VerifiersTasks:
    """The tasks of a verifiers taskset whose episodes are one conversation.

    ``functions`` are the tools of its toolsets, which every run may call; an agent that calls tools takes them
    (`--agent tool_user`).

    Args:
        name: of the installed package, as ``reverse-text``.
        settings: fields of the taskset's own config.
        most: tasks that are read, from the first.
        seconds: how long its rewards may take for one run.

    Raises:
        MissingExtra: verifiers is not installed. UnknownName: no such package.
        BadInput: the settings do not fit, or an episode is more than a conversation: it has a program of its own, wants
            a container, or shares state between its tools and its judge.
    """

    def __init__(
        self, name: str, settings: Mapping[str, Any] | None = None, *, most: int = MOST, seconds: float = 60.0
    ) -> None:
        self._name, self._about = name, f"the verifiers taskset {name!r}"
        told = dict(settings or {})
        given = {"name": name, "settings": told, "most": most, "seconds": seconds}
        self.ref = make_ref("verifiers", given, {"settings": {}, "most": MOST, "seconds": 60.0})
        self._tasks = self._loaded(told, most)
        rows = [_row(number, task) for number, task in enumerate(self._tasks)]
        self._data, self._seconds = Dataset(rows, prompt="messages", id="id"), seconds

    def __repr__(self) -> str:
        return self.ref

    def sample(self, n: int, seed: int = 0, split: str = "train") -> list[Task]:
        """``n`` tasks in an order that the seed decides; a tenth of all, by a hash of their ids, is each of the splits
        eval and test.

        Raises:
            As ``Dataset.sample``.
        """
        return self._data.sample(n, seed, split)

    def find(self, task_id: str) -> Task:
        """The task of that id, which is the taskset's own where it gives one, else its place.

        Raises:
            UnknownName: there is none.
        """
        return self._data.find(task_id)

    def open(self, task: Task) -> World:
        """A world that shows the question and takes one reply."""
        return self._data.open(task)

    async def judge(self, task: Task, run: Record, world: World | None) -> Mapping[str, float]:
        """``reward``, the sum of the taskset's rewards with their weights, and each reward and metric by its name.

        Raises:
            Undecided: one of them failed, or took too long.
        """
        assert isinstance(run, Run)
        try:
            async with asyncio.timeout(self._seconds):
                return await self._score(task, run)
        except TimeoutError as error:
            raise Undecided(f"{self._about} gave no reward within {self._seconds:g} s") from error
        except Exception as error:  # whatever its code raises
            raise Undecided(f"{self._about}: {' '.join(str(error).split())[:300]}") from error

    def _loaded(self, settings: Mapping[str, Any], most: int) -> list[Any]:
        """The tasks, of which a conversation and tools can be judged. Fills ``functions``."""
        try:
            from verifiers.v1.utils import loaders
        except ImportError as error:
            raise MissingExtra("verifiers is not installed", remedy=INSTALL) from error
        try:
            kind: Any = loaders.taskset_config_type(self._name)
            program: Any = loaders.environment_class(self._name)
            if program.__name__ != "SingleAgentEnv":
                self._refuse(f"plays its episodes by a program of its own, {program.__name__}")
            taskset: Any = loaders.load_taskset(kind.model_validate({**settings, "id": self._name}))
            tasks = list(islice(taskset, most))
        except BadInput:
            raise
        except ModuleNotFoundError as error:
            told = f"{self._about} or a package that it needs is not installed"
            raise UnknownName(told, remedy="Install it with pip, beside verifiers.") from error
        except Exception as error:  # what the package raises, or pydantic of the settings
            told = " ".join(str(error).split())[:300]
            raise BadInput(f"{self._about} cannot be loaded: {told}", remedy="Mend what the error names.") from error
        if not tasks:
            raise BadInput(f"{self._about} has no task", remedy="Look at its settings.")
        shared = type(taskset).toolsets(taskset.config)
        self.functions = self._tools([*shared, *type(tasks[0]).toolsets(tasks[0].config)])
        for task in tasks:
            self._fits(task)
        return tasks

    def _refuse(self, what: str) -> None:
        raise BadInput(f"{self._about} {what}, which Clew does not", remedy=ELSEWHERE)

    def _fits(self, task: Any) -> None:
        if task.data.prompt is None:
            self._refuse("lets the user speak first")
        if task.NEEDS_CONTAINER or task.data.image:
            self._refuse("works in a container")
        for hook in (*task.hooks("reward"), *task.hooks("metric")):
            asked = inspect.signature(hook).parameters.get("runtime")
            if asked is not None and asked.default is asked.empty:
                self._refuse(f"judges ({hook.__name__}) by looking into the machine of the run")

    def _tools(self, toolsets: list[Any]) -> list[Tool]:
        """The tools of its servers, called in this process."""
        from verifiers.v1.mcp import Toolset
        from verifiers.v1.state import State, state_cls
        from verifiers.v1.utils.decorators import discover_decorated

        found = []
        for one in toolsets:
            own = [hook for hook in ("setup", "setup_task") if getattr(type(one), hook) is not getattr(Toolset, hook)]
            if own or state_cls(type(one)) is not State or getattr(one.config, "url", None):
                self._refuse(f"has tools ({type(one).__name__}) with a state or a server of their own")
            for method in discover_decorated(one, "tool"):
                bare = getattr(method, "tool_name", None) or method.__name__
                found.append(tool(method, name="_".join(filter(None, (one.server_name, bare)))))
        return found

    async def _score(self, task: Task, run: Run) -> dict[str, float]:
        """What the taskset's rewards say, each times its weight, and what its metrics say."""
        from verifiers.v1.configs.agent import AgentConfig
        from verifiers.v1.trace import AgentInfo, Trace, TraceTask

        theirs = self._tasks[self._number(task)]
        about = TraceTask(type=type(theirs).__name__, data=theirs.data, key=theirs.key, hash=theirs.hash)
        trace: Any = Trace(task=about, agent=AgentInfo(config=AgentConfig()), nodes=_nodes(recall(run).messages))
        trace.is_completed = trace.ok = True
        await theirs.score(trace)
        parts = {name: float(one.value) for name, one in trace.rewards.items() if one is not None}
        told = {name: float(value) for name, value in trace.metrics.items() if value is not None}
        return {"reward": sum(parts.values()), **told, **parts}

    def _number(self, task: Task) -> int:
        secret = self._data.find(task.id).secret
        assert isinstance(secret, Mapping)
        return int(secret["columns"]["number"])


def _row(number: int, task: Any) -> dict[str, Any]:
    """A task as a row of data: what is said first, and the number by which the task is found again."""
    prompt, system = task.data.prompt, task.data.system_prompt
    said = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [_said(one) for one in prompt]
    before = [{"role": "system", "content": system}] if system else []
    return {"id": str(task.data.id or number), "messages": [*before, *said], "number": number}


def _said(message: Any) -> dict[str, Any]:
    if not isinstance(message.content, str):
        raise BadInput("a prompt of verifiers holds pictures", remedy="Take a taskset of texts.")
    return {"role": message.role, "content": message.content}


def _nodes(messages: tuple[Message, ...]) -> list[Any]:
    """A conversation as a verifiers trace holds it: a chain in which the replies were sampled."""
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.types import AssistantMessage, SystemMessage, ToolCall, ToolMessage, UserMessage

    found = []
    for at, m in enumerate(messages):
        if m.role == "assistant":
            calls = [ToolCall(id=c.id, name=c.name, arguments=c.arguments) for c in m.calls]
            one: Any = AssistantMessage(content=m.text, reasoning_content=m.reasoning or None, tool_calls=calls or None)
        elif m.role == "tool":
            one = ToolMessage(tool_call_id=m.call_id or "", content=m.text)
        else:
            one = (SystemMessage if m.role == "system" else UserMessage)(content=m.text)
        found.append(MessageNode(parent=at - 1 if at else None, message=one, sampled=m.role == "assistant"))
    return found
