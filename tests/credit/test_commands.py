"""Credit of commands in a workspace: states are what the files hold, and what each command is worth is known."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import clew
from benchmarks.coding_credit import Repair, State, aliased, by_lot, collected, correlations, deed_of
from clew import credit
from clew.credit.steps import steps
from clew.models.fakes import Scripted, tool_call
from clew.view.pages import graph
from clew.worlds.toys import Counter

boxed = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")


@pytest.fixture(scope="module")
def repairs(tmp_path_factory):
    """Three groups of the planted coder, and their runner."""
    model = Repair()
    return model, *collected(tmp_path_factory.mktemp("repair"), model, 14, 3)


@boxed
def test_the_true_worth_of_commands_is_found_by_the_files_as_states(repairs):
    model, _, made = repairs
    found = [correlations(model, groups) for groups in made]
    mean = {name: np.mean([row[name] for row in found]) for name in found[0]}
    assert mean["g2po"] > mean["grpo"] + 0.2
    assert mean["bellman"] > mean["grpo"] + 0.2
    assert mean["g2po by text"] < mean["g2po"] - 0.2, "what commands print names no state"


@pytest.mark.whole
@boxed
def test_states_by_the_files_hide_nothing_but_the_commands_left_and_by_the_text_more(repairs, tmp_path):
    _, _, made = repairs
    short = aliased(made, "state")
    assert short.ambiguous > 0, "the sixth command is the last, whatever the files hold"
    assert short.verdict == "unknown"
    _, made = collected(tmp_path, Repair(steps=16), 20, 3)
    assert aliased(made, "state").verdict == "markov"
    assert aliased(made, "text").ambiguous > 0 == aliased(made, "state").ambiguous


@boxed
def test_states_of_runs_meet_where_files_are_equal_and_commands_where_they_do_the_same(repairs):
    _, _, made = repairs
    table = steps(made[0])
    walks = {run.id: run.steps for run in made[0].runs}
    held: dict[int, set[State]] = {}
    deeds: dict[int, set[str]] = {}
    state = State()
    for row in range(len(table)):
        step = walks[table.runs[table.run[row]]][table.t[row]]
        state = State() if table.t[row] == 0 else state
        held.setdefault(int(table.state[row]), set()).add(state)
        deeds.setdefault(int(table.action[row]), set()).add(deed_of(step.act))
        state = state.after(deed_of(step.act))
    assert all(len(states) == 1 for states in held.values())
    assert len(held) == len(set.union(*held.values())), "files that are equal are one state, whatever led there"
    assert all(len(names) == 1 for names in deeds.values())
    assert len(deeds) == len(set.union(*deeds.values())), "a command is one action, whatever id its call had"


@boxed
def test_the_graph_of_a_group_says_what_changed_in_each_state(repairs):
    _, runner, made = repairs
    credit.g2po(made[0])
    page = graph.page(runner.store, made[0][0].id)["graph"]
    texts = [node["text"] for node in page["nodes"]]
    assert "the files as they were at first" in texts
    assert {"*left", "*right", "*left *right"} <= set(texts)
    assert len(set(texts)) == len(texts)
    assert "echo 1 > left" in {edge["action"] for edge in page["edges"]}
    assert max(edge["count"] for edge in page["edges"]) > 2, "equal commands are one arrow"


@boxed
def test_where_success_is_drawn_by_lot_no_command_is_worth_anything(repairs):
    """Runs last: it judges the runs anew."""
    model, runner, made = repairs
    for seed, groups in enumerate(made):
        by_lot(runner, groups, seed)
    found = [correlations(model, groups) for groups in made]
    assert abs(np.mean([row["g2po"] for row in found])) < 0.2
    assert abs(np.mean([row["grpo"] for row in found])) < 0.2


def test_a_tool_beside_the_world_leaves_its_state_as_it_is():
    def look(place: str) -> str:
        """Look at a place."""
        return f"nothing at {place}"

    replies = [tool_call("look", id="a", place="x"), tool_call("look", id="b", place="x"), "up", "stop"]

    async def agent(run):
        chat = run.chat(tools=run.tools)
        while not run.done:
            await run.act(await chat.ask("go on"))

    world = Counter(low=1, high=1)
    runner = clew.Runner(agent, world, Scripted(replies), tools=[look])
    table = steps(runner.collect(world.sample(1), n=2))
    assert table.state.tolist()[:3] == [table.state[0]] * 3, "the counter stood where it was"
    assert table.action[0] == table.action[1], "two calls of one tool with the same arguments"
    assert table.nodes <= 3, "at 0, at 1, stopped"


def test_spacing_and_ids_of_tool_calls_say_nothing():
    from clew.core.values import Message, ToolCall

    texts = ['{"place": "x", "n": 1}', '{"n":1,"place":"x"}', "no json", "no json"]
    calls = [Message("assistant", "", calls=(ToolCall(f"c{i}", "look", text),)) for i, text in enumerate(texts)]

    def look(place: str, n: int = 1) -> str:
        """Look."""
        return json.dumps([place, n])

    async def agent(run):
        chat = run.chat(tools=run.tools)
        for _ in texts:
            await run.act(await chat.ask("go on"))
        await run.act("up")
        await run.act("stop")

    world = Counter(low=1, high=1)
    table = steps(clew.Runner(agent, world, Scripted(calls), tools=[look]).collect(world.sample(1), n=1))
    one, other, broken, again = table.action.tolist()[:4]
    assert one == other
    assert broken == again != one
