"""Agents, tasksets and models of the fixture in ``store``.

Its records name them (``tests.compat.agents:parent``, ``lenient``, ``policy``), so that names and sources here stay as
they are: a run of an agent that was changed does not replay.
"""

from __future__ import annotations

import asyncio
import importlib
import tomllib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import clew
from clew.models.fakes import Echo, Markov, Scripted, tool_call
from clew.worlds.household import Household

ROOMS = (
    "go kitchen\ngo bathroom\nopen cabinet\nopen fridge\ntake key\ntake mug\nput mug in fridge\nput key in shelf\n"
    "open fridge\nopen cabinet"
)
SMALL = {"rooms": 2, "receptacles": 2, "objects": 2, "closed": 1, "steps": 6}


async def parent(run: clew.LiveRun, depth: int = 1) -> str:
    """Plans, lets two children work side by side, and sums up."""
    chat = run.chat("You plan.")
    plan = await chat.ask(run.task.prompt)
    first, second = await asyncio.gather(
        run.spawn("tests.compat.agents:helper", f"do {plan.text}", depth=depth),
        run.spawn("tests.compat.agents:helper", "do the rest"),
    )
    return (await chat.ask(f"children ended {first.stop} and {second.stop}")).text


async def helper(run: clew.LiveRun, depth: int = 0) -> str:
    """Answers in two turns; with ``depth`` it has a child of its own between them."""
    chat = run.chat()
    first = await chat.ask(run.task.prompt)
    if depth:
        await run.spawn("tests.compat.agents:helper", f"less {first.text}", depth=depth - 1)
    return (await chat.ask(f"and then? {first.text}")).text


async def foreman(run: clew.LiveRun) -> None:
    """Has its own task played by a child, and then tries itself."""
    await run.spawn("clew.harness.agents:player", run.task)
    chat = run.chat(max_tokens=8)
    while not run.done:
        await run.act(await chat.ask(run.view))


async def everything(run: clew.LiveRun, other: str = "") -> None:
    """All that a LiveRun offers: draws, the time, notes, samples, branches, asks under way at once, another model."""
    run.note("begun", share=round(await run.draw("share"), 3), late=await run.now() > 0)
    chat = run.chat("Be brief.", temperature=0.7)
    chat.say("user", run.task.prompt)
    replies = await chat.sample(3, max_tokens=6)
    chat.take(replies[int(3 * await run.draw("which"))])
    twig = chat.branch(keep=2)
    await asyncio.gather(chat.ask("and now?"), twig.ask("or else?"))
    if other:
        await run.chat(model=other).ask("is anybody there?")


class Lenient(Household):
    """Rewards by a judge that every second run pleases: a signal, whatever an untrained model does."""

    def __init__(self) -> None:
        super().__init__(rooms=2, receptacles=2, objects=2, closed=1, steps=4)
        self.ref = "lenient"

    async def judge(self, task: clew.Task, run: Any, world: Any) -> Mapping[str, float]:
        return {"reward": float(run.row.seed % 2)}


def policy() -> Any:
    """Untrained weights of some thousand parameters; the same in every process."""
    from clew.models.local import small

    return small(Lenient().vocabulary(), 16, 1, 2, 1, context=256, ref="policy", steady=True)


def shopper() -> Scripted:
    """Asks two prices at once, buys, makes a mistake, and leaves."""
    both = tool_call("price", id="a", item="pen")
    both = both._replace(calls=(*both.calls, *tool_call("price", id="b", item="mug").calls))
    buy, wrong = tool_call("buy", id="c", item="pen", count=1), tool_call("buy", id="d", item="pen", count="many")
    return Scripted([both, buy, wrong, tool_call("leave", id="e")])


def clerk() -> Scripted:
    """For the desk: looks at the policy, does nothing else."""
    return Scripted({"Summarise": "Orders were looked up.", "": tool_call("escalate", id="x", reason="the rule")})


def adder() -> Scripted:
    """The model behind the gateway: adds two numbers by the tool, then says the sum."""

    def answer(request: Any) -> clew.Message:
        last = request.path[-1].message
        if last.role == "tool":
            return clew.Message("assistant", f"the sum is {last.text}")
        a, b = last.text.split()[-2:]
        return tool_call("add", id=f"call-{len(request.path)}", a=int(a), b=int(b))

    return Scripted({"": answer})


def looker() -> Scripted:
    """For a diagnosis: looks at another file first."""
    return Scripted([tool_call("view_file", id="look", path="shop/price.py"), "<findings>[]</findings>", "nothing"])


def _built(place: str, **arguments: Any) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)(**arguments)


MODELS = {"shopper": shopper, "clerk": clerk, "adder": adder, "looker": looker, "echo": Echo, "policy": policy}


class Silent(Markov):
    """Answers nothing: whoever asks it has touched a model where none may be touched."""

    def __init__(self) -> None:
        super().__init__("silence")
        self.ref = "silent"

    async def complete(self, request: Any) -> Any:
        raise AssertionError("a replay asked a model")


def register() -> None:
    """Make the names of the record known: those of the project file, as installing it anew would, and ours."""
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
    for kind in ("tasksets", "models"):
        for name, place in project["entry-points"][f"clew.{kind}"].items():
            clew.register(kind, name, partial(_built, place))
    clew.register("tasksets", "lenient", Lenient)
    clew.register("models", "policy", policy)
