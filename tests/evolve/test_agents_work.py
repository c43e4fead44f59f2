"""Agents as what evolves: the clerk and the judge of the desk without a model, labelled work, runs by name."""

from __future__ import annotations

import asyncio

import pytest

from clew.core.errors import BadInput, ClewError
from clew.core.registry import build
from clew.harness import Runner
from clew.methods.coevolve.agents import RecordedRuns, shown_work
from clew.methods.coevolve.agents.labelled_work import dealt, refuse_overlap
from clew.methods.coevolve.agents.line_judge import FIRST, accepts_by
from clew.methods.coevolve.agents.policy_clerk import policy_lines
from clew.methods.coevolve.agents.prompted_judge import verdict_of
from clew.methods.coevolve.agents.recorded_runs import Piece
from clew.methods.coevolve.agents.ticket_reading import NOUNS

CLERK = "clew.evolve.agents.policy_clerk:policy_clerk"
RIGHT = "\n".join(line for line in policy_lines() if line.endswith("against the rule."))
WRONG = RIGHT.replace("against the rule", "within the rule")


def performed(world, policies, n=60, split="train"):
    runs = RecordedRuns(Runner(CLERK, build("tasksets", world), None, ":memory:"), "policy", "test")
    tasks = runs.runner.taskset.sample(n, split=split)
    pieces = [Piece(policy, task, 0, 0) for policy in policies for task in tasks]
    found = asyncio.run(runs.perform("agent", pieces))
    again = asyncio.run(runs.perform("agent", pieces))
    assert [run.id for run in found] == [run.id for run in again]
    return [(run, piece.task) for run, piece in zip(found, pieces, strict=True)]


@pytest.mark.parametrize("world", ["desk(tickets=1)", "desk(tickets=0,channel='tool')"])
def test_the_clerk_does_what_its_policy_says(world):
    lines = "Ask for the policy first.\n" if "tool" in world else ""
    found = performed(world, [lines + RIGHT, lines + WRONG])
    assert {run.reward for run, _ in found[:60]} == {1.0}
    assert {run.reward for run, _ in found[60:]} == {0.0}


def test_a_judge_of_all_rules_is_right_on_all_work_and_the_first_goes_by_thanks():
    judge = "\n".join(f"Reject {noun} that was handled against the rule." for noun in NOUNS.values())
    thanks = "Thank the customer in every outcome."
    work = [(shown_work(run, task), run.reward > 0.5) for run, task in performed("desk", [RIGHT, WRONG, "", thanks])]
    assert all(accepts_by(judge, one["task"], one["work"]) is good for one, good in work)
    assert {accepts_by(FIRST, one["task"], one["work"]) for one, _ in work[180:]} == {True}
    assert {accepts_by(FIRST, one["task"], one["work"]) for one, _ in work[:180]} == {False}
    assert accepts_by("Be fair.", "a task", "some work") is None
    assert accepts_by(judge, "no desk at all", "refund {not json} -> done\nrefund [] -> x") is True


def test_a_verdict_is_one_word_or_none():
    assert verdict_of("Fine.\nVerdict: accept") is True
    assert verdict_of("verdict: **reject**") is False
    for said in ("", "accept", "Verdict: accept\nVerdict: reject", "Verdict: perhaps"):
        assert verdict_of(said) is None


def work_of(n):
    return [({"task": f"a private question, number {i:02d}", "work": f"reply {i}"}, bool(i % 2)) for i in range(n)]


def test_labelled_work_is_dealt_once_and_never_told():
    found = dealt([*work_of(40), *work_of(40)], "made work")
    private, shown = {item.id for item in found.anchor.items}, {item.id for item in found.open}
    assert not private & shown
    assert len(private) + len(shown) == 40
    assert {item.id for item in dealt(work_of(40)[::-1], "made work").open} == shown
    found.refuse({"training task 1": {"task": "another question", "work": "reply 1"}})
    for told in ({"seen": [{"work": "I read: a private\nquestion, number 03"}]}, ["a private question, number 38"]):
        with pytest.raises(ClewError, match="a task of the private anchor"):
            found.refuse(told)
    refuse_overlap(found, {"t1": "another question"}, "x")
    with pytest.raises(BadInput, match="2 pieces of work in x are on tasks of the search, as t"):
        refuse_overlap(found, {f"t{i}": f"a private question,  number {i:02d}" for i in (3, 38)}, "x")
    with pytest.raises(BadInput, match="holds 14 pieces"):
        dealt(work_of(14), "made work")
