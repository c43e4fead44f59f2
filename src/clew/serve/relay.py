"""The agent that stands for a foreign program in the record.

The gateway runs it. The tool ``receive`` gives it the program's requests, and the tool ``send`` takes its answers, so
that the run of any program replays and forks like other runs. Stored runs name ``clew.serve.relay:relay``: the module
must never move, and it must never act on anything but what ``receive`` gave.
"""

from __future__ import annotations

import asyncio
import json

from clew.core.errors import ClewError, ReplayError, StoreError, WorldError
from clew.core.values import Observation, StopReason, ToolCall
from clew.harness.run.live import Conversation, LiveRun
from clew.harness.run.pending import Stop
from clew.serve.history import Arrival


async def relay(run: LiveRun) -> None:
    """Answer a foreign program's requests as they come, several at once where it sends several, until it ends."""
    chats: list[Conversation] = []
    async with asyncio.TaskGroup() as group:
        while True:
            got: Observation = await run.act(ToolCall("", "receive", "{}"))
            if got.text.startswith("error:"):
                raise WorldError(got.text)
            arrival = Arrival.read(got.text)
            if arrival is None:
                told = json.loads(got.text)
                if "retry" in told:
                    run.note("retry", **told)
                    continue
                if told.get("stop"):
                    raise Stop(StopReason(told["stop"]))
                return
            group.create_task(_answer(run, _enter(run, chats, arrival), arrival))
            await asyncio.sleep(0)  # the ask is issued before the next receive: a fork at it shares no later request


def _enter(run: LiveRun, chats: list[Conversation], it: Arrival) -> Conversation:
    if it.thread == len(chats):
        if it.of >= 0:
            chats.append(chats[it.of].branch(it.keep, model=it.model, tools=it.tools))
        else:
            chats.append(run.chat(model=it.model, tools=it.tools))
    chat = chats[it.thread]
    if it.drift:
        run.note("drift", conversation=it.thread, why=it.drift)
    if it.declared:
        run.note(it.declared, conversation=it.thread)
    for message in it.say:
        chat.say(message.role, message)
    return chat


async def _answer(run: LiveRun, chat: Conversation, it: Arrival) -> None:
    """Ask, and tell the program what came of it; an error is the program's to take, and the run goes on."""
    said: dict[str, int | str]
    try:
        reply = await chat.ask(**it.sampling)
        said = {"request": it.number, "call": reply.at.seq}
    except (StoreError, ReplayError):
        raise
    except ClewError as error:
        said = {"request": it.number, "error": f"{type(error).__name__}: {error.message}"}
    await run.act(ToolCall("", "send", json.dumps(said)))
