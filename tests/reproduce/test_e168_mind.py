"""E168's memory by rules: recorded and bare runs agree, codifiers, promotion, checks, and the committed results."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("bm25s", reason="did not run: the extra memory is not installed")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from clew.core.registry import register
from clew.worlds.apps import Apps
from papers.E168_metis import tier_drift, tier_flaw, tier_learn, tier_shadow, tier_store, tier_streams
from papers.E168_metis.codify import BUGS, compiled, frozen, pattern, trajectory
from papers.E168_metis.errands import bare, trial
from papers.E168_metis.mind import Mind, Way, alike
from papers.E168_metis.player import explore
from papers.E168_metis.reading import read
from papers.E168_metis.reflect import plan_of, reflect
from papers.E168_metis.shelf import BareShelf
from papers.E168_metis.stream import METIS, WAYS, lived, own, told, tried
from papers.experiment import Experiment, load

pytestmark = pytest.mark.whole

register("tasksets", "apps", Apps)
TASKSET = Apps()
TASKS = TASKSET.sample(60, seed=2)
E168 = Experiment.find("E168")
RESULTS = E168.here / "results"


async def informed(run):
    return await explore(run, TASKSET.facts(run.task))


def by_text(task):
    return bare(TASKSET, task, informed, 0)


@pytest.mark.parametrize("way", [METIS._replace(theta=1), tier_streams.MORE["ours"]], ids=["metis", "ours"])
def test_recorded_and_bare_streams_are_the_same(way):
    """The other tiers are played without a store: every step, count and token is that of the recorded runs."""
    lines, played, _ = tier_store.pair(way, 1, 24)
    assert lines[0] == lines[1]
    for recorded, plain in zip(*played, strict=True):
        assert recorded[:6] == plain[:6]
    assert sum(one.outcome.tool != "" for one in played[0]) >= (2 if way.theta == 1 else 0)


def test_a_pattern_tool_does_what_text_does_or_gives_none():
    answered = 0
    for task in TASKS[:15]:
        text = by_text(task)
        asked = read(task.prompt)
        tool = compiled(
            pattern("t", asked, plan_of(asked, text.steps), [task.prompt]), lambda task=task: TASKSET.facts(task)
        )
        for other in TASKS:
            end, _ = trial(TASKSET, other, tool)
            if end is not None:
                assert read(other.prompt)[:3] == asked[:3]
                assert end == by_text(other).end
                answered += 1
    assert answered > 15


def test_a_trajectory_tool_keeps_what_its_run_did():
    differs = 0
    for task in TASKS[:12]:
        facts = TASKSET.facts(task)
        tool = compiled(trajectory("t", task.prompt, by_text(task).steps, facts))
        assert trial(TASKSET, task, tool)[0] == by_text(task).end
        for other in TASKS:
            if read(other.prompt)[:3] == read(task.prompt)[:3] and other.id != task.id:
                end, _ = trial(TASKSET, other, tool)
                assert end is not None
                differs += end != by_text(other).end
    assert differs > 3


def test_planted_flaws_show():
    for bug in BUGS:
        wrong = 0
        for task in TASKS:
            text, asked = by_text(task), read(task.prompt)
            tool = compiled(pattern("t", asked, "", [task.prompt], bug=bug), lambda task=task: TASKSET.facts(task))
            wrong += trial(TASKSET, task, tool)[0] != text.end
        assert wrong >= 5, bug


def test_frozen_filters_take_the_first_value_where_its_type_fits():
    asked = read("Add up my songs in music over 30 dollars.").filters
    assert frozen(asked, [("amount", "under", 7), ("person", "is", "Ana")])[0] == ("amount", "under", 30)
    assert frozen(asked, [("person", "is", "Ana")]) == [("person", "is", "Ana")]


def test_what_is_learnt_of_a_task():
    """Facts from the answers, a pitfall after a wrong answer, a plan after a right one; a plan keeps no literal."""
    kinds = set()
    for task in TASKS:
        played = bare(TASKSET, task, explore, 0)
        lessons, truth = reflect(TASKSET, played).lessons, set(TASKSET.facts(task))
        for lesson in lessons:
            kinds.add((lesson.kind, played.reward))
            if lesson.kind == "fact" and lesson.text:
                assert f"fact: app {lesson.app}: {lesson.text}" in truth
            elif lesson.kind == "pitfall":
                assert f"fact: app {lesson.app}: {lesson.body['fix']}" in truth
            elif lesson.kind == "plan":
                assert not any(str(f.value) in lesson.text.split() for f in read(task.prompt).filters)
    assert kinds >= {("fact", 1.0), ("plan", 1.0), ("pitfall", 0.0)}
    assert ("plan", 0.0) not in kinds
    assert ("pitfall", 1.0) not in kinds


def test_text_comes_first_and_recurrence_earns_a_tool():
    mind, played = lived(METIS, 40, 1.1, 0, 60)
    line = told(mind, played)
    assert line["charged"]
    assert line["through"] == line["refused"]
    for tool in mind.tools:
        assert len(tool.plan.ledger) >= 3
    assert not [one for one in mind.tools if one.draft.deps]
    text, none = (told(*lived(WAYS[name], 40, 1.1, 0, 60)) for name in ("text", "none"))
    assert text["tools"] == none["tools"] == none["reflection"] == 0
    assert text["success"].count("1") > none["success"].count("1")
    assert line["executor"] < text["executor"] < none["executor"]
    for one in played:
        assert one.outcome.turns == own(one) + tried(one)


def test_checks_keep_tools_of_trajectories_out():
    bad = tier_streams.WAYS["metis 3, trajectory codifier"]
    plain, checked = (told(*lived(bad._replace(check=check), 40, 1.1, 3, 80)) for check in ("static", "shadow"))
    assert plain["tools"] > checked["tools"]
    assert checked["success"].count("1") > plain["success"].count("1")


def test_what_learns_late_and_what_never_learns():
    late = Mind(Way(late=1), TASKSET, BareShelf(), 0)
    for count, task in enumerate(TASKS[:3]):
        assert bool(late.facts()) is (count > 1)
        late.learn(bare(TASKSET, task, late.attend, 0))
    assert alike("pay my bills", []) == 0.0
    assert alike("Pay my bills.", ["delete all", "pay my bills"]) == 1.0


def test_the_negative_control_of_a_planted_flaw():
    found = {}
    for condition, override in (("text", 0.0), ("tool", 0.0), ("text", 1.0)):
        cell = {"families": 40, "flaw": "all", "condition": condition, "override": override}
        found[condition, override] = tier_flaw._stream(cell, 0, 30)["success"]
    assert found["text", 0.0] == found["tool", 0.0]
    assert found["text", 1.0].count("1") > found["text", 0.0].count("1") + 5


def test_cells_of_drift_and_shadow():
    line = tier_drift._stream({"families": 40, "condition": "text"}, 0, 30, 15)
    assert len(line["each"]) == len(line["hit"]) == 30
    assert "1" in line["hit"]
    tools = tier_shadow._tools({"condition": "planted", "calls": 1}, 0, 2)
    assert tools["flaws"] == ["pages", "negation"]
    assert not any(seen and admitted for seen, admitted in zip(tools["seen"], tools["admitted"], strict=True))


def test_clews_own_learn_keeps_what_a_run_did():
    """The screen of ``clew memory learn`` takes a pitfall only where its mistake is told as what the run did."""
    ruled = {name: tier_learn._stream({"condition": name}, 0, 25) for name in tier_learn.SCREENS}
    assert not any(line["failed"] for line in ruled.values())
    pitfalls = {
        name: sum(n for what, n in line["ruled"].items() if "pitfall add" in what) for name, line in ruled.items()
    }
    assert pitfalls["rule screen"] == 0
    assert pitfalls["rule screen, acts told"] > 0
    assert pitfalls["no screen"] > 0


@pytest.mark.parametrize("name", list(E168.tiers))
def test_committed_results_are_complete(name):
    """Every cell has its line, and the summary is what the lines give."""
    lines = load(RESULTS / f"{name}.jsonl")
    assert {E168.key(line) for line in lines} == {E168.key(cell) for cell in E168.tiers[name].cells(False)}
    assert E168.reports[name].report(lines) == (RESULTS / f"summary_{name}.md").read_text()


def test_a_stream_comes_out_again():
    lines = load(RESULTS / "streams.jsonl")
    line = next(x for x in lines if x["condition"] == "metis 3" and x["seed"] == 4 and "bug" not in x)
    (found,) = tier_streams.run({k: line[k] for k in ("families", "condition")}, [4])
    assert found == {k: line[k] for k in found}
