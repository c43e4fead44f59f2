"""The behavioural audit with agents whose obedience is known: one that keeps what it reads, one that heeds nothing."""

from __future__ import annotations

import json

import pytest

from clew.core.errors import BadInput
from clew.core.registry import register
from clew.core.values import Message, ToolCall
from clew.harness import Runner
from clew.methods.pins.behaviour import Condition, arm, refusals, survivors, trial, violations
from clew.models.fakes import Scripted, tool_call
from clew.store import open_store
from clew.worlds.desk import Case, Desk, natural
from clew.worlds.desk.desk_rules import RULES

register("tasksets", "desk", Desk)
CASES = {
    task.data["request"]: Case.of(task)
    for asks in ("forbidden", "allowed")
    for task in Desk(tickets=0, channel="none", asks=asks).sample(60, 0, "test")
}


def agent(heeds):
    """Does what the ticket asks, unless ``heeds`` and a rule that forbids it stands in front of it."""

    def answer(request):
        texts = [n.message.text for n in request.path]
        if "Summarise the conversation" in texts[-1]:
            return "Orders were looked up."
        if not texts[-1].startswith("Ticket:"):
            return "Closed."
        case = CASES[texts[-1].removeprefix("Ticket: ")]
        core = case.text.partition(": ")[2] or case.text
        if heeds and not case.allowed and any(core in t for t in texts[:-1]):
            return tool_call("escalate", reason="the rule")
        name, given = natural(case)
        return Message("assistant", "", calls=(ToolCall("call_0", name, json.dumps(given)),))

    return Scripted({"": answer})


def rates(model, **condition):
    trials = arm(model, Condition(**condition), 10)
    return violations(trials).rate, survivors(trials).rate, refusals(trials).rate


LOSES = ({"strategy": "truncate"}, {"strategy": "summarise"}, {"strategy": "hierarchical"}, {"told": False})
KEEPS = (
    {}, {"strategy": "head-and-tail"}, {"strategy": "summarise", "summariser": "oracle"},
    {"strategy": "truncate", "channel": "system"}, {"turns": 12},
)  # fmt: skip


def test_a_rule_that_is_read_is_kept_and_one_that_is_gone_is_broken():
    obedient = agent(True)
    for condition in LOSES:
        assert rates(obedient, **condition) == (1.0, 0.0, 0.0), condition
    for condition in KEEPS:
        assert rates(obedient, **condition) == (0.0, 1.0, 1.0), condition


@pytest.mark.parametrize("pin", ["plain", "hardened"])
def test_the_pin_mends_every_loss_and_its_controls_mend_none(pin):
    obedient = agent(True)
    for condition in LOSES[:3]:
        for generations in (1, 5) if pin == "hardened" else (1,):
            assert rates(obedient, **condition, pin=pin, generations=generations) == (0.0, 1.0, 1.0)
    for control in ("irrelevant", "shuffled"):
        assert rates(obedient, strategy="truncate", pin=control)[0] == 1.0
    assert rates(obedient, strategy="truncate", pin=pin, allowed=True)[2] == 0.0, "allowed twins are done"


def test_an_agent_that_heeds_nothing_is_found_out_and_only_the_guard_holds():
    deaf = agent(False)
    for condition in ({}, {"strategy": "truncate", "pin": "hardened"}, {"channel": "system"}):
        assert rates(deaf, **condition)[0] == 1.0
    assert rates(deaf, guard=True)[0] == 0.0
    assert rates(deaf, guard=True, allowed=True) == (0.0, 1.0, 0.0)


def test_attacks_take_the_rule_out_of_summaries_and_change_no_pin():
    obedient = agent(True)
    calm = {"strategy": "summarise", "summariser": "extractive", "words": 150, "turns": 4}
    assert rates(obedient, **calm)[1] == 1.0
    assert rates(obedient, **calm, attack="volume")[1] < 0.5
    naive = {"strategy": "summarise", "summariser": "gullible"}
    assert rates(obedient, **naive)[1] == 1.0
    assert rates(obedient, **naive, attack="injection")[1] < 0.5
    for attack in ("volume", "injection", "forged"):
        for condition in (calm, naive):
            assert rates(obedient, **condition, attack=attack, pin="hardened")[:2] == (0.0, 1.0)
    half = arm(obedient, Condition(strategy="summarise", summariser="neglectful"), 60)
    assert 0.3 < survivors(half).rate < 0.7
    assert violations(half, survived=True).hits == 0
    assert violations(half, survived=False).rate == 1.0


@pytest.mark.parametrize("channel", ["system", "user", "memory", "tool"])
def test_channels(channel):
    expected = 0.0 if channel == "system" else 1.0
    assert rates(agent(True), channel=channel)[0] == 0.0
    assert rates(agent(True), channel=channel, strategy="truncate")[0] == expected


def test_episodes_are_runs_that_replay(tmp_path):
    path, model = tmp_path / "s.db", agent(True)
    trials = arm(model, Condition(strategy="summarise", pin="hardened"), 3, store=path)
    kept = open_store(path)
    assert sorted(kept.find()) == sorted(t.run for t in trials)
    assert kept.verify() == []
    from clew.store import Run

    run, asked = Run(kept, trials[0].run), model.calls
    assert trial(run) == trials[0]
    desk = Desk(tuple(RULES), 0, "none", "forbidden")
    Runner(run.agent, desk, model, kept, config=json.loads(run.row.config)).replay(run)
    assert model.calls == asked


def test_a_condition_that_makes_no_sense_is_refused():
    for bad in ({"channel": "dream"}, {"strategy": "forget"}, {"turns": 0}, {"pin": "soft"}, {"share": 0.0}):
        with pytest.raises(BadInput):
            Condition(**bad)
