"""The cells of tier real: a memory learnt on one half of the tasks of ``clerk`` and ``desk``, used on the other half.

The agents are neural and small: at ``clerk`` the policy of stage R of E173, at ``desk`` agent-tiny of E164, which reads
rules wherever they are told. Neither was trained with a memory. A reflector by rules makes plans of runs that succeeded
and pitfalls of those that failed; ``learn`` and ``RuleScreen`` are Clew's own. On the other half each task is performed
three times with one seed: with an empty memory, with the one that was learnt, and with the same items whose words are
in an order by lot, which weigh as much and say nothing. The recalled block comes before the first observation.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from clew.core.keys import derive
from clew.core.protocols import Model, Taskset
from clew.harness import Runner
from clew.harness.memory import Memory
from clew.harness.run.live import LiveRun
from clew.methods.memory.lessons.learn import learn
from clew.methods.memory.lessons.lesson import Lesson
from clew.methods.memory.lessons.references import FunctionReflector
from clew.methods.memory.lessons.run_view import RunView
from clew.store import open_store
from clew.store.base import Keeper
from clew.worlds.clerk import Clerk
from clew.worlds.desk import Desk
from papers.experiment import Line, each, grid

WORLDS = ("clerk", "desk")
SEEDS, HALF, LEAST = (1, 2, 3), 200, 40  # tasks of a half; of a quick one
K, ASKS = 3, 4
CONDITIONS = ("none", "memory", "words-by-lot")
SAMPLING = {"max_tokens": 16, "temperature": 1.0}
STEPS = 667  # of training agent-tiny: a third of E164's


def cells(quick: bool) -> Iterator[Line]:
    """Quick: the policy of stage R alone, trained for a third of the steps, and few tasks."""
    worlds, seeds = (WORLDS[:1], SEEDS[:1]) if quick else (WORLDS, SEEDS)
    for seed in seeds:
        yield from grid(place=worlds, size=["quick" if quick else "full"], seed=[seed])


def cost(cell: Line) -> float:
    return 45.0 if cell["size"] == "quick" else 150.0 if cell["place"] == "clerk" else 140.0


def world_of(name: str) -> Taskset:
    """``desk``: one ticket, whose rule nobody tells."""
    return Clerk() if name == "clerk" else Desk(tickets=0, channel="none")


@lru_cache(maxsize=1)
def policy(name: str, seed: int, size: str) -> Model:
    """The agent's model, trained on first use."""
    if name == "clerk":
        from papers.E173_progress import making

        return making.reference("random", seed, size)
    from papers.E164_governance.tiny import Tiny, train

    return Tiny(train(seed, STEPS), f"agent-tiny-{seed}-{STEPS}")


async def worker(run: LiveRun, memory: str = CONDITIONS[0]) -> None:
    """Acts as its model says until the world or the model ends it, with what a memory has for the first observation."""
    chat = run.chat(tools=run.tools)
    found = await run.memory(memory).recall(run.view.text, k=K)
    if found.text:
        chat.say("user", found.text)
    if not run.tools:
        while not run.done:
            await run.act(await chat.ask(run.view))
        return
    chat.say("user", run.view.text)
    for _ in range(ASKS):
        reply = await chat.ask()
        if run.done or not reply.calls:
            return
        for seen in await run.act(reply):
            chat.say("tool", seen)


# ---- what is learnt -------------------------------------------------------------------------------------------------


def lessons_of(view: RunView) -> list[Lesson]:
    """A plan of a run that succeeded: its steps, names of orders left out. A pitfall of one that failed: its last step
    that changed something."""
    done = [(one.seq, _plain(one.did)) for one in view.moments if one.acted]
    if not done:
        return []
    seq, last = next(((seq, said) for seq, said in reversed(done) if not said.startswith(("done", "look"))), done[-1])
    where = (view.place(seq),)
    if view.reward:
        return [Lesson("plan", {"text": "Steps that did it: " + "; ".join(said for _, said in done)}, (), where)]
    said = {
        "trigger": view.moments[0].saw[:200] or view.prompt[-200:],
        "mistake": last,
        "consequence": "the task failed",
    }
    return [Lesson("pitfall", said, (), where)]


def _plain(did: str) -> str:
    """A step without what is of one task alone: numbers of orders, long numbers."""
    return re.sub(r"\b(o\d|A\d{4})\b", "an order", re.sub(r"\d{5,}", "a number", did))[:200]


def _learnt(store: Keeper, name: str, seed: int, size: str, n: int) -> dict[str, Any]:
    """Perform the first half, and learn of it into the memories."""
    taskset = world_of(name)
    runner = Runner(worker, taskset, policy(name, seed, size), store, sampling=SAMPLING)
    runs = runner.collect(taskset.sample(n, derive(seed, "learnt"), "train"), 1, seed).runs
    memory, luck = Memory(store, CONDITIONS[1]), random.Random(derive(seed, "words"))
    done = asyncio.run(learn(memory, runs, FunctionReflector(lessons_of, "by rules")))
    for item in memory.items("active"):
        Memory(store, CONDITIONS[2]).add(
            item.kind, {name: _by_lot(text, luck) for name, text in item.body.items()}, by="lot"
        )
    what = [one.ruling.what for one in done.ruled]
    return {
        "learnt from": len(runs),
        "right there": sum(bool(run.reward) for run in runs),
        "items": len(memory.items("active")),
        "ruled": {name: what.count(name) for name in sorted(set(what))},
    }


def _cell(setting: Line, seed: int) -> Line:
    """By condition: success, a digit a task; turns, mean asks of a run; given: items that a run was given, mean."""
    name, size = setting["place"], setting["size"]
    n, store = LEAST if size == "quick" else HALF, open_store(":memory:")
    out: Line = _learnt(store, name, seed, size, n)
    taskset = world_of(name)
    tasks = taskset.sample(n, derive(seed, "used"), "test")
    for condition in CONDITIONS:
        config = {"memory": condition}
        runner = Runner(worker, taskset, policy(name, seed, size), store, config, sampling=SAMPLING)
        runs = runner.collect(tasks, 1, seed).runs
        asks = [sum(call.kind == "ask" for call in run.calls) for run in runs]
        given = [len(json.loads(call.text)["items"]) for run in runs for call in run.calls if call.kind == "recall"]
        out[condition] = {
            "success": "".join(str(int(bool(run.reward))) for run in runs),
            "turns": asks,
            "given": round(sum(given) / len(runs), 3),
        }
    return out


def _by_lot(text: str, luck: random.Random) -> str:
    words = text.split()
    luck.shuffle(words)
    return " ".join(words)


run = each(_cell)
