"""Household: a text world of rooms, receptacles and objects, seen one room at a time.

Made in the manner of ALFWorld (2010.03768), with words and rules of our own. A task id ``house-NUMBER`` and the
taskset's parameters fix where everything is and what is wanted. The agent sees the room it is in; it sees what lies in
a closed receptacle once that is opened. It holds one object at a time. The only reward is 1 when the goal is reached.
An observation must never show what the agent has not seen.

    actions: go ROOM, open RECEPTACLE, take OBJECT, put OBJECT in RECEPTACLE, clean OBJECT, heat OBJECT
    goals:   find, take, open, put; clean and heat mean "put clean OBJECT in RECEPTACLE", "put hot OBJECT in ..."
"""

from __future__ import annotations

import random
import struct
from collections.abc import Hashable, Sequence
from typing import Any

from clew.core.errors import BadInput, WorldError
from clew.core.keys import derive
from clew.core.registry import make_ref
from clew.core.values import Observation, Task, ToolCall
from clew.worlds.bases import Demonstrated, Exact, foreign
from clew.worlds.household.household_expert import admissible, expert
from clew.worlds.household.household_rules import APPLIANCES, GOALS, Home, Layout, State, make_plan
from clew.worlds.seeds import kept, split_of


class HouseholdWorld(Exact):
    """One run in a house; exact."""

    __slots__ = ("_done", "_steps", "_view", "home", "state", "visited")

    def __init__(self, home: Home) -> None:
        self.home, self.state, self._steps, self._closed = home, home.first, 0, False
        self.visited = 1 << home.first.room
        self._view = home.view(home.first)
        self._done = False

    def __repr__(self) -> str:
        return f"<{self.home.goal!r}, step {self._steps}>"

    @property
    def state_key(self) -> bytes:
        return self._view.key

    @property
    def success(self) -> bool:
        """Whether the goal holds now."""
        return self._view.met

    def observe(self) -> Observation:
        return Observation(self._view.text, None, self._done, self._view.legal)

    def step(self, action: str | ToolCall) -> Observation:
        """Perform an action; one that is not admissible changes nothing but counts as a step.

        Raises:
            WorldError: the episode is over or the world is closed.
        """
        if self._done or self._closed:
            remedy = "Open a new world for the task."
            raise WorldError(f"step {action!r} after the {'close' if self._closed else 'end'}", remedy=remedy)
        home, called = self.home, None
        if isinstance(action, ToolCall):
            state, called = None, action.id
        else:
            state = home.after(self.state, action)
        self._steps += 1
        if state is None:
            view, text = self._view, "nothing happens ; " + self._view.text
        else:
            self.state, self._view = state, home.view(state)
            view, text = self._view, self._view.text
            self.visited |= 1 << state.room
        self._done = view.met or self._steps >= home.plan.steps
        return Observation(text, float(view.met), self._done, view.legal, called)

    def snapshot(self) -> bytes:
        return self.home.tag + struct.pack("<IB?", self._steps, self.visited, self._done) + self._view.packed

    def restore(self, snapshot: bytes) -> None:
        """Raises WorldError where the snapshot is of another task or cut short."""
        home, objects = self.home, len(self.home.objects)
        form = f"<bQ{objects}bbII"
        if snapshot[:16] != home.tag or len(snapshot) != 22 + struct.calcsize(form):
            raise foreign()
        self._steps, self.visited, self._done = struct.unpack("<IB?", snapshot[16:22])
        room, opened, *rest = struct.unpack(form, snapshot[22:])
        self.state = State(room, opened, tuple(rest[:objects]), *rest[objects:])
        self._view = home.view(self.state)


class Household(Demonstrated[HouseholdWorld]):
    """Taskset of household tasks.

    Args:
        rooms: 1 to 8, and ``receptacles`` in each: 1 to 6, of which ``closed`` (0 to 3) must be opened first.
        objects: how many of a pool of three more lie about (1 to 13).
        goals: which goals are drawn, each equally often; see the module.
        steps: the world ends, without reward, after so many actions.
        aliased: hide what is held, clean and hot, in the text as in the state key.
        layout: ``open``, every room leads to every other; ``ring``, each to two, in an order that the task draws.
        restate: begin every observation with the goal. A 0.1M-parameter model learns nothing without it.

    Raises:
        BadInput: a parameter out of range.
    """

    prefix, plays = "house", HouseholdWorld

    def __init__(
        self,
        rooms: int = 3,
        receptacles: int = 3,
        objects: int = 5,
        goals: Sequence[str] = ("put",),
        steps: int = 12,
        aliased: bool = False,
        layout: Layout = "open",
        closed: int = 2,
        restate: bool = True,
    ) -> None:
        goals = (goals,) if isinstance(goals, str) else tuple(goals)
        arguments: dict[str, Any] = {
            "rooms": rooms, "receptacles": receptacles, "objects": objects, "goals": goals, "steps": steps,
            "aliased": aliased, "layout": layout, "closed": closed, "restate": restate,
        }  # fmt: skip
        _check(arguments)
        self.ref = make_ref("household", arguments, Household)
        self.plan = make_plan(self.ref, **arguments)
        self.home = kept(lambda number: Home(self.plan, number))  # of a task number

    def content(self, number: int) -> Hashable:
        return Home(self.plan, number).content

    def find(self, task_id: str) -> Task:
        home = self.home(self.number(task_id))
        return Task(task_id, home.goal, {"kind": home.kind, "split": split_of(home.content)})

    def open(self, task: Task) -> HouseholdWorld:
        return HouseholdWorld(self.home(self.number(task.id)))

    def verdict(self, task: Task, last: HouseholdWorld) -> dict[str, float]:
        """Reward 1 where the goal holds at the end."""
        return {"reward": float(last.success)}

    def vocabulary(self) -> list[str]:
        """Every word that goals, observations and actions can contain, sorted."""
        words = {";", "nothing", "happens", "closed", "empty", "hold", "go", "open", "take", "put", "in"}
        plan = self.plan
        words |= {*plan.rooms, *plan.receptacles, *plan.pool, *plan.goals}
        words |= {"exits"} if plan.layout == "ring" else set()
        for kind in {"clean", "heat"} & set(plan.goals):
            words |= {APPLIANCES[kind][0], {"clean": "clean", "heat": "hot"}[kind]}
        return sorted(words)

    def demonstrate(self, task: Task, seed: int = 0, noise: float = 0.3) -> list[str]:
        """Actions of one episode of ``demonstrations``, until it is over."""
        return [action for _, action in self._episode(task, noise, derive(seed, "demonstrate", task.id))]

    def expert(self, world: HouseholdWorld) -> str:
        return expert(world)

    def slip(self, world: HouseholdWorld, rng: random.Random) -> str:
        """A random admissible action."""
        actions = admissible(world)
        return actions[int(rng.random() * len(actions))]


def _check(given: dict[str, Any]) -> None:
    bounds = {"rooms": (1, 8), "receptacles": (1, 6), "objects": (1, 13), "steps": (1, 10_000), "closed": (0, 3)}
    for name, (low, high) in bounds.items():
        value = given[name]
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise BadInput(f"household({name}={value!r})", remedy=f"{name} is a whole number from {low} to {high}.")
    receptacles, closed, goals = given["receptacles"], given["closed"], given["goals"]
    if not 0 <= receptacles - closed <= 3:
        remedy = "0 to 3 of a room's receptacles are open."
        raise BadInput(f"household(receptacles={receptacles}, closed={closed})", remedy=remedy)
    unknown = [g for g in goals if g not in GOALS]
    if unknown or not goals:
        raise BadInput(f"household(goals={goals!r})", remedy=f"Choose from {', '.join(GOALS)}.")
    needs = max(2 if "clean" in goals else 1, 2 if given["rooms"] * receptacles == 1 else 1)
    if given["rooms"] < needs:
        raise BadInput(f"household(rooms={given['rooms']}, goals={goals!r})", remedy=f"These goals need {needs} rooms.")
    if not closed and {"open", "find"} & set(goals) and (given["rooms"] < 2 or "open" in goals):
        raise BadInput(f"household(closed=0, goals={goals!r})", remedy="Let at least one receptacle be closed.")
    if given["layout"] not in ("open", "ring"):
        raise BadInput(f"household(layout={given['layout']!r})", remedy='The layout is "open" or "ring".')
