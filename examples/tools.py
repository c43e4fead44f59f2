"""A tool-calling agent with typed Python functions as tools.

The agent runs the tool calls of one reply at the same time, corrects a call that failed, and notes its answer.
"""

from __future__ import annotations

import asyncio
from typing import Literal

import clew
from clew.core.values import Message, ToolCall
from clew.models.fakes import Scripted

STOCK = {"bolt": 140, "nut": 12}


def stock(item: Literal["bolt", "nut"]) -> int:
    """How many pieces of an item are left."""
    return STOCK[item]


async def order(item: str, count: int, express: bool = False) -> dict:
    """Order more of an item."""
    await asyncio.sleep(0.01)
    if count < 1:
        raise ValueError("count must be at least 1")
    return {"ordered": count, "of": item, "days": 1 if express else 5}


async def clerk(run):
    """Does what the bundled ``tool_user`` does, but runs the tool calls of one reply at the same time."""
    chat = run.chat("Keep at least 50 of everything.", tools=run.tools)
    chat.say("user", run.task.prompt)
    while (reply := await chat.ask()).calls:
        for seen in await asyncio.gather(*(run.act(call) for call in reply.calls)):
            chat.say("tool", seen)
    run.note("answer", text=reply.text)


def wish(*calls: tuple[str, str]) -> Message:
    return Message("assistant", "", calls=tuple(ToolCall(f"c{i}", *call) for i, call in enumerate(calls)))


def main() -> None:
    model = Scripted(  # plays the part of an endpoint, such as clew.model("http://localhost:8000/v1#qwen3")
        [
            wish(("stock", '{"item": "bolt"}'), ("stock", '{"item": "nut"}')),
            wish(("order", '{"item": "nut", "count": 0}')),
            wish(("order", '{"item": "nut", "count": 38, "express": true}')),
            "Ordered 38 nuts, here tomorrow.",
        ]
    )
    runner = clew.Runner(clerk, None, model, tools=[clew.tool(stock, idempotent=True), order])
    run = runner.collect([clew.Task("stock-1", "See to the stock.")], n=1).runs[0]
    print(clew.tree(run))
    print(runner.replay(run).calls, "Calls replayed, no tool called")

    told = runner.fork(run, at=3, result="60")[0]  # what if the second tool had given another answer?
    print("told 60 nuts:", [call.kind for call in told.calls[3:]], f"{told.shared} Calls shared")


if __name__ == "__main__":
    main()
