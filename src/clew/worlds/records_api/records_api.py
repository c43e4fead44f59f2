"""Records: a small web service that keeps items, worked by HTTP lines or by tools, and now and then unavailable.

The service gives out ids, lists in pages, answers create and update with the whole item, and refuses as services do
(specs/E167, section 6). A transient 503 changes nothing and the same request passes next time; which requests meet one
follows from the task and the actions so far. The judge compares the items by name; a world must never hold what is
wanted.
"""

from __future__ import annotations

import json
import random
from collections.abc import Hashable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from clew.core.errors import BadInput
from clew.core.keys import encode, state_key
from clew.core.records import action_text
from clew.core.registry import make_ref
from clew.core.values import Task, ToolCall, ToolSpec
from clew.worlds.bases import Answering, Demonstrated, Exact, load
from clew.worlds.records_api.api_rules import COLOURS, NAMES, PAGE, TOOLS, USAGE, Answer, Request, Service, failed, read
from clew.worlds.seeds import Dice, kept, split_of

BUSY = "the service is busy; try again"
Item = dict[str, Any]


class Plan(NamedTuple):
    """A task whole: the items at the start by id, what is asked for, and the items that are wanted, by name."""

    start: dict[str, Item]
    asked: tuple[str, ...]
    goal: dict[str, Item]


def plan_of(number: int, changes: int) -> Plan:
    """What a task number stands for, with ``changes`` of different items."""
    dice = Dice(number, "records")
    service, order = Service(number, {}, 0), dice.order(len(NAMES))
    for i in order[: 7 + dice.below(5)]:
        drawn = Dice(number, f"records item {i}")
        service.answer(
            Request("POST", "/items", {"name": NAMES[i], "colour": drawn.pick(COLOURS), "count": drawn.below(20)})
        )
    start = {name: dict(fields) for name, fields in service.items.items()}
    goal = {fields["name"]: dict(fields) for fields in start.values()}
    asked, touched = [], [NAMES[i] for i in Dice(number, "records touched").order(len(NAMES))]
    for i in range(changes):
        drawn, name = Dice(number, f"records change {i}"), touched[i]
        colour, count = drawn.pick(COLOURS), drawn.below(20)
        if name not in goal:
            goal[name] = {"name": name, "colour": colour, "count": count}
            asked.append(f"Create an item called {name}, colour {colour}, count {count}.")
        elif drawn.below(3) == 0:
            del goal[name]
            asked.append(f"Delete the item called {name}.")
        elif drawn.below(2):
            count += count == goal[name]["count"]
            goal[name] = goal[name] | {"count": count}
            asked.append(f"Set the count of {name} to {count}.")
        else:
            colour = colour if colour != goal[name]["colour"] else COLOURS[COLOURS.index(colour) - 1]
            goal[name] = goal[name] | {"colour": colour}
            asked.append(f"Set the colour of {name} to {colour}.")
    return Plan(start, tuple(asked), goal)


class RecordsWorld(Exact, Answering):
    """One client of the service; exact. ``service``: the items. ``pages``: those that were read, for demonstrations."""

    def __init__(self, name: str, number: int, service: Service, steps: int, faults: float, tools: bool) -> None:
        self._name, self.number, self.service, self._faults = name, number, service, faults
        self.tools: Sequence[ToolSpec] = TOOLS if tools else ()
        self.pages: list[int] = []
        self._trail, self._left, self._said, self._failed = b"", steps, "The service is ready.", False
        self.ended = self._closed = False

    @property
    def _ended(self) -> bool:
        return self.ended

    @property
    def state_key(self) -> bytes:
        """The items and the ids given out; neither what was read nor the steps left."""
        return state_key(self._name, json.dumps([list(self.service.items.items()), self.service.given, self.ended]))

    def _answered(self, action: str | ToolCall) -> str:
        text = action_text(action if isinstance(action, str) else action._replace(id=""))
        self._trail = blake2b(self._trail + encode(text), digest_size=16).digest()
        asked = read(action)
        if isinstance(asked, Answer):
            return str(asked)
        if asked.method == "DONE":
            self.ended = True
            return "The task is over."
        luck = Dice(self.number, f"records luck {self._trail.hex()}").below(1000) < 1000 * self._faults
        self._failed = luck and not self._failed  # never twice in a row: it is transient
        if self._failed:
            return str(failed(503, BUSY))
        answer = self.service.answer(asked)
        if answer.status == 200 and "page" in answer.body and answer.body["page"] not in self.pages:
            self.pages.append(answer.body["page"])
        return str(answer)

    def account(self) -> str:
        """What is true now, in a few words: the items in their order."""
        items = [f"{name} {' '.join(map(str, fields.values()))}" for name, fields in self.service.items.items()]
        return " ; ".join(items)

    def snapshot(self) -> bytes:
        kept_now = [list(self.service.items.items()), self.service.given, self.pages]
        return json.dumps(
            [self._name, kept_now, self._trail.hex(), self._left, self._said, self._failed, self.ended]
        ).encode()

    def restore(self, snapshot: bytes) -> None:
        """Raises WorldError where the snapshot is not one of this task."""
        _, held, trail, self._left, self._said, self._failed, self.ended = load(snapshot, self._name, 7)
        items, given, self.pages = held
        self.service, self._trail = Service(self.number, dict(items), given), bytes.fromhex(trail)


class Records(Demonstrated[RecordsWorld]):
    """Change items of a small web service with ids, pages and transient failures; ids read ``records-NUMBER``.

    Args:
        changes: of items that a task asks for, 1 to 6. steps: the task ends after so many requests.
        faults: chance that a request meets a 503, 0 to 1; never twice in a row.
        tools: offer tools; requests as text are understood in any case.
    """

    prefix, plays = "records", RecordsWorld

    def __init__(self, changes: int = 2, steps: int = 30, faults: float = 0.1, tools: bool = False) -> None:
        given = {"changes": changes, "steps": steps, "faults": faults, "tools": tools}
        if not 1 <= changes <= 6 or steps < 1 or not 0 <= faults <= 1:
            remedy = "Needs 1 to 6 changes, at least 1 step, and faults from 0 to 1."
            raise BadInput(f"records({given})", remedy=remedy)
        self.ref = make_ref("records", given, Records)
        self.changes, self.steps, self.faults, self.tools = changes, steps, faults, tools
        self.plan = kept(lambda number: plan_of(number, changes))  # of a task number

    def content(self, number: int) -> Hashable:
        plan = plan_of(number, self.changes)
        return (tuple(f"{name} {fields}" for name, fields in plan.start.items()), plan.asked)

    def find(self, task_id: str) -> Task:
        number = self.number(task_id)
        plan = self.plan(number)
        how = "Work by the tools" if self.tools else f"A request is one line: {USAGE}"
        prompt = f"A web service keeps items. {' '.join(plan.asked)} {how}; done ends the task."
        return Task(task_id, prompt, {"split": split_of(self.content(number))}, secret={"goal": dict(plan.goal)})

    def open(self, task: Task) -> RecordsWorld:
        number = self.number(task.id)
        start = {name: dict(fields) for name, fields in self.plan(number).start.items()}
        service = Service(number, start, 100)  # ids of the start were given out under lower numbers
        return RecordsWorld(f"{self.ref} {number}", number, service, self.steps, self.faults, self.tools)

    def verdict(self, task: Task, last: RecordsWorld) -> dict[str, float]:
        """Reward 1 where the items are those that are wanted, whatever their ids. ``ended``: by ``done``."""
        now = {fields["name"]: fields for fields in last.service.items.values()}
        return {"reward": float(now == self.plan(self.number(task.id)).goal), "ended": float(last.ended)}

    def expert(self, world: RecordsWorld) -> str:
        """Reads pages until it has seen what it is to change, then changes it."""
        goal = self.plan(world.number).goal
        ids = list(world.service.items)
        for at, name in enumerate(ids):
            fields = world.service.items[name]
            want = goal.get(fields["name"])
            if want != fields:
                unread = [page for page in range(1, at // PAGE + 2) if page not in world.pages]
                if unread:
                    return f"GET /items?page={unread[0]}"
                if want is None:
                    return f"DELETE /items/{name}"
                return f"PATCH /items/{name} {json.dumps({k: v for k, v in want.items() if fields[k] != v})}"
        there = {fields["name"] for fields in world.service.items.values()}
        missing = next((one for name, one in goal.items() if name not in there), None)
        return f"POST /items {json.dumps(missing)}" if missing else "done"

    def slip(self, world: RecordsWorld, rng: random.Random) -> str:
        """A request that the task may not need: right, wrong or ill-formed."""
        name = rng.choice([*world.service.items, f"it_{rng.randrange(1000, 10000)}"])
        fields = {"name": rng.choice(NAMES), "colour": rng.choice(COLOURS), "count": rng.randrange(20)}
        some = rng.choice([{"count": fields["count"]}, {"colour": fields["colour"]}, {"size": 3}])
        return rng.choice(
            [
                *(f"GET /items?page={rng.randrange(4)}", f"GET /items/{name}", f"POST /items {json.dumps(fields)}"),
                *(f"PATCH /items/{name} {json.dumps(some)}", f"DELETE /items/{name}", f"PUT /items/{name}"),
                *("GET /orders", 'POST /items {"name": "bell"}', "POST /items {", f"GET /items/{name}"),
            ]
        )
