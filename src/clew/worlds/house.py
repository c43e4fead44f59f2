"""House: the small Markov world on which estimators are compared by exact numbers (shared/specs/E165.md, 8a).

A random connected graph of rooms with at most four exits each. Take the item in one room, use the appliance in a
second, put the item down in a third. State = (room, phase), phase 0 empty-handed, 1 carrying, 2 carrying the finished
item. Seven actions: four exits, take, use, put; one that does not apply changes nothing. The reward comes at the put.

``House`` is the taskset with text. ``House.tables(task)`` is the same task as arrays, for tabular learners: states are
numbered room + rooms * phase, and the last number is success, which absorbs.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput
from clew.core.keys import STATE, digest, encode
from clew.core.registry import make_ref
from clew.core.values import Observation, Task, ToolCall
from clew.worlds.bases import Exact, Numbered, alive, foreign
from clew.worlds.seeds import Dice, kept

ROOMS = ("kitchen", "bathroom", "bedroom", "office", "lounge", "garage", "hall", "cellar", "attic", "porch")
EXITS = ("north", "east", "south", "west")
ACTIONS = (*EXITS, "take", "use", "put")
TAKE, USE, PUT = 4, 5, 6
HELD = ("nothing", "item", "finished item")
I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Tables:
    """One task as arrays; S states without success, A = 7 actions, O observations.

    next: int64 [S + 1, A], where an action leads; index S is success, which absorbs.
    observed: int64 [S + 1], what a learner sees of a state: the state, or its room alone where states alias.
    start: first state. slip: chance that a uniformly random action is performed instead of the chosen one.
    horizon: actions in an episode. reward: paid once, on reaching S.
    """

    next: I64
    observed: I64
    start: int
    horizon: int
    slip: float
    reward: float

    @property
    def states(self) -> int:
        return len(self.next) - 1

    @property
    def observations(self) -> int:
        return int(self.observed[:-1].max()) + 1

    def transitions(self) -> F64:
        """P(next | state, action), float64 [S + 1, A, S + 1], slips included."""
        sure = np.eye(self.states + 1)[self.next]
        slipped: F64 = sure.mean(axis=1, keepdims=True)
        return (1 - self.slip) * sure + self.slip * slipped

    def step(
        self, state: I64, action: I64, rng: np.random.Generator | None = None
    ) -> tuple[I64, F64, npt.NDArray[np.bool_]]:
        """N transitions at once: next state, reward and whether the goal was reached, each [N].

        Args:
            state, action: int64 [N]. rng: draws the slips; needed only where ``slip`` > 0.
        """
        if self.slip:
            if rng is None:
                remedy = "Pass rng=np.random.default_rng(seed)."
                raise BadInput("this house slips, so step needs a generator", remedy=remedy)
            slips = rng.random(len(action)) < self.slip
            action = np.where(slips, rng.integers(0, self.next.shape[1], len(action)), action)
        after = self.next[state, action]
        reached = (after == self.states) & (state != self.states)
        return after, self.reward * reached, reached

    def policy(self, logits: F64) -> F64:
        """Softmax over actions of logits [O, A], spread over states: [S, A]."""
        weights: F64 = np.exp(logits - logits.max(axis=1, keepdims=True))[self.observed[:-1]]
        chances: F64 = weights / weights.sum(axis=1, keepdims=True)
        return chances

    def values(self, logits: F64) -> F64:
        """Chance of success from a state with t actions done, by backward induction: float64 [horizon + 1, S + 1]."""
        moves, policy = self.transitions()[:-1], self.policy(logits)
        to = np.zeros((self.horizon + 1, self.states + 1))
        to[:, -1] = 1.0
        for t in range(self.horizon - 1, -1, -1):
            to[t, :-1] = (policy * (moves @ to[t + 1])).sum(axis=1)
        return to

    def success(self, logits: F64) -> float:
        """Exact chance that the softmax policy of ``logits`` [O, A] reaches the goal within the horizon."""
        return float(self.values(logits)[0, self.start])

    def gradient(self, logits: F64) -> F64:
        """Exact gradient of ``success`` by ``logits`` [O, A]: the policy gradient theorem, step by step."""
        moves, policy, to = self.transitions()[:-1], self.policy(logits), self.values(logits)
        there = np.zeros(self.states)
        there[self.start] = 1.0
        slope = np.zeros_like(logits)
        for t in range(self.horizon):
            gain = policy * (moves @ to[t + 1] - to[t, :-1, None])
            np.add.at(slope, self.observed[:-1], there[:, None] * gain)
            there = np.einsum("s,sa,sau->u", there, policy, moves[:, :, :-1])
        return slope


class Ground:
    """Where everything is in one task: exits [room][slot] (-1 none), start, and the rooms of the three deeds."""

    def __init__(self, number: int, rooms: int) -> None:
        dice = Dice(number, "rooms")
        order = dice.order(rooms)
        self.exits = [[-1] * len(EXITS) for _ in range(rooms)]
        for i in range(1, rooms):  # a random tree, then half as many chords
            self._join(dice, order[i], dice.pick([room for room in order[:i] if -1 in self.exits[room]]))
        for _ in range(rooms // 2):
            self._join(dice, dice.below(rooms), dice.below(rooms))
        self.start, *self.deeds = dice.order(rooms, 4)

    def _join(self, dice: Dice, a: int, b: int) -> None:
        """A door between two rooms, where both have room for one and none is there yet."""
        if a == b or b in self.exits[a] or -1 not in self.exits[a] or -1 not in self.exits[b]:
            return
        for one, other in ((a, b), (b, a)):
            free = [slot for slot, room in enumerate(self.exits[one]) if room < 0]
            self.exits[one][dice.pick(free)] = other

    def after(self, room: int, phase: int, action: int) -> tuple[int, int]:
        """Room and phase that follow; phase 3 is success."""
        if action < TAKE:
            return (room, phase) if self.exits[room][action] < 0 else (self.exits[room][action], phase)
        return room, phase + (phase == action - TAKE and room == self.deeds[phase])


class HouseWorld(Exact):
    """One run in a House; exact. Where it slips, the slips follow from the task and the actions so far."""

    def __init__(self, taskset: House, number: int) -> None:
        self._taskset, self._ground = taskset, taskset.ground(number)
        self._tag = digest(STATE, encode(taskset.ref), encode(f"rooms-{number}"))
        self._room, self._phase, self._steps, self._luck = self._ground.start, 0, 0, self._tag
        self._closed = False

    @property
    def success(self) -> bool:
        return self._phase == 3

    @property
    def _done(self) -> bool:
        return self.success or self._steps >= self._taskset.steps

    @property
    def state_key(self) -> bytes:
        shown = 0 if self._taskset.alias and not self.success else self._phase
        return digest(STATE, self._tag, bytes((self._room, shown)))

    def observe(self) -> Observation:
        ground, parts = self._ground, [self._taskset.prompt(self._ground), ROOMS[self._room]]
        if not self._taskset.alias and not self.success:
            parts.append("hold " + HELD[self._phase])
        doors = [(EXITS[i], room) for i, room in enumerate(ground.exits[self._room]) if room >= 0]
        parts += [f"{door} {ROOMS[room]}" for door, room in doors]
        legal = (*(door for door, _ in doors), *ACTIONS[TAKE:])
        return Observation(" ; ".join(parts), None, self._done, legal)

    def step(self, action: str | ToolCall) -> Observation:
        """Perform one of the seven words; any other counts as a step and does nothing."""
        alive(self._done or self._closed, action)
        self._steps += 1
        chosen = ACTIONS.index(action) if action in ACTIONS else -1
        if self._taskset.stoch:
            self._luck = blake2b(self._luck + bytes((chosen + 1,)), digest_size=16).digest()
            slip, other = struct.unpack("<QQ", self._luck)
            if slip < self._taskset.stoch * 2**64:
                chosen = other % len(ACTIONS)
        if chosen >= 0:
            self._room, self._phase = self._ground.after(self._room, self._phase, chosen)
        seen = self.observe()
        reward = self._taskset.reward * self.success
        return seen._replace(reward=reward, call_id=action.id if isinstance(action, ToolCall) else None)

    def snapshot(self) -> bytes:
        return self._tag + self._luck + struct.pack("<BBI", self._room, self._phase, self._steps)

    def restore(self, snapshot: bytes) -> None:
        if len(snapshot) != 38 or snapshot[:16] != self._tag:
            raise foreign()
        self._luck = snapshot[16:32]
        self._room, self._phase, self._steps = struct.unpack("<BBI", snapshot[32:])


class House(Numbered[HouseWorld]):
    """Taskset of houses; a task id ``rooms-NUMBER`` fixes the graph and the rooms of the three deeds.

    Args:
        rooms: 4 to 10. steps: horizon. reward: paid at the put.
        alias: text and state key show the room but not what is carried.
        stoch: chance that a uniformly random action is performed instead of the chosen one.
    """

    prefix, plays = "rooms", HouseWorld

    def __init__(
        self, rooms: int = 5, steps: int = 40, alias: bool = False, stoch: float = 0.0, reward: float = 10.0
    ) -> None:
        given = {"rooms": rooms, "steps": steps, "alias": alias, "stoch": stoch, "reward": reward}
        if not 4 <= rooms <= len(ROOMS) or steps < 1 or not 0 <= stoch <= 1:
            raise BadInput(f"house({given})", remedy="Needs 4 to 10 rooms, steps >= 1 and stoch from 0 to 1.")
        self.ref = make_ref("house", given, House)
        self.rooms, self.steps, self.alias, self.stoch, self.reward = rooms, steps, alias, stoch, reward
        self.ground = kept(lambda number: Ground(number, rooms))  # of a task number

    def prompt(self, ground: Ground) -> str:
        item, appliance, target = (ROOMS[room] for room in ground.deeds)
        return f"take {item} use {appliance} put {target}"

    def content(self, number: int) -> Hashable:
        ground = Ground(number, self.rooms)
        return (tuple(map(tuple, ground.exits)), ground.start, tuple(ground.deeds))

    def find(self, task_id: str) -> Task:
        return Task(task_id, self.prompt(self.ground(self.number(task_id))))

    def open(self, task: Task) -> HouseWorld:
        return HouseWorld(self, self.number(task.id))

    def verdict(self, task: Task, last: HouseWorld) -> dict[str, float]:
        """The reward where the item was put down."""
        return {"reward": self.reward * last.success, "success": float(last.success)}

    def tables(self, task: Task) -> Tables:
        """The task as arrays; a text world of it moves as they do."""
        ground, rooms = self.ground(self.number(task.id)), self.rooms
        goes = np.full((3 * rooms + 1, len(ACTIONS)), 3 * rooms, dtype=np.int64)
        for state in range(3 * rooms):
            for action in range(len(ACTIONS)):
                room, phase = ground.after(state % rooms, state // rooms, action)
                goes[state, action] = room + rooms * phase if phase < 3 else 3 * rooms
        states = np.arange(3 * rooms + 1)
        observed = np.where(states < 3 * rooms, states % rooms, rooms) if self.alias else states
        return Tables(goes, observed, ground.start, self.steps, self.stoch, self.reward)

    def vocabulary(self) -> list[str]:
        """Every word that prompts, observations and actions can contain, sorted."""
        return sorted({*ROOMS[: self.rooms], *ACTIONS, "hold", ";", *" ".join(HELD).split()})
