"""Agents, tasksets and models of the golden store.

Its records name them (``tests.golden.agents:parent``, ``lenient``, ``policy``), so names and sources here stay as they
are: a run of an agent that was changed does not replay. Only imports may follow what moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import clew
from clew.models.fakes import Echo, Markov, Scripted, tool_call
from clew.worlds.household import Household

ROOMS = (
    "go kitchen\ngo bathroom\nopen cabinet\nopen fridge\ntake key\ntake mug\nput mug in fridge\nput key in shelf\n"
    "open fridge\nopen cabinet"
)
SMALL = {"rooms": 2, "receptacles": 2, "objects": 2, "closed": 1, "steps": 6}
WORDS = [f"w{i}" for i in range(40)]
PROMPT = "pay the invoice of the bakery"


# ---- agents ----------------------------------------------------------------------------------------------------------


async def parent(run: clew.LiveRun, depth: int = 1) -> str:
    """Plans, lets two children work side by side, and sums up."""
    chat = run.chat("You plan.")
    plan = await chat.ask(run.task.prompt)
    first, second = await asyncio.gather(
        run.spawn("tests.golden.agents:helper", f"do {plan.text}", depth=depth),
        run.spawn("tests.golden.agents:helper", "do the rest"),
    )
    return (await chat.ask(f"children ended {first.stop} and {second.stop}")).text


async def helper(run: clew.LiveRun, depth: int = 0) -> str:
    """Answers in two turns; with ``depth`` it has a child of its own between them."""
    chat = run.chat()
    first = await chat.ask(run.task.prompt)
    if depth:
        await run.spawn("tests.golden.agents:helper", f"less {first.text}", depth=depth - 1)
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


async def together(run: clew.LiveRun, parts: int = 4) -> str:
    """Conversations side by side, of several turns each; the model's answers arrive in their own order."""

    async def part(number: int) -> str:
        chat = run.chat(f"You are part {number}.")
        text = ""
        for turn in range(1 + number % 3):
            text = (await chat.ask(f"part {number}, turn {turn}")).text
        run.note(f"part {number} is done", turns=1 + number % 3)
        return text

    return " | ".join(await asyncio.gather(*(part(number) for number in range(parts))))


async def grouped(run: clew.LiveRun, fails: bool = False) -> str:
    """A task group, in which one part draws and acts while others ask; with ``fails`` one raises, which ends them."""
    said: list[str] = []

    async def asks(name: str, turns: int) -> None:
        chat = run.chat(name)
        for turn in range(turns):
            said.append((await chat.ask(f"{name} {turn}")).text)
            if fails and name == "left" and turn == 1:
                raise ValueError("enough")

    async def acts() -> None:
        while not run.done and run.step < 3:
            await run.act("up" if await run.draw("way") < 0.7 else "down")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(asks("left", 2))
            group.create_task(asks("right", 3))
            group.create_task(acts())
    except* ValueError as failed:
        run.note("a part failed", parts=len(failed.exceptions))
    return (await run.chat("Sum up.").ask(" ".join(sorted(said)))).text


async def impatient(run: clew.LiveRun, turns: int = 3) -> str:
    """Asks with a timeout: one question in two is never answered in time."""
    heard = []
    for turn in range(turns):
        chat = run.chat()
        try:
            async with asyncio.timeout(0.03 if turn % 2 else 30):
                heard.append((await chat.ask(f"{'never' if turn % 2 else 'now'} {turn}")).text)
        except TimeoutError:
            run.note(f"turn {turn} took too long")
    first = [asyncio.ensure_future(run.chat().ask(text)) for text in ("now 8", "never 9")]
    done, late = await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    return " ".join([*heard, *(task.result().text for task in done)])


async def rests(run: clew.LiveRun) -> str:
    """Sleeps between its asks, beside a conversation that does not."""

    async def slow() -> str:
        await asyncio.sleep(0.02)
        first = await run.chat("slow").ask("one")
        await asyncio.sleep(0.01)
        return first.text

    async def quick() -> str:
        chat = run.chat("quick")
        return " ".join([(await chat.ask(f"turn {turn}")).text for turn in range(3)])

    return "/".join(await asyncio.gather(slow(), quick()))


async def broken(run: clew.LiveRun, after: int = 1) -> None:
    """Has a fault of its own after so many asks."""
    chat = run.chat()
    for turn in range(after):
        await chat.ask(f"turn {turn}")
    raise RuntimeError(f"a fault after {after} asks")


async def endless(run: clew.LiveRun) -> None:
    """Asks until a limit ends it."""
    chat = run.chat(max_tokens=4)
    while True:
        await chat.ask("go on")


async def recaller(run: clew.LiveRun, times: int = 2, k: int = 3) -> None:
    """Recalls so many times, and asks each time with what it was given."""
    for _ in range(times):
        found = await run.memory("shop").recall(run.task.prompt, k=k)
        chat = run.chat()
        chat.say("user", f"{found.text}\n{run.task.prompt}".strip())
        await chat.ask()


async def talker(run: clew.LiveRun, turns: int = 3) -> None:
    """Speaks in words that the small local model knows."""
    chat = run.chat(max_tokens=5)
    for turn in range(turns):
        await chat.ask(f"w{turn} w7 w9")


async def two_turns(run: clew.LiveRun) -> None:
    """Two turns of one conversation."""
    chat = run.chat()
    for text in ("first", "second"):
        chat.say("user", text)
        await chat.ask()


# ---- tasksets and models ---------------------------------------------------------------------------------------------


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


def steered() -> Any:
    """Untrained weights whose hidden states are written into."""
    from clew.models.local import small

    return small(WORDS, d=16, layers=2, seed=1, context=256, steady=True, ref="steered")


def shopper() -> Scripted:
    """Asks two prices at once, buys, makes a mistake, and leaves."""
    both = tool_call("price", id="a", item="pen")
    both = both._replace(calls=(*both.calls, *tool_call("price", id="b", item="mug").calls))
    buy, wrong = tool_call("buy", id="c", item="pen", count=1), tool_call("buy", id="d", item="pen", count="many")
    return Scripted([both, buy, wrong, tool_call("leave", id="e")])


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


class Paced(Markov):
    """Answers after a moment that the question fixes, so that answers overtake each other; ``never`` takes an hour."""

    def __init__(self) -> None:
        super().__init__(tokens=True)
        self.ref = "paced"

    async def complete(self, request: Any) -> Any:
        text = request.path[-1].message.text
        await asyncio.sleep(3600 if "never" in text else 0.002 * (1 + sum(text.encode()) % 5))
        return await super().complete(request)


class Silent(Markov):
    """Answers nothing: whoever asks it has touched a model where none may be touched."""

    def __init__(self) -> None:
        super().__init__("silence")
        self.ref = "silent"

    async def complete(self, request: Any) -> Any:
        raise AssertionError("a replay asked a model")


MODELS = {
    "shopper": shopper, "adder": adder, "looker": looker, "echo": Echo, "policy": policy, "steered": steered,
    "paced": Paced,
}  # fmt: skip


def register() -> None:
    """Make the names of the record known that are no entry points."""
    clew.register("tasksets", "lenient", Lenient)
    for name in ("policy", "paced", "steered"):
        clew.register("models", name, MODELS[name])
