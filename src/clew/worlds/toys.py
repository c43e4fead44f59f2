"""Small worlds of every kind, to try a harness or an agent on: Counter, Shop, Notepad, and Slow around any other.

Tests, examples and ``clew worlds`` use them: a new harness is tested on them before it is trusted with an expensive
world. A toy must never need a download, a key or more than a millisecond for a step (Slow apart).
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import random
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path

from clew.core.errors import BadInput
from clew.core.keys import state_key
from clew.core.protocols import Restores, Snapshots, Taskset, World
from clew.core.reading import Record
from clew.core.records import action_of
from clew.core.registry import build, make_ref
from clew.core.values import Observation, Task, ToolCall, ToolSpec
from clew.worlds.bases import Exact, Numbered, alive, load
from clew.worlds.judging import world_acts
from clew.worlds.schemas import tool_spec
from clew.worlds.seeds import Dice
from clew.worlds.world_asks import Asks, open_world


class CounterWorld(Exact):
    """A number that goes up and down until ``stop``. Knows nothing of the target."""

    legal = ("up", "down", "stop")

    def __init__(self, name: str, steps: int, restores: Restores, noise: bool) -> None:
        self.restores = restores
        self.value = 0
        self._name, self._left, self._noise, self._done, self._closed = name, steps, noise, False, False

    @property
    def state_key(self) -> bytes:
        return state_key(self._name, str(self.value), str(self._done))

    def observe(self) -> Observation:
        return Observation(f"count {self.value}", None, self._done, () if self._done else self.legal)

    def step(self, action: str | ToolCall) -> Observation:
        """``up``, ``down`` or ``stop``; anything else changes nothing but counts as a step."""
        alive(self._done or self._closed, action)
        self._left -= 1
        self.value += {"up": 1, "down": -1}.get(str(action), 0) + (random.getrandbits(1) if self._noise else 0)
        self._done = action == "stop" or self._left <= 0
        return self.observe()._replace(call_id=action.id if isinstance(action, ToolCall) else None)


class ExactCounterWorld(CounterWorld):
    def snapshot(self) -> bytes:
        return json.dumps([self._name, self.value, self._left, self._done]).encode()

    def restore(self, snapshot: bytes) -> None:
        _, self.value, self._left, self._done = load(snapshot, self._name, 4)


class Counter(Numbered[CounterWorld]):
    """Reach a number and say stop.

    Args:
        low, high: bounds of the target. steps: the world ends after so many actions.
        restores: kind of the world: ``exact``, ``reenact`` or ``none``.
        noise: add an unseeded 0 or 1 at every step, to show that a world which does not repeat itself is noticed.
    """

    prefix, plays = "count", CounterWorld

    def __init__(
        self, low: int = 3, high: int = 9, steps: int = 20, restores: Restores = "exact", noise: bool = False
    ) -> None:
        given = {"low": low, "high": high, "steps": steps, "restores": restores, "noise": noise}
        if not 0 <= low <= high or steps < 1 or restores not in ("exact", "reenact", "none"):
            raise BadInput(f"counter({given})", remedy="Needs 0 <= low <= high, steps >= 1, exact, reenact or none.")
        self.ref = make_ref("counter", given, Counter)
        self.low, self.high, self.steps, self.restores, self.noise = low, high, steps, restores, noise

    def _target(self, task_id: str) -> int:
        return self.low + Dice(self.number(task_id), "counter").below(self.high - self.low + 1)

    def find(self, task_id: str) -> Task:
        target = self._target(task_id)
        return Task(task_id, f"reach {target}, then stop", secret={"target": target})

    def open(self, task: Task) -> CounterWorld:
        self.number(task.id)
        made = ExactCounterWorld if self.restores == "exact" else CounterWorld
        return made(task.id, self.steps, self.restores, self.noise)

    def verdict(self, task: Task, last: CounterWorld) -> dict[str, float]:
        """Reward 1 where the count ends at the target."""
        return {"reward": float(last.value == self._target(task.id))}


STOCK = ("apple", "book", "candle", "key", "mug", "pen", "rope", "vase")


class ShopWorld(Exact):
    """A shop that is used through tools only; exact."""

    tools: Sequence[ToolSpec] = (
        tool_spec("price", "What one piece of an item costs, in coins.", item="string"),
        tool_spec("buy", "Put pieces of an item into the basket and pay for them.", item="string", count="integer"),
        tool_spec("basket", "What was bought so far and the coins that are left."),
        tool_spec("leave", "Leave the shop; ends the task."),
    )

    def __init__(self, name: str, prices: Mapping[str, int], coins: int) -> None:
        self._name, self._prices, self._closed = name, prices, False
        self.basket: dict[str, int] = {}
        self.coins, self._done, self._left = coins, False, 40

    @property
    def state_key(self) -> bytes:
        return state_key(self._name, json.dumps(self.basket, sort_keys=True), str(self.coins), str(self._done))

    def observe(self) -> Observation:
        return Observation(
            f"The shop sells {', '.join(sorted(self._prices))}. You have {self.coins} coins.", done=self._done
        )

    def step(self, action: str | ToolCall) -> Observation:
        """Answer a tool call; what cannot be done is said in the answer, as to any caller of an API."""
        alive(self._done or self._closed, action)
        self._left -= 1
        if isinstance(action, ToolCall):
            text, called = self._answer(action), action.id
        else:
            text, called = "Use one of the tools: price, buy, basket, leave.", None
        self._done = self._done or self._left <= 0
        return Observation(text, None, self._done, (), called)

    def _answer(self, call: ToolCall) -> str:
        spec = next((t for t in self.tools if t.name == call.name), None)
        if spec is None:
            return f"error: there is no tool {call.name!r}"
        try:
            given = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError) as error:
            return f"error: the arguments are not JSON: {error}"
        wanted = spec.schema["properties"]
        if not isinstance(given, dict) or set(given) != set(wanted):
            return f"error: {call.name} takes {', '.join(wanted) or 'no arguments'}"
        if call.name == "leave":
            self._done = True
            return "Goodbye."
        if call.name == "basket":
            return json.dumps({"basket": self.basket, "coins": self.coins}, sort_keys=True)
        item, count = given["item"], given.get("count", 1)
        if not isinstance(item, str) or item not in self._prices:
            return f"error: the shop does not sell {item!r}"
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            return f"error: count must be a whole number of at least 1, not {count!r}"
        price = self._prices[item]
        if call.name == "price":
            return f"{item}: {price} coins"
        if price * count > self.coins:
            return f"error: {count} x {item} costs {price * count} coins, you have {self.coins}"
        self.coins -= price * count
        self.basket[item] = self.basket.get(item, 0) + count
        return f"bought {count} x {item}; {self.coins} coins left"

    def snapshot(self) -> bytes:
        return json.dumps([self._name, self.basket, self.coins, self._left, self._done]).encode()

    def restore(self, snapshot: bytes) -> None:
        _, self.basket, self.coins, self._left, self._done = load(snapshot, self._name, 5)


class Shop(Numbered[ShopWorld]):
    """Buy exactly what the prompt lists and leave: tool calls, several to a reply if the agent likes.

    Args:
        items: how many different items are wanted (1 to 4).
    """

    prefix, plays = "shop", ShopWorld

    def __init__(self, items: int = 2) -> None:
        if not 1 <= items <= 4:
            raise BadInput(f"shop(items={items!r})", remedy="Between 1 and 4 items are wanted.")
        self.ref = make_ref("shop", {"items": items}, Shop)
        self.items = items

    def _order(self, number: int) -> tuple[dict[str, int], dict[str, int]]:
        dice = Dice(number, "shop")
        prices = {item: 1 + dice.below(9) for item in STOCK}
        return {STOCK[i]: 1 + dice.below(3) for i in sorted(dice.order(len(STOCK), self.items))}, prices

    def content(self, number: int) -> str:
        return json.dumps(self._order(number))

    def find(self, task_id: str) -> Task:
        wanted, _ = self._order(self.number(task_id))
        listed = " and ".join(f"{count} x {item}" for item, count in wanted.items())
        return Task(task_id, f"Buy {listed}, nothing else, then leave.", secret={"basket": wanted})

    def open(self, task: Task) -> ShopWorld:
        wanted, prices = self._order(self.number(task.id))
        spare = Dice(self.number(task.id), "coins").below(6)
        return ShopWorld(task.id, prices, sum(prices[i] * n for i, n in wanted.items()) + spare)

    def verdict(self, task: Task, last: ShopWorld) -> dict[str, float]:
        """Reward 1 where the basket holds exactly what was wanted; ``share`` of the wanted pieces in it."""
        wanted, _ = self._order(self.number(task.id))
        got = sum(min(n, last.basket.get(i, 0)) for i, n in wanted.items())
        return {"reward": float(last.basket == wanted), "share": got / sum(wanted.values())}


class NotepadWorld(Exact):
    """Every act but ``stop`` appends a line to a file outside, which nothing here can take back; kind none.

    Opened again it finds the lines of its task in the file, so that a run that was cut off can go on.
    """

    restores: Restores = "none"

    def __init__(self, name: str, path: Path, seconds: float) -> None:
        self._name, self._path, self._seconds = name, path, seconds
        self._written = _lines_of(path, name)
        self._done = self._closed = False

    @property
    def state_key(self) -> bytes:
        return state_key(self._name, *self._written, str(self._done))

    def observe(self) -> Observation:
        return Observation(f"wrote {len(self._written)}", None, self._done)

    def step(self, action: str | ToolCall) -> Observation | Awaitable[Observation]:
        """Append ``task id, tab, action as JSON`` and make it durable before answering."""
        alive(self._done or self._closed, action)
        if action == "stop":
            self._done = True
        else:
            line = f"{self._name}\t{json.dumps(action)}\n".encode()
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(descriptor, line)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._written.append(str(action))
        answer = self.observe()._replace(call_id=action.id if isinstance(action, ToolCall) else None)
        return _after(self._seconds, answer) if self._seconds else answer


def _lines_of(path: Path, name: str) -> list[str]:
    if not path.exists():
        return []
    rows = (line.split("\t", 1) for line in path.read_text().splitlines())
    return [str(json.loads(action)) for owner, action in rows if owner == name]


class Notepad(Numbered[NotepadWorld]):
    """Write a given number of lines to a file that lies outside the run: a counter of effects that outlives a kill.

    Args:
        path: the file; its folder must exist. seconds: time between writing and answering.
        lines: how many lines are wanted.
    """

    prefix, plays = "note", NotepadWorld

    def __init__(self, path: str = "notepad.txt", seconds: float = 0.0, lines: int = 3) -> None:
        self.ref = make_ref("notepad", {"path": path, "seconds": seconds, "lines": lines}, Notepad)
        self.path, self.seconds, self.lines = Path(path), seconds, lines
        if not self.path.parent.is_dir():
            raise BadInput(f"notepad(path={path!r}): the folder does not exist", remedy="Make it first.")

    def find(self, task_id: str) -> Task:
        self.number(task_id)
        return Task(task_id, f"write {self.lines} lines, then stop")

    def open(self, task: Task) -> NotepadWorld:
        self.number(task.id)
        return NotepadWorld(task.id, self.path, self.seconds)

    async def judge(self, task: Task, run: Record, world: World | None) -> Mapping[str, float]:
        """Reward 1 where the record holds as many lines as wanted; the file may hold lines of others."""
        actions = [action_of(call) for call in world_acts(run)]
        return {"reward": float(sum(a != "stop" for a in actions) == self.lines)}


class SlowWorld:
    """Another world whose every step takes time."""

    def __init__(self, world: World, seconds: float) -> None:
        self.inner, self._seconds = world, seconds
        self.restores, self.tools = world.restores, world.tools

    @property
    def state_key(self) -> bytes:
        return self.inner.state_key

    def observe(self) -> Observation:
        return self.inner.observe()

    async def step(self, action: str | ToolCall) -> Observation:
        answer = self.inner.step(action)
        if inspect.isawaitable(answer):
            answer = await answer
        return await _after(self._seconds, answer)

    def close(self) -> None:
        self.inner.close()


class SlowExactWorld(SlowWorld):
    def snapshot(self) -> bytes:
        assert isinstance(self.inner, Snapshots)
        return self.inner.snapshot()

    def restore(self, snapshot: bytes) -> None:
        assert isinstance(self.inner, Snapshots)
        self.inner.restore(snapshot)


class Slow:
    """The tasks of another taskset, with asynchronous steps that take ``seconds``.

    Args:
        of: reference of the taskset, as ``household(rooms=2)``.
    """

    def __init__(self, of: str = "counter", seconds: float = 0.01) -> None:
        self.inner: Taskset = build("tasksets", of)
        self.ref = make_ref("slow", {"of": of, "seconds": seconds}, Slow)
        self.seconds = seconds

    def sample(self, n: int, seed: int = 0, split: str = "train") -> list[Task]:
        return self.inner.sample(n, seed, split)

    def find(self, task_id: str) -> Task:
        return self.inner.find(task_id)

    def open(self, task: Task, asks: Asks | None = None) -> World:
        world = open_world(self.inner, task, asks)
        return (SlowExactWorld if world.restores == "exact" else SlowWorld)(world, self.seconds)

    async def judge(self, task: Task, run: Record, world: World | None) -> Mapping[str, float | None]:
        return await self.inner.judge(task, run, world.inner if isinstance(world, SlowWorld) else world)


async def _after(seconds: float, answer: Observation) -> Observation:
    await asyncio.sleep(seconds)
    return answer
