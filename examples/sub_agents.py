"""Runs three sub-agents at the same time.

A lead agent spawns three children that race. The record keeps who answered when, so a replay repeats the order, and a
fork inside a child also runs the lead again from there.
"""

from __future__ import annotations

import asyncio
import random

import clew
from clew.core.values import Completion, Message


class Unsteady:
    """A model whose answers take a random time, so that the children overtake one another."""

    ref, version, renderer = "unsteady", 0, None

    def __init__(self) -> None:
        self.calls = 0

    async def complete(self, request):
        self.calls += 1
        await asyncio.sleep(random.random() * 0.02)
        said = request.path[-1].message.text
        return Completion(Message("assistant", f"{said.split()[0]} {request.seed % 100}"))


async def child(run, topic):
    chat = run.chat(f"You know about {topic}.")
    first = await chat.ask(f"{topic} briefly?")
    second = await chat.ask(f"{topic} again, given {first}?")
    run.note("found", text=second.text)
    return second.text


async def lead(run):
    order = []

    async def one(topic):
        found = await run.spawn(child, f"look into {topic}", topic=topic)
        order.append(found.calls[-2].text)

    await asyncio.gather(*(one(topic) for topic in ("rivers", "bridges", "tolls")))
    await run.chat().ask("Sum up: " + "; ".join(order))


def main() -> None:
    model = Unsteady()
    runner = clew.Runner(lead, None, model)
    run = runner.collect([clew.Task("trade", "Write about trade.")], n=1).runs[0]
    print(clew.tree(run))

    asked = model.calls
    replays = [runner.replay(run).calls for _ in range(20)]
    print(f"20 replays of {replays[0]} Calls, {model.calls - asked} asked of the model")

    spawned = [runner.store.run(call.child) for call in run.calls if call.kind == "spawn"]
    fork = runner.fork(spawned[1], at=2, reply="bridges 0")[0]
    print(f"forked child {spawned[1].id} at its Call 2: the lead's fork shares {fork.shared} Calls, then goes on")
    changed = [runner.store.run(call.child) for call in fork.calls if call.kind == "spawn"][1]
    print("the child now found:", next(call.text for call in changed.calls if call.kind == "note"))


if __name__ == "__main__":
    main()
