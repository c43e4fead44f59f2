"""Maze: the graph, the walker's habits, the text world and its demonstrations."""

import itertools
import random
from collections import Counter

import pytest

from clew.core.errors import BadInput, WorldError
from clew.core.registry import register
from clew.worlds.contract import check_other_process, check_taskset, perform
from clew.worlds.loops import loop_erase
from clew.worlds.maze import FORK, HALL, KINDS, Maze, Star, wander

register("tasksets", "maze", Maze)


@pytest.mark.parametrize("ref", [{}, {"branches": 2, "diamonds": 1, "parallel": 1}, {"branches": 4, "steps": 5}])
def test_contract(ref):
    taskset = Maze(**ref)
    done = check_taskset(taskset, lambda task: taskset.demonstrate(task, "full", seed=1))
    assert {"check_snapshots", "check_movement", "check_judge", "check_end"} <= set(done)
    assert "check_snapshots" in check_taskset(taskset)


def test_another_process_reaches_the_same_states():
    taskset = Maze()
    task = taskset.sample(1)[0]
    assert check_other_process(taskset, task, taskset.demonstrate(task, "full"))


@pytest.mark.parametrize("size", [(2, 1, 1), (3, 3, 2), (5, 4, 7)])
def test_graph(size):
    """Doors lead both ways but for the hall's and the fork's; degrees are those of the path-star."""
    star, (branches, diamonds, parallel) = Star(*size), size
    edges = Counter((e.node, e.to) for node in range(star.nodes) for e in star.exits(node))
    for (a, b), n in edges.items():
        assert edges[b, a] == n or (a, b) == (HALL, FORK)
    degrees = Counter(len(star.exits(node)) for node in range(2, star.nodes))
    assert degrees == Counter({parallel + 1: 2 * diamonds * branches}) + Counter({1: branches})
    assert len(star.exits(FORK)) == branches
    for branch in range(branches):
        path = star.golden(branch, [0] * diamonds)
        assert len(path) == 2 * diamonds + 2
        assert path[-1].to == star.leaf(branch)
        assert all(e in star.exits(e.node) for e in path)
        assert [star.depth(e.to) for e in path] == list(range(2 * diamonds + 2))


def test_perfect_habits_visit_a_branch_and_come_back():
    star = Star(3, 2, 2)
    for seed in range(20):
        path = wander(star, 1, [[1.0, 1.0]] * 4, random.Random(seed))
        visits = sum(e.node == FORK for e in path)
        assert len(path) == 1 + 5 * (2 * visits - 1)


def test_refusing_agent_takes_no_edge_twice_while_another_is_unused():
    star = Star(3, 3, 3)
    path = wander(star, 0, [[1.0] * 3, [1.0] * 3, [0.75] * 3, [0.25] * 3], random.Random(3), refuse=True)
    used = set()
    for edge in path[1:]:
        assert edge not in used or all(x in used for x in star.exits(edge.node))
        used.add(edge)


@pytest.mark.parametrize("seed", range(5))
def test_demonstrations_reach_the_exit(seed):
    taskset = Maze(4, 3, 2)
    task = taskset.sample(1, seed=seed)[0]
    lengths = {}
    for kind in KINDS:
        world, rooms = taskset.open(task), []
        for action in taskset.demonstrate(task, kind, seed=seed):
            rooms.append(perform(world, action).text.partition(" ;")[0])
        assert world.success
        assert world.observe().text.endswith("the exit")
        lengths[kind] = len(rooms)
        if kind != "full":
            assert len(set(rooms)) == len(rooms), "a path without loops"
    assert lengths["golden"] == lengths["erased"] == 8
    assert lengths["full"] >= 8


def test_nothing_that_is_shown_tells_the_exit():
    """Over tasks, neither the number nor the place in the list of the door that leads on is better than chance."""
    taskset, firsts, rank = Maze(2, 2, 2), Counter(), Counter()
    for task in taskset.sample(400):
        plan = taskset.plan(int(task.id.partition("-")[2]))
        right = next(e for e in plan.doors[FORK] if e.to == plan.exit - 4)
        wrong = next(e for e in plan.doors[FORK] if e is not right)
        firsts[plan.doors[FORK].index(right)] += 1
        rank[plan.room[right.to] < plan.room[wrong.to]] += 1
    assert 160 < firsts[0] < 240
    assert 160 < rank[True] < 240


def test_bad_input():
    taskset = Maze()
    task = taskset.sample(1)[0]
    for bad in ({"branches": 1}, {"diamonds": 0}, {"parallel": 0}, {"steps": 0}):
        with pytest.raises(BadInput, match="maze"):
            Maze(**bad)
    with pytest.raises(BadInput, match="golden, full, erased"):
        taskset.demonstrate(task, "messy")
    with pytest.raises(BadInput, match="skill"):
        taskset.demonstrate(task, skill=0.0)
    world, other = taskset.open(task), taskset.open(taskset.sample(2)[1])
    with pytest.raises(WorldError):
        world.restore(other.snapshot())
    before = world.state_key
    world.step("sing")
    assert world.state_key == before


@pytest.mark.parametrize(
    ("walk", "kept"),
    [
        ("", []),
        ("a", []),
        ("abc", [0, 1]),
        ("abac", [2]),
        ("aab", [1]),
        ("abcbd", [0, 3]),
        ("abcabd", [3, 4]),
        ("aba", []),
    ],
)
def test_loop_erase(walk, kept):
    assert loop_erase(walk) == kept


def test_loop_erase_gives_paths():
    rng = random.Random(0)
    for _ in range(200):
        states = [rng.randrange(6) for _ in range(rng.randrange(1, 30))]
        kept = loop_erase(states)
        path = [states[0], *(states[i + 1] for i in kept)]
        assert path[-1] == states[-1]
        assert len(set(path)) == len(path)
        assert all(a == states[i] for a, i in zip(path, kept, strict=False))
        assert all(a < b for a, b in itertools.pairwise(kept))
