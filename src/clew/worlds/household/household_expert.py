"""An expert player of Household: sees what the agent sees and remembers what it saw. Demonstrations and tests call it.
It must never look at what the agent cannot know: where unseen objects are."""

from __future__ import annotations

from typing import Protocol

from clew.core.errors import WorldError
from clew.worlds.household.household_rules import Home, State


class Episode(Protocol):
    """What is asked of a HouseholdWorld here: its home, its state now, and the rooms seen so far, as a bit set."""

    home: Home
    state: State
    visited: int


def admissible(world: Episode) -> list[str]:
    """The actions that change the true state, also where an aliased world lists more."""
    home, state = world.home, world.state
    return [a for a in home.view(state).legal if home.after(state, a) is not None]


def expert(world: Episode) -> str:
    """The next action of a player who knows the plan of the house and what was seen so far, but not where things are.

    Looks into the receptacles of a room, then of the nearest room not searched; fetches, treats and delivers by the
    shortest way. Raises WorldError where nothing can be done, as in a room without exits whose search is over.
    """
    home, state, plan = world.home, world.state, world.home.plan
    here, rooms = plan.inside[state.room], range(len(plan.rooms))
    unopened = [[s for s in plan.inside[r] if not state.opened >> s & 1] for r in rooms]
    if home.kind == "open":
        if home.target in here:
            return "open " + plan.receptacles[home.target]
        return _toward(home, state.room, {plan.room_of[home.target]})
    if state.held == home.thing:
        return _deliver(home, state)
    if state.held >= 0:  # a random action picked up something else: lay it down
        free = [s for s in here if state.opened >> s & 1]
        if free:
            return f"put {home.objects[state.held]} in {plan.receptacles[free[0]]}"
        return "open " + plan.receptacles[here[0]]
    place = state.places[home.thing]
    room = plan.room_of[place]
    if world.visited >> room & 1 and state.opened >> place & 1:
        return "take " + home.objects[home.thing] if room == state.room else _toward(home, state.room, {room})
    if unopened[state.room]:
        return "open " + plan.receptacles[unopened[state.room][0]]
    return _toward(home, state.room, {r for r in rooms if unopened[r] or not world.visited >> r & 1})


def _deliver(home: Home, state: State) -> str:
    plan, name = home.plan, home.objects[home.thing]
    treated = {"clean": state.clean, "heat": state.hot}.get(home.kind, -1) >> home.thing & 1
    if not treated:
        if plan.appliances[state.room] == home.kind:
            return f"{home.kind} {name}"
        return _toward(home, state.room, {plan.appliances.index(home.kind)})
    if plan.room_of[home.target] != state.room:
        return _toward(home, state.room, {plan.room_of[home.target]})
    spot = plan.receptacles[home.target]
    return f"put {name} in {spot}" if state.opened >> home.target & 1 else f"open {spot}"


def _toward(home: Home, room: int, goals: set[int]) -> str:
    """First move of a shortest way to any of ``goals``."""
    first: dict[int, int] = {}
    frontier = [(r, r) for r in home.exits[room]]
    while frontier:
        at, move = frontier.pop(0)
        if at in goals:
            return "go " + home.plan.rooms[move]
        if at not in first:
            first[at] = move
            frontier += [(r, move) for r in home.exits[at] if r != room]
    raise WorldError(f"no way leads from the {home.plan.rooms[room]} to where {home.goal!r} needs it")
