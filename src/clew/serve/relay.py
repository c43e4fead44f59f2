"""The agent that stands for a foreign program in the record.

The gateway runs it. The tool ``receive`` gives it the program's requests, and the tool ``send`` takes its answers, so
that the run of any program replays and forks like other runs. It must never act on anything but what
``receive`` gave. Stored runs name it as ``harness.loading.RECORDED`` says.
"""

from __future__ import annotations

import asyncio
import json
from typing import NamedTuple

from clew.core.errors import ClewError, MissingExtra, ReplayError, StoreError, WorldError
from clew.core.values import Message, Observation, StopReason, ToolCall
from clew.harness.run.live import Conversation, LiveRun
from clew.harness.run.pending import Stop
from clew.serve.history import Arrival
from clew.serve.pinned import block, leading

QUERY = 8000  # characters of a request that a memory is asked with


class Thread(NamedTuple):
    """A conversation of the program. ``pin``: what a memory gave it, which stands after ``at`` system messages."""

    chat: Conversation
    at: int
    pin: Message | None


async def relay(run: LiveRun, memory: str = "", k: int = 8) -> None:
    """Answer a foreign program's requests as they come, several at once where it sends several, until it ends.

    Args:
        memory: what fits the first request of each conversation is recalled from it, and pinned there.
        k: how many items at most.
    """
    threads: list[Thread] = []
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
                if "note" in told:
                    run.note(told.pop("note"), **told)
                    continue
                break
            if arrival.thread == len(threads):
                threads.append(await opened(run, threads, arrival, arrival.model, memory, k))
            group.create_task(_answer(run, entered(run, threads[arrival.thread], arrival), arrival))
            await asyncio.sleep(0)  # the ask is issued before the next receive: a fork at it shares no later request
    if told.get("stop"):  # what was under way has been answered
        raise Stop(StopReason(told["stop"]), str(told["ended"]))


async def opened(
    run: LiveRun, threads: list[Thread], it: Arrival, model: str | None, memory: str = "", k: int = 8
) -> Thread:
    """A conversation that begins: anew, or as a branch of another. ``model``: who is asked in it; None: the run's."""
    if it.of < 0:
        pin = await _recalled(run, it, memory, k)
        return Thread(run.chat(model=model, tools=it.tools), leading(it.say), pin)
    near = threads[it.of]
    inside = it.keep > near.at
    chat = near.chat.branch(it.keep + (inside and near.pin is not None), model=model, tools=it.tools)
    if inside:
        return Thread(chat, near.at, near.pin)
    told_anew = it.drift or it.declared == "compaction"
    pin = near.pin if told_anew else await _recalled(run, it, memory, k)
    return Thread(chat, it.keep + leading(it.say), pin)


async def _recalled(run: LiveRun, it: Arrival, memory: str, k: int) -> Message | None:
    """What a memory has for a conversation that begins. One that fails gives nothing, and the request goes on."""
    query = next((m.text for m in reversed(it.say) if m.role == "user"), "")
    if not memory or not query.strip():
        return None
    try:
        return block(await run.memory(memory).recall(query[:QUERY], k=k))
    except MissingExtra as error:
        run.note("no memory", memory=memory, why=error.message)
        return None


def entered(run: LiveRun, thread: Thread, it: Arrival) -> Conversation:
    """The conversation of a request, with what the request adds said in it."""
    chat = thread.chat
    if it.drift:
        run.note("drift", conversation=it.thread, why=it.drift)
    if it.declared:
        run.note(it.declared, conversation=it.thread)
    place = thread.at - it.keep if it.keep <= thread.at else -1
    for at, message in enumerate((*it.say, None)):
        if at == place and thread.pin is not None:
            chat.say("system", thread.pin)
        if message is not None:
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
