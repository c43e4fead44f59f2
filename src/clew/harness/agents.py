"""Bundled agents. Each is an ordinary async function over a LiveRun."""

from __future__ import annotations

from typing import Any

from clew.core.errors import BadInput
from clew.core.registry import build
from clew.core.values import Message, Observation
from clew.harness.run.live import Conversation, LiveRun
from clew.harness.run.nodes import Said, as_message


async def player(run: LiveRun, window: int = 0) -> None:
    """Plays a text world: shows the model each observation and performs what it answers.

    Args:
        window: how many past exchanges the model sees with the present observation; 0 is all of them.
    """
    chat = run.chat()
    while not run.done:
        if window and len(chat.nodes) > 2 * window:
            chat = _recent(run, chat, window)
        reply = await chat.ask(run.view)
        await run.act(reply)


async def demonstrator(run: LiveRun, world: str, **how: Any) -> None:
    """Performs what the world's taskset demonstrates for the task, another demonstration in every run; asks no model.

    Args:
        world: reference of a taskset with ``demonstrate(task, seed=..., ...)``, such as the run's own.
        how: further arguments of ``demonstrate``, as ``kind`` for maze or ``noise`` for household.

    Raises:
        BadInput: the taskset demonstrates nothing.
    """
    taskset = build("tasksets", world)
    if not hasattr(taskset, "demonstrate"):
        raise BadInput(f"{world} has no demonstrations", remedy="Those of maze and household do.")
    seed = int(await run.draw("demonstration") * 2**32)
    for action in taskset.demonstrate(run.task, seed=seed, **how):
        if not run.done:
            await run.act(action)


def _recent(run: LiveRun, chat: Conversation, window: int) -> Conversation:
    fresh = run.chat()
    for node in chat.nodes[-2 * window :]:
        fresh.say(node.message.role, node.message)
    return fresh


async def tool_user(run: LiveRun, system: str = "", max_turns: int = 30) -> str:
    """Works on the task by calling tools until the model replies without a call; that reply is noted and returned.

    The task is the messages of ``task.data`` where there are any, else its prompt. Several calls of one reply are
    performed in order.

    Args:
        system: first message; empty for none.
        max_turns: replies after which it gives up.
    """
    chat = run.chat(system or None, tools=run.tools)
    for message in run.task.data.get("messages") or ({"role": "user", "content": run.task.prompt or run.view.text},):
        chat.say(message["role"], message["content"])
    for _ in range(max_turns):
        reply = await chat.ask()
        if not reply.calls:
            run.note("answer", text=reply.text)
            return reply.text
        for observation in await run.act(reply):
            chat.say("tool", observation)
        if run.done:
            break
    return ""


async def chatter(run: LiveRun, system: str = "") -> str:
    """One question, one answer."""
    reply = await run.chat(system or None).ask(run.task.prompt)
    return reply.text


async def answerer(run: LiveRun) -> str:
    """Answers the task's question once: says the messages of ``task.data`` where there are any, else the prompt, and
    returns what the model replies. The agent of datasets.
    """
    chat = run.chat()
    for message in run.task.data.get("messages", ()):
        chat.say(message["role"], message["content"])
    if not chat.nodes:
        chat.say("user", run.task.prompt)
    return (await chat.ask()).text


async def transcript(run: LiveRun) -> None:
    """The agent of imported runs: re-issues what is written, then goes on as any chat would.

    ``task.data`` holds what no Call does: ``opening``, the messages before the first reply; ``turns``, for each
    recorded reply ``acts`` (``calls``, ``text`` or ``none``: what answered it), ``answers`` ([role, extra] of each
    answer's message), ``say`` (further messages before the next reply) and, where another conversation begins with the
    reply, its ``opening``. Past the recorded turns a reply's tool calls, else its text, are acts, at which a run
    without a world stops.
    """
    chat = run.chat(tools=run.tools)
    turns = run.task.data.get("turns", ())
    for message in run.task.data.get("opening", ()):
        _say(chat, message)
    for index in range(max(len(turns), 1000)):
        turn = turns[index] if index < len(turns) else {}
        if "opening" in turn:
            chat = run.chat(tools=run.tools)
            for message in turn["opening"]:
                _say(chat, message)
        reply = await chat.ask()
        acts = turn.get("acts", "calls" if reply.calls else "text")
        answers: list[Observation] = []
        if acts == "calls" and reply.calls:
            answers = await run.act(reply)
        elif acts != "none":
            answers = [await run.act(reply.text)]
        for answer, (role, extra) in zip(answers, turn.get("answers", [["user", ""]] * len(answers)), strict=False):
            role, extra = "tool" if answer.call_id else role, extra or answer.extra
            chat.say(role, Message(role, answer.text, call_id=answer.call_id, extra=extra))
        for message in turn.get("say", ()):
            _say(chat, message)
        if turn and index == len(turns) - 1:
            return


def _say(chat: Conversation, fields: Said) -> None:
    message = as_message(fields)
    chat.say(message.role, message)
