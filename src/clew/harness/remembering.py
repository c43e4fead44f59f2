"""``remembering``: an agent around another, which is told what a memory has for its task.

``clew run --memory`` plays it, so that agents that know nothing of memories have one. What is told stands in the system
prompt of each conversation of the agent within, as data in a marked block. It must never tell an item that no Call of
the run names: audits and deletion go by these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from clew.harness.loading import agent_ref, load_agent
from clew.harness.memory import Recalled
from clew.harness.run.live import LiveRun

TRIES = 3  # asks for a choice
_OBJECT = re.compile(r"\{[^{}]{0,2000}\}")
CHOOSE = """Notes from earlier runs follow, {n} of them, numbered from 1 on in their order. Which would help with the
task? Answer with JSON alone: {{"use": [numbers, at most {most}]}}; an empty list where none would.

The task:
{task}

{notes}"""


async def remembering(
    run: LiveRun, agent: str, memory: str, k: int = 8, select: int = 0, config: Mapping[str, Any] | None = None
) -> object:
    """Plays another agent, which is told what a memory has for its task.

    Args:
        agent: its reference. config: its arguments.
        memory: name of the memory.
        k: items that are recalled at most.
        select: where it is above 0, the run's model first chooses at most so many of them, and these alone are told
            and counted.
    """
    query, book = run.task.prompt or run.view.text, run.memory(memory)
    found = await book.recall(query, k=k, count=not select)
    if select and found.items:
        found = await book.select(found, await _chosen(run, found, query, select), query)
    return await load_agent(agent_ref(agent))(run.told(found.text), **(config or {}))


async def _chosen(run: LiveRun, found: Recalled, task: str, most: int) -> list[str]:
    """Ids of the items that the run's model chooses; the first ones where it says nothing that can be read."""
    chat, left = run.chat(), len(found.items)
    text = CHOOSE.format(n=left, most=most, task=task[:8000], notes=found.text)
    for _ in range(TRIES):
        numbers = _numbers((await chat.ask(text)).text)
        if numbers is not None:
            return [found.items[i - 1].id for i in numbers if 1 <= i <= left][:most]
        text = 'That is no JSON object {"use": [numbers]}. Answer with it alone.'
    run.note("no selection: the model's answers could not be read")
    return [item.id for item in found.items[:most]]


def _numbers(reply: str) -> list[int] | None:
    """The numbers of a reply, each once; None where there is no such object."""
    for part in _OBJECT.findall(reply[:40_000])[::-1]:
        try:
            told = json.loads(part)
        except (ValueError, RecursionError):
            continue
        use = told.get("use") if isinstance(told, dict) else None
        if isinstance(use, list) and all(isinstance(one, int) and not isinstance(one, bool) for one in use):
            return list(dict.fromkeys(use))
    return None
