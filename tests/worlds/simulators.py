"""Models of worlds for tests: one is always right, since it plays the real world; one is wrong at times."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence

from clew.core.keys import derive
from clew.core.protocols import Taskset
from clew.core.records import Request
from clew.core.values import Completion, Message, Task, ToolCall, Usage
from clew.methods.world_model.prompting import reply_text
from clew.worlds.contract import perform
from clew.worlds.world_asks import open_world


class Shadow:
    """Answers as the real world of the task that the system text tells of, except in a share ``wrong`` of the turns."""

    ref = "shadow"
    version = 1
    renderer = None

    def __init__(self, taskset: Taskset, tasks: Sequence[Task], wrong: float = 0.0) -> None:
        self.taskset, self.tasks, self.wrong, self.calls = taskset, list(tasks), wrong, 0

    def says(self, messages: Sequence[Message]) -> str:
        self.calls += 1
        task = next(task for task in self.tasks if task.prompt in messages[0].text)
        world = open_world(self.taskset, task)
        said = [m.text.rpartition("\n")[2] for m in messages if m.role == "user"]
        seen = world.observe()
        for action in said:
            seen = perform(world, as_call(action) if world.tools else action)
        if random.Random(derive(0, *said)).random() < self.wrong:
            return reply_text("nothing happens")
        return reply_text(seen.text, f"after {len(said)} actions", seen.done)

    async def complete(self, request: Request) -> Completion:
        text = await _aside(self, [node.message for node in request.path])
        return Completion(Message("assistant", text), usage=Usage(10, 5, 0), cost=0.01)

    async def answer(self, messages: Sequence[Message], model: str, sampling: Mapping[str, object]) -> str:
        return await _aside(self, messages)


async def _aside(shadow: Shadow, messages: Sequence[Message]) -> str:
    """In a thread: the contract's ``perform`` runs a loop of its own for a world that answers later."""
    import asyncio

    return await asyncio.to_thread(shadow.says, messages)


def as_call(text: str) -> ToolCall:
    name, _, given = text.partition(" ")
    json.loads(given)
    return ToolCall("c", name, given)
