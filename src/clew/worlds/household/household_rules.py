"""The rules of Household: rooms, receptacles and objects, what an action does, and what can be seen. HouseholdWorld and
the expert call them. The same state and action must always lead to the same state."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal, NamedTuple

from clew.core.keys import STATE, digest, encode
from clew.worlds.seeds import Dice

ROOMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # room: (surfaces, closable receptacles)
    "kitchen": (("counter", "table", "tray"), ("fridge", "cupboard", "oven")),
    "bathroom": (("shelf", "stool", "tub"), ("cabinet", "hamper", "bin")),
    "bedroom": (("bed", "nightstand", "rug"), ("wardrobe", "drawer", "chest")),
    "office": (("desk", "bookcase", "chair"), ("safe", "locker", "folder")),
    "lounge": (("sofa", "mantel", "ottoman"), ("sideboard", "trunk", "basket")),
    "garage": (("bench", "rack", "pallet"), ("toolbox", "crate", "freezer")),
    "hall": (("console", "ledge", "mat"), ("closet", "mailbox", "suitcase")),
    "cellar": (("barrel", "plinth", "step"), ("vault", "jar", "sack")),
}
OBJECTS = (
    *("apple", "book", "candle", "key", "mug", "plate", "soap", "towel"),
    *("ball", "brush", "clock", "coin", "fork", "hat", "pen", "vase"),
)
GOALS = ("find", "take", "open", "put", "clean", "heat")
APPLIANCES = {"heat": ("stove", "kitchen"), "clean": ("sink", "bathroom")}
Layout = Literal["open", "ring"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What all houses of a taskset share. Receptacles are numbered through the rooms; sets of them are bit sets."""

    ref: str
    rooms: tuple[str, ...]
    receptacles: tuple[str, ...]
    surfaces: int  # those that are open from the start
    inside: tuple[range, ...]  # receptacles of each room
    room_of: tuple[int, ...]  # room of each receptacle
    appliances: tuple[str, ...]  # per room what can be done there: clean, heat or nothing
    pool: tuple[str, ...]
    objects: int
    goals: tuple[str, ...]
    steps: int
    aliased: bool
    layout: Layout
    restate: bool


def make_plan(
    ref: str, rooms: int, receptacles: int, objects: int, goals: tuple[str, ...], steps: int,
    aliased: bool, layout: Layout, closed: int, restate: bool,
) -> Plan:  # fmt: skip
    """The plan of checked parameters of ``Household``."""
    names = tuple(ROOMS)[:rooms]
    surfaces = receptacles - closed
    chosen = [(*ROOMS[room][0][:surfaces], *ROOMS[room][1][:closed]) for room in names]
    needed = {room: kind for kind, (_, room) in APPLIANCES.items() if kind in goals}
    return Plan(
        ref=ref,
        rooms=names,
        receptacles=tuple(name for room in chosen for name in room),
        surfaces=sum(1 << i for i in range(rooms * receptacles) if i % receptacles < surfaces),
        inside=tuple(range(r * receptacles, (r + 1) * receptacles) for r in range(rooms)),
        room_of=tuple(i // receptacles for i in range(rooms * receptacles)),
        appliances=tuple(needed.get(room, "") for room in names),
        pool=OBJECTS[: objects + 3],
        objects=objects,
        goals=goals,
        steps=steps,
        aliased=aliased,
        layout=layout,
        restate=restate,
    )


class State(NamedTuple):
    """All that changes. ``places``: receptacle of each object, -1 for the held one; the rest are bit sets."""

    room: int
    opened: int
    places: tuple[int, ...]
    held: int  # index of the object, -1 for none
    clean: int
    hot: int


class View(NamedTuple):
    """What follows from a state alone."""

    text: str
    legal: tuple[str, ...]
    met: bool
    packed: bytes
    key: bytes


class Home:
    """One task's home: what never changes, the first state, and the rules. Shared by the worlds of its task."""

    def __init__(self, plan: Plan, number: int) -> None:
        self.plan = plan
        dice = Dice(number, "household")
        rooms, spots = len(plan.rooms), len(plan.receptacles)
        ring = dice.order(rooms) if plan.layout == "ring" else []
        self.exits = [self._exits(ring, r, rooms) for r in range(rooms)]
        self.objects = [plan.pool[i] for i in sorted(dice.order(len(plan.pool), plan.objects))]
        room = dice.below(rooms)
        places = [dice.below(spots) for _ in self.objects]
        self.kind: str = dice.pick(plan.goals)
        self.thing, self.target = self._goal(dice, room, places)
        self.goal = self._goal_text()
        self.first = State(room, plan.surfaces, tuple(places), -1, 0, 0)
        self.content = (self.goal, room, tuple(places), tuple(self.objects), tuple(ring))
        self.tag = digest(STATE, encode(plan.ref), encode(f"house-{number}"))
        self._pack = struct.Struct(f"<bQ{len(places)}bbII").pack
        self._views: dict[State, View] = {}

    @staticmethod
    def _exits(ring: list[int], room: int, rooms: int) -> list[int]:
        if not ring:
            return [r for r in range(rooms) if r != room]
        at = ring.index(room)
        return sorted({ring[at - 1], ring[(at + 1) % rooms]} - {room})

    def _goal(self, dice: Dice, room: int, places: list[int]) -> tuple[int, int]:
        """Draw the goal's object and receptacle; the object is moved where the goal would hold at the start."""
        plan = self.plan
        spots = range(len(plan.receptacles))
        if self.kind == "open":
            return -1, dice.pick([s for s in spots if not plan.surfaces >> s & 1])
        thing, target = dice.below(len(places)), -1
        if self.kind == "find" and plan.room_of[places[thing]] == room and plan.surfaces >> places[thing] & 1:
            places[thing] = dice.pick([s for s in spots if plan.room_of[s] != room or not plan.surfaces >> s & 1])
        if self.kind in ("put", "clean", "heat"):
            target = dice.pick([s for s in spots if s != places[thing]])
        return thing, target

    def _goal_text(self) -> str:
        thing = self.objects[self.thing]
        if self.kind in ("find", "take"):
            return f"{self.kind} {thing}"
        spot = self.plan.receptacles[self.target]
        if self.kind == "open":
            return f"open {spot}"
        how = {"put": "", "clean": "clean ", "heat": "hot "}[self.kind]
        return f"put {how}{thing} in {spot}"

    def view(self, state: State) -> View:
        """Text, admissible actions, and key of a state; kept, as the rollouts of one task meet the same states."""
        found = self._views.get(state)
        if found is None:
            if len(self._views) >= 4096:
                self._views.clear()
            text, packed = self._text(state), self._pack(*state[:2], *state.places, *state[3:])
            seen = encode(text) if self.plan.aliased else packed
            found = View(text, tuple(self._legal(state)), self.met(state), packed, digest(STATE, self.tag, seen))
            self._views[state] = found
        return found

    def _text(self, state: State) -> str:
        plan, places = self.plan, state.places
        parts = [self.goal] if plan.restate else []
        parts.append(plan.rooms[state.room])
        for spot in plan.inside[state.room]:
            if not state.opened >> spot & 1:
                parts.append(plan.receptacles[spot] + " closed")
            elif spot in places:
                inside = [self._object(state, i) for i, place in enumerate(places) if place == spot]
                parts.append(f"{plan.receptacles[spot]} {' '.join(inside)}")
            else:
                parts.append(plan.receptacles[spot] + " empty")
        if plan.appliances[state.room]:
            parts.append(APPLIANCES[plan.appliances[state.room]][0])
        if plan.layout == "ring":
            parts.append("exits " + " ".join(plan.rooms[r] for r in self.exits[state.room]))
        if state.held >= 0 and not plan.aliased:
            parts.append("hold " + self._object(state, state.held))
        return " ; ".join(parts)

    def _object(self, state: State, i: int) -> str:
        if self.plan.aliased or not (state.clean | state.hot) >> i & 1:
            return self.objects[i]
        return ("clean " if state.clean >> i & 1 else "") + ("hot " if state.hot >> i & 1 else "") + self.objects[i]

    def _legal(self, state: State) -> list[str]:
        """Admissible actions; in an aliased world those of every state that looks the same."""
        plan = self.plan
        here = plan.inside[state.room]
        hands = list(range(len(self.objects))) if plan.aliased else [state.held] if state.held >= 0 else []
        legal = ["go " + plan.rooms[r] for r in self.exits[state.room]]
        legal += ["open " + plan.receptacles[s] for s in here if not state.opened >> s & 1]
        if state.held < 0 or plan.aliased:
            seen = [i for i, place in enumerate(state.places) if place in here and state.opened >> place & 1]
            legal += ["take " + self.objects[i] for i in seen]
        for i in hands:
            legal += [f"put {self.objects[i]} in {plan.receptacles[s]}" for s in here if state.opened >> s & 1]
            if plan.appliances[state.room]:
                legal.append(f"{plan.appliances[state.room]} {self.objects[i]}")
        return legal

    def after(self, state: State, action: str) -> State | None:
        """The state an action leads to, or None where it does nothing."""
        plan = self.plan
        words = action.split()
        if not words or len(words) != (4 if words[0] == "put" else 2):
            return None
        verb, name = words[0], words[1]
        if verb == "go":
            room = plan.rooms.index(name) if name in plan.rooms else -1
            return state._replace(room=room) if room in self.exits[state.room] else None
        if verb == "open":
            spot = self._spot(name)
            fits = spot in plan.inside[state.room] and not state.opened >> spot & 1
            return state._replace(opened=state.opened | 1 << spot) if fits else None
        if name not in self.objects:
            return None
        thing = self.objects.index(name)
        if verb == "take":
            place = state.places[thing]
            fits = state.held < 0 and place in plan.inside[state.room] and bool(state.opened >> place & 1)
            return self._move(state, thing, -1) if fits else None
        if state.held != thing:
            return None
        if verb == "put" and words[2] == "in":
            spot = self._spot(words[3])
            fits = spot in plan.inside[state.room] and bool(state.opened >> spot & 1)
            return self._move(state, thing, spot) if fits else None
        if verb == plan.appliances[state.room] == "clean":
            return state._replace(clean=state.clean | 1 << thing)
        if verb == plan.appliances[state.room] == "heat":
            return state._replace(hot=state.hot | 1 << thing)
        return None

    def _spot(self, name: str) -> int:
        names = self.plan.receptacles
        return names.index(name) if name in names else -1

    @staticmethod
    def _move(state: State, thing: int, spot: int) -> State:
        places = (*state.places[:thing], spot, *state.places[thing + 1 :])
        return State(state.room, state.opened, places, thing if spot < 0 else -1, state.clean, state.hot)

    def met(self, state: State) -> bool:
        """Whether the goal holds."""
        if self.kind == "open":
            return bool(state.opened >> self.target & 1)
        place = state.places[self.thing]
        if self.kind == "take":
            return place < 0
        if self.kind == "find":
            return place < 0 or (self.plan.room_of[place] == state.room and bool(state.opened >> place & 1))
        marks = {"put": -1, "clean": state.clean, "heat": state.hot}[self.kind]
        return place == self.target and bool(marks >> self.thing & 1)
