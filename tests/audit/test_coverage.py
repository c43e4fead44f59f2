"""Coverage by hand on small graphs, a planted truth in the bundled worlds, and a control in which nothing is lost."""

from __future__ import annotations

import pytest

from clew.core.errors import BadInput, UnknownName
from clew.core.registry import build, register
from clew.exchange import distil, openai_jsonl
from clew.exchange.distil import demonstration, sources, taught
from clew.harness import Runner
from clew.methods.recoveries import Trail, coverage, trails
from clew.methods.recoveries.coverage import course, distances
from clew.models.fakes import Echo
from clew.store import MemoryStore
from clew.worlds.household import Household
from clew.worlds.maze import Maze
from clew.worlds.toys import Counter, Shop

for name, maker in {"maze": Maze, "household": Household, "counter": Counter, "shop": Shop}.items():
    register("tasksets", name, maker)


def trail(states: str, solved: bool = True, task: str = "t") -> Trail:
    """A run through states of one letter each; an action is named by where it leads."""
    return Trail(task, tuple(states), tuple(states[1:]), solved)


def test_distances_are_seen_moves_to_a_solved_end():
    known = distances([trail("abcd"), trail("aefab", solved=False), trail("axd", task="u")])
    assert known == {
        **{("t", s): n for s, n in zip("dcba", range(4), strict=True)},
        ("t", "f"): 4,
        ("t", "e"): 5,
        **{("u", s): n for s, n in zip("dxa", range(3), strict=True)},
    }
    assert distances([trail("abc", solved=False)]) == {}


def test_course_by_hand():
    paths = [trail("abcd"), trail("abefebcd")]
    found = course(paths[1], distances(paths))
    #                        a->b   b->e  e->f  f->e   e->b   b->c   c->d
    assert found.mistake == [False, True, True, False, False, False, False]
    assert found.retreat == [False, False, False, True, True, False, False]
    assert found.off == [False, False, True, True, True, False, False, False]


def test_an_act_that_changes_nothing_is_a_mistake_and_not_a_retreat():
    paths = [trail("aabb"), trail("aab", solved=False)]
    found = course(paths[0], distances(paths))
    assert found.mistake == [True, False, True]
    assert not any(found.retreat + found.off)


def test_without_a_solved_run_nothing_is_called_a_mistake():
    path = trail("abac", solved=False)
    found = course(path, distances([path]))
    assert found.mistake == [False, False, False]
    assert found.off == [False] * 4
    told = coverage([path], path.acts())
    assert (told.lost, told.mistakes, told.judged, told.behind, told.ways) == (1, 0, 0, 0, 0)
    assert told.to_json()["mistakes"] is None
    assert told.states is None
    assert told.to_json()["share of states"] is None


def test_coverage_counts_distinct_states_and_retreats():
    paths = [trail("abefebcd"), trail("abefebcd"), trail("abcd")]
    full = coverage(paths, [act for path in paths for act in path.acts()])
    assert (full.behind, full.ways, full.acts, full.mistakes) == (2, 2, 17, 4)
    assert (full.covered_states, full.covered_retreats) == (2, 2)
    golden = coverage(paths, trail("abcd").acts())
    assert (golden.covered_states, golden.covered_retreats) == (0, 0)
    part = coverage(paths, [("t", "e", "f")])
    assert (part.covered_states, part.covered_retreats) == (1, 0), "an act there that is no retreat"
    assert coverage(paths, [("other", "e", "b")]).covered_states == 0, "a state is one task's"


def test_intervals_are_over_tasks():
    paths = [trail("abefebcd", task=f"t{i}") for i in range(10)]
    found = coverage(paths, [act for path in paths[:5] for act in path.acts()]).states
    assert found is not None
    assert found.estimate == 0.5
    assert 0 < found.low < 0.5 < found.high < 1
    assert found.n == 10
    one = coverage(paths[:1], [])
    assert one.states is not None
    assert (one.states.low, one.states.high) == (0.0, 1.0)
    assert one.states.caveats


def collected(ref: str, tasks: int, n: int, **how):
    taskset = build("tasksets", ref)
    runner = Runner("clew.harness.agents:demonstrator", taskset, Echo(), config={"world": ref, **how})
    return [run for group in runner.collect(taskset.sample(tasks), n) for run in group]


@pytest.fixture(scope="module")
def mazes():
    return collected("maze", 6, 4)


@pytest.fixture(scope="module")
def homes():
    return collected("household", 20, 6)


@pytest.mark.parametrize("world", ["mazes", "homes"])
def test_data_with_and_without_recoveries_is_told_apart(world, request, tmp_path):
    """Bar 6: the same solved runs, once whole and once loop-erased."""
    runs = request.getfixturevalue(world)
    solved = [run for run, path in zip(runs, trails(runs), strict=True) if path.solved]
    found = {}
    for erase in (False, True):
        path = tmp_path / f"{erase}.jsonl"
        openai_jsonl.write(path, [demonstration(run, erase) for run in solved])
        found[erase] = coverage(*taught(path, runs[0].store))
    assert found[False].states.estimate == found[False].retreats.estimate == 1.0
    assert found[True].behind == found[False].behind > 20
    assert found[True].retreats.high < 0.75
    assert found[True].states.high < 0.75


def test_control_runs_that_never_err_lose_nothing(tmp_path):
    runs = collected("maze", 4, 3, kind="golden")
    path = tmp_path / "golden.jsonl"
    openai_jsonl.write(path, [demonstration(run, True) for run in runs])
    paths, acts = taught(path, runs[0].store)
    found = coverage(paths, acts)
    assert (found.mistakes, found.behind, found.states) == (0, 0, None)
    assert len(acts) == found.acts


def test_demonstrations_are_what_was_recorded(mazes):
    run = max(mazes, key=lambda r: len(r.steps))
    whole, erased = demonstration(run), demonstration(run, erase=True)
    assert [m.text for m in whole.messages[1::2]] == [s.act.action for s in run.steps]
    assert [m.text for m in whole.messages[::2]] == [s.before.text for s in run.steps]
    assert 0 < len(erased.messages) < len(whole.messages)
    seen = [m.text for m in erased.messages[::2]]
    assert len(set(seen)) == len(seen), "no room twice"
    doors = dict(zip(seen, (m.text for m in erased.messages[1::2]), strict=True))
    world = build("tasksets", run.taskset).open(build("tasksets", run.taskset).find(run.task_id))
    while not world.observe().done:
        world.step(doors[world.observe().text])
    assert world.success, "the erased demonstration still solves the task"


def test_refusals(tmp_path, mazes):
    foreign = tmp_path / "foreign.jsonl"
    foreign.write_text('{"messages": [{"role": "user", "content": "hi"}]}\n')
    with pytest.raises(BadInput, match=r"foreign.jsonl:1 does not say which run") as error:
        list(sources(foreign))
    assert "clew export --sft" in error.value.remedy
    foreign.write_text("")
    with pytest.raises(BadInput, match="empty"):
        taught(foreign, mazes[0].store)
    foreign.write_text('{"clew": {"run": "nobody"}}\n')
    with pytest.raises(UnknownName):
        taught(foreign, mazes[0].store)
    with pytest.raises(BadInput, match="names its states"):
        trails([])


def test_tool_calls_are_refused_with_a_remedy():
    class Called:
        finish, action, state, error, reward, text = "tool", '["a","price","{}"]', b"s", "", 1.0, ""
        redacted = False

    class Step:
        asks, index, act, before = (), 0, Called, Called

    class Run:
        id, taskset, task_id, steps, reward, store = "r", "shop", "s-1", [Step], 1.0, MemoryStore()

    with pytest.raises(BadInput, match="tool calls"):
        distil.demonstration(Run)
