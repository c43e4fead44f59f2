"""Maze: branches full of dead ends, one of which holds the exit; finding it takes retreats (specs/E163, section 2).

A hall leads to a fork with W branches. A branch is a row of K diamonds, each two rooms joined by L parallel doors;
single doors join the diamonds, and the last room of one branch, which only reaching it tells, is the exit. The many
doors push a random walker to and fro; who has only seen perfect solutions has never seen a retreat.

``Star`` is the graph, ``wander`` a walker of given habits on it, ``Maze`` the taskset with text and demonstrations.
"""

from __future__ import annotations

import json
import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from clew.core.errors import BadInput
from clew.core.keys import STATE, digest, encode
from clew.core.registry import make_ref
from clew.core.values import Observation, Task, ToolCall
from clew.worlds.bases import Exact, Numbered, alive, load
from clew.worlds.loops import loop_erase
from clew.worlds.seeds import Dice, kept

HALL, FORK = 0, 1
FAMILIES = "cabd"
Kind = Literal["golden", "full", "erased"]
KINDS: tuple[Kind, ...] = ("golden", "full", "erased")


class Edge(NamedTuple):
    """A door taken in one direction; ``lane`` tells parallel doors apart."""

    node: int
    to: int
    lane: int


@dataclass(frozen=True, slots=True)
class Star:
    """The multigraph path-star: W branches, K diamonds each, L parallel edges in a diamond.

    Nodes are numbered hall 0, fork 1, then branch by branch outward: l_0, r_0, l_1, ..., r_{K-1}, leaf.
    """

    branches: int
    diamonds: int
    parallel: int

    @property
    def nodes(self) -> int:
        return 2 + self.branches * (2 * self.diamonds + 1)

    def leaf(self, branch: int) -> int:
        return 1 + (branch + 1) * (2 * self.diamonds + 1)

    def depth(self, node: int) -> int:
        """Edges from the fork: -1 in the hall, 0 at the fork, 2j + 1 at l_j, 2j + 2 at r_j, 2K + 1 at a leaf."""
        return node - 1 if node <= FORK else (node - 2) % (2 * self.diamonds + 1) + 1

    def exits(self, node: int) -> list[Edge]:
        """Edges out of a node, inward ones first. The hall's door opens towards the fork only."""
        if node == HALL:
            return [Edge(HALL, FORK, 0)]
        length = 2 * self.diamonds + 1
        if node == FORK:
            return [Edge(FORK, 2 + branch * length, 0) for branch in range(self.branches)]
        depth = self.depth(node)
        inward, outward = (FORK if depth == 1 else node - 1), node + 1
        at_left = depth % 2 == 1 and depth < length
        back = [Edge(node, inward, lane) for lane in range(1 if at_left or depth == length else self.parallel)]
        on = [Edge(node, outward, lane) for lane in range(self.parallel if at_left else depth < length)]
        return back + on

    def golden(self, branch: int, lanes: Sequence[int]) -> list[Edge]:
        """The shortest path from the hall to the leaf of ``branch``, by the given lane in each diamond."""
        first = self.leaf(branch) - 2 * self.diamonds
        path = [Edge(HALL, FORK, 0), Edge(FORK, first, 0)]
        for lane in lanes:
            here = path[-1].to
            path += [Edge(here, here + 1, lane), Edge(here + 1, here + 2, 0)]
        return path


def wander(
    star: Star,
    branch: int,
    keep: Sequence[Sequence[float]],
    rng: random.Random,
    limit: int = 100_000,
    refuse: bool = False,
) -> list[Edge]:
    """A walk from the hall to the leaf of ``branch``, or of ``limit`` edges.

    Args:
        keep: chance to go on in the direction of the last edge, [4][K]: in the order of FAMILIES, c at l_j outward,
            a at r_j outward, b at r_j returning, d at l_j returning (specs/E163, 2b). The fork is uniform.
        refuse: never take a directed edge again while the node has an unused one (the search agent of Corollary 1 as
            specs/E163 D4 reads it); where the habits exclude every unused edge, it takes one at random.
    """
    path, used, target = [Edge(HALL, FORK, 0)], set[Edge](), star.leaf(branch)
    while path[-1].to != target and len(path) < limit:
        last = path[-1]
        exits = star.exits(last.to)
        weights = [1.0] * len(exits)
        if last.to != FORK and len(exits) > 1:
            outward, depth = star.depth(last.to) > star.depth(last.node), star.depth(last.to)
            family = (0 if outward else 3) if depth % 2 else (1 if outward else 2)
            onward = [(star.depth(e.to) > depth) == outward for e in exits]
            stay, turn = keep[family][(depth - 1) // 2], sum(onward)
            weights = [stay / turn if on else (1 - stay) / (len(exits) - turn) for on in onward]
        if refuse and any(e not in used for e in exits):
            weights = [w * (e not in used) for w, e in zip(weights, exits, strict=True)]
            if not sum(weights) > 0:
                weights = [float(e not in used) for e in exits]
        path.append(rng.choices(exits, weights)[0])
        used.add(path[-1])
    return path


class Plan:
    """One task: the exit's branch, the number each room carries, and the order of its doors."""

    def __init__(self, number: int, star: Star) -> None:
        dice = Dice(number, "maze")
        self.star, self.branch = star, dice.below(star.branches)
        order = random.Random(f"maze {number}")
        self.room = list(range(star.nodes))
        order.shuffle(self.room)
        self.doors: list[list[Edge]] = []
        for node in range(star.nodes):
            exits = star.exits(node)
            order.shuffle(exits)
            self.doors.append(exits)

    @property
    def exit(self) -> int:
        return self.star.leaf(self.branch)


class MazeWorld(Exact):
    """One run in a Maze; exact."""

    def __init__(self, taskset: Maze, number: int) -> None:
        self._plan, self._left, self._node = taskset.plan(number), taskset.steps, HALL
        self._tag = digest(STATE, encode(taskset.ref), encode(f"maze-{number}"))
        self._closed = False

    @property
    def success(self) -> bool:
        return self._node == self._plan.exit

    @property
    def _done(self) -> bool:
        return self.success or self._left <= 0

    @property
    def state_key(self) -> bytes:
        """The room. Where one came from is in the conversation, not in the world."""
        return digest(STATE, self._tag, encode(str(self._plan.room[self._node])))

    def observe(self) -> Observation:
        plan = self._plan
        if self.success:
            return Observation(f"room {plan.room[self._node]} ; the exit", None, True, ())
        doors = [f"door {i} to {plan.room[e.to]}" for i, e in enumerate(plan.doors[self._node])]
        legal = () if self._done else tuple(f"door {i}" for i in range(len(doors)))
        return Observation(" ; ".join([f"room {plan.room[self._node]}", *doors]), None, self._done, legal)

    def step(self, action: str | ToolCall) -> Observation:
        """Take ``door N``; anything else counts as a step and changes nothing."""
        alive(self._done or self._closed, action)
        self._left -= 1
        doors = {f"door {i}": e.to for i, e in enumerate(self._plan.doors[self._node])}
        self._node = doors.get(action, self._node) if isinstance(action, str) else self._node
        return self.observe()._replace(
            reward=float(self.success), call_id=action.id if isinstance(action, ToolCall) else None
        )

    def snapshot(self) -> bytes:
        return json.dumps([self._tag.hex(), self._node, self._left]).encode()

    def restore(self, snapshot: bytes) -> None:
        _, self._node, self._left = load(snapshot, self._tag.hex(), 3)


class Maze(Numbered[MazeWorld]):
    """Mazes of branches with dead ends; a task id ``maze-NUMBER`` fixes exit, room numbers and door order.

    Args:
        branches: 2 or more. diamonds: in each branch, 1 or more. parallel: doors side by side in a diamond.
        steps: horizon.
    """

    prefix, plays = "maze", MazeWorld

    def __init__(self, branches: int = 3, diamonds: int = 3, parallel: int = 2, steps: int = 400) -> None:
        given = {"branches": branches, "diamonds": diamonds, "parallel": parallel, "steps": steps}
        if branches < 2 or min(diamonds, parallel, steps) < 1:
            raise BadInput(f"maze({given})", remedy="Needs 2 branches or more, and 1 or more of everything else.")
        self.ref = make_ref("maze", given, Maze)
        self.star, self.steps = Star(branches, diamonds, parallel), steps
        self.plan = kept(lambda number: Plan(number, self.star))  # of a task number

    def content(self, number: int) -> Hashable:
        plan = Plan(number, self.star)
        return (plan.branch, tuple(plan.room), tuple(e.to * 64 + e.lane for doors in plan.doors for e in doors))

    def find(self, task_id: str) -> Task:
        plan = self.plan(self.number(task_id))
        return Task(task_id, f"find the exit ; you start in room {plan.room[HALL]}")

    def open(self, task: Task) -> MazeWorld:
        return MazeWorld(self, self.number(task.id))

    def verdict(self, task: Task, last: MazeWorld) -> dict[str, float]:
        """1 where the exit was reached."""
        return {"reward": float(last.success), "success": float(last.success)}

    def demonstrate(self, task: Task, kind: Kind = "full", seed: int = 0, skill: float = 0.9) -> list[str]:
        """Actions of a demonstration that reaches the exit.

        Args:
            kind: ``golden``, a shortest path, as from one who knows; ``full``, a search with its wrong branches and
                retreats; ``erased``, the same search with every loop cut out.
            skill: chance that the searcher goes on in its direction, outward or back, at every door.

        Raises:
            BadInput: no such kind, or a skill at which the exit would not be found.
        """
        if kind not in KINDS or not 0 < skill <= 1:
            remedy = f"Kinds: {', '.join(KINDS)}; 0 < skill <= 1."
            raise BadInput(f"demonstrate(kind={kind!r}, skill={skill})", remedy=remedy)
        plan, rng = self.plan(self.number(task.id)), random.Random(f"{task.id} {seed}")
        star = self.star
        if kind == "golden":
            path = star.golden(plan.branch, [rng.randrange(star.parallel) for _ in range(star.diamonds)])
        else:
            path = wander(star, plan.branch, [[skill] * star.diamonds] * len(FAMILIES), rng)
        if kind == "erased":
            path = [path[i] for i in loop_erase([path[0].node, *(e.to for e in path)])]
        return [f"door {plan.doors[e.node].index(e)}" for e in path]
