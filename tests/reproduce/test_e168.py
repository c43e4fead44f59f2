"""E168's player of ``apps``: it reads what is asked, heeds advice, trusts tools, and its runs come out again."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from clew.core.registry import register
from clew.core.values import StopReason
from clew.harness import Runner
from clew.worlds.apps import Apps
from clew.worlds.apps.app_goals import answered, asked
from clew.worlds.apps.app_rules import CHANGES
from papers.E168_metis import tier_bare
from papers.E168_metis.player import _row, explore, explorer
from papers.E168_metis.reading import advice, read

pytestmark = pytest.mark.whole

register("tasksets", "apps", Apps)
TASKSET = Apps()
TASKS = TASKSET.sample(40, seed=1)


def played(agent, tasks=TASKS, taskset=TASKSET, **config):
    """The runs of an agent, and what each noted of itself."""
    runner = Runner(agent, taskset, None, config=config)
    runs = list(runner.collect(tasks, n=1).runs)
    return runner, runs, [json.loads(next(c.text for c in run.calls if c.action == "explored")) for run in runs]


def rewards(runs):
    return [run.reward for run in runs]


def errand(run, pages=99):
    """A tool that knows what is true of the app, and reads so many pages at most."""
    told = advice(TASKSET.facts(run.task), read(run.task.prompt).app)

    def tool(query, api):
        wanted = read(query)
        at = {"app": wanted.app, "table": wanted.table}
        if told.login:
            api("login", app=wanted.app)
        rows, page, more = [], 0, True
        while more and page < pages:
            page += 1
            seen = api("fetch", **at, endpoint=told.fetch[0], page=page)
            rows, more = [*rows, *(_row(row, told) for row in seen["rows"])], seen["has_more"]
        rows = [r for r in rows if all(f.keeps(r) for f in wanted.filters) and not (r.pending and told.leaves_out)]
        if wanted.verb in CHANGES and rows:
            api("change", **at, endpoint=told.change[0], verb=wanted.verb, ids=[row.id for row in rows])
        return "done" if wanted.verb in CHANGES else answered(wanted.verb, rows)

    return tool


async def informed(run):
    await explore(run, TASKSET.facts(run.task))


async def equipped(run, pages=99):
    await explore(run, tools={"errand": errand(run, pages)})


async def misled(run, override):
    await explore(run, [*TASKSET.facts(run.task), "plan: pages 1"], override=override)


def test_every_query_is_read_as_it_was_meant():
    taskset = Apps(families=288, zipf=0.0)
    for task in taskset.sample(150):
        family = taskset.family(taskset.number(task.id))
        _, filters = asked(taskset.number(task.id), family)
        assert read(task.prompt) == (family.app, family.table, family.verb, filters)
    for other in (
        "",
        "Add up my songs in bank over 3 dollars.",
        "Add up my tracks in music.",
        "Pay my bills in bank x.",
    ):
        assert read(other) is None


def test_advice_is_read_for_its_app_and_nonsense_is_passed_over():
    told = advice(
        [
            "fact: app mail: endpoint is search", "fact: app bank: endpoint is query", "app mail: login first",
            "fact: app mail: amounts are in cents", "rm -rf /", "plan: app bank: login; fetch zzz", "x" * 10**6,
            "fact: app mail: amounts are in dollars", "plan: app mail: ; pages 0; pages 2; where amount over 3;"
            "where category is not food; where who is me; fetch list", "plan: pages 9; fetch query",
            "pitfall: app mail: on submit -> pending rows counted -> wrong; fix: pending rows are left out",
            "pitfall: app mail: login first",
        ],
        "mail",
    )  # fmt: skip
    assert (told.fetch, told.change, told.login) == (["list", "search"], [], True)
    assert (told.cents, told.leaves_out, told.pages) == (False, True, 2)
    assert told.where == (("amount", "over", 3), ("category", "is not", "food"))
    assert len(advice(["endpoint is list"] * 10_000, "mail").fetch) == 200


def test_facts_help_and_tools_are_quicker():
    _, bare, alone = played(explorer)
    _, told, knew = played(informed)
    _, armed, tooled = played(equipped)
    assert rewards(told) == rewards(armed) == [1.0] * len(TASKS)
    assert sum(rewards(bare)) <= len(TASKS) - 4
    turns = [sum(one["turns"] for one in notes) / len(TASKS) for notes in (alone, knew, tooled)]
    assert turns[0] > turns[1] + 1.5
    assert turns[2] == 2, "the tool, and what is submitted"
    assert {one["tool"] for one in tooled} == {"errand"}
    spent = [sum(one["tokens"] for one in notes) for notes in (alone, knew, tooled)]
    assert spent[0] > spent[2] < spent[1]


def test_at_no_override_a_flaw_does_the_same_harm_as_text_and_as_a_tool():
    """The negative control of specs/E168, P7: one page is read, whatever there is."""
    _, text, _ = played(misled, override=0.0)
    _, tool, _ = played(equipped, pages=1)
    _, seen, _ = played(misled, override=1.0)
    _, half, _ = played(misled, override=0.5)
    assert rewards(text) == rewards(tool)
    assert sum(rewards(text)) <= len(TASKS) - 10
    assert sum(rewards(seen)) == len(TASKS)
    assert sum(rewards(text)) < sum(rewards(half)) < len(TASKS)


def test_a_literal_number_of_pages_fails_as_often_as_it_should():
    """specs/E168 P7: chance that a task needs more pages than another, rows 2 to 23, pages of 4 to 8."""
    pairs = list(itertools.product(range(2, 24), repeat=2))
    short = sum(-(-a // size) > -(-b // size) for size in range(4, 9) for a, b in pairs) / len(pairs) / 5
    assert 0.30 < short < 0.45


def calling(tool):
    async def agent(run):
        await explore(run, TASKSET.facts(run.task), {"odd": tool, "errand": errand(run)})

    return agent


def unsteady():
    calls = itertools.count()
    return lambda query, api: [api("login", app=f"a{next(calls)}"), api("login", app="b")]


def hiding(query, api):
    try:
        api("login", app="bank")
        return 1 / 0
    except Exception:
        return None


ODD = {
    "none": lambda query, api: None,
    "raises": lambda query, api: 1 / 0,
    "leaves": lambda query, api: sys.exit(),
    "no answer": lambda query, api: {"a": 1},
    "yes": lambda query, api: True,
    "long": lambda query, api: "x" * 41,
    "no json": lambda query, api: api("login", app=object()),
    "for ever": lambda query, api: [api("login", app="bank") for _ in iter(int, 1)],
    "unsteady": unsteady(),
    "hiding": hiding,
    "submits": lambda query, api: None if "error" in api("submit", answer="0") else "0",
}


@pytest.mark.parametrize("odd", ODD)
def test_a_tool_that_gives_nothing_costs_a_turn_and_the_player_goes_on(odd):
    runner, (run,), (note,) = played(calling(ODD[odd]), TASKS[:1])
    assert run.reward == 1
    assert (note["turns"], note["tool"], note["refused"]) == (3, "errand", ["odd"])
    assert runner.store.verify() == []


def test_runs_replay_and_fork_at_every_choice():
    runner, runs, _ = played(explorer)
    run = next(run for run in runs if sum(c.kind == "draw" for c in run.calls) >= 2)
    assert runner.replay(run).calls == len(run.calls)
    acts = [c for c in run.calls if c.kind == "act"]
    for at in [c for c in run.calls if c.kind in ("draw", "act")]:
        fork = runner.fork(run, at.seq)[0]
        same = [c.action for c in fork.calls if c.kind == "act" and c.seq < at.seq]
        assert same == [c.action for c in acts if c.seq < at.seq]
        assert fork.stop is StopReason.DONE
        runner.replay(fork)
    again = played(explorer)[1]
    assert [[c.action for c in r.calls] for r in again] == [[c.action for c in r.calls] for r in runs]
    assert runner.store.verify() == []


def test_the_budget_ends_a_task_unanswered():
    _, runs, notes = played(explorer, TASKS[:6], budget=2)
    assert [(run.reward, note["turns"], note["submitted"]) for run, note in zip(runs, notes, strict=True)] == [
        (0.0, 2, False)
    ] * 6
    _, (run,), (note,) = played(explorer, TASKS[:1], Apps(steps=2))
    assert (run.stop, note["submitted"]) == (StopReason.DONE, False)


def test_cells_of_tier_bare():
    cells = list(tier_bare.cells(True))
    assert len(cells) == 2 * 3 * 2
    assert len(list(tier_bare.cells(False))) == 120
    line = tier_bare._stream({"families": 150, "condition": "facts"}, 1, tasks=20)
    assert (line["success"], line["unsubmitted"]) == (1.0, 0.0)
    assert 2 < line["turns"] < 8
