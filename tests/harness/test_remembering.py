"""An agent that knows nothing of memories is told what one has; where its model chooses, only what it chose counts."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("bm25s", reason="did not run: bm25s is not installed (pip install 'clew[memory]')")

from clew.core.values import Task
from clew.harness import Runner
from clew.harness.memory import Memory
from clew.models.fakes import Scripted
from clew.store import Run, open_store

TASK = Task("t", "Buy bread at the bakery.")


def kept(store):
    memory = Memory(store, "shop")
    hours = memory.add("fact", {"text": "The bakery opens at six."}, by="ann")
    price = memory.add("fact", {"text": "Bread of the bakery is dear."}, by="ann")
    return memory, hours, price


def played(store, *replies, select=0, agent="chatter", **config):
    """A run of an agent around another; what each request's system prompt and last message said."""
    sent, left = [], iter(replies)

    def say(request):
        said = [node.message for node in request.path]
        sent.append(("".join(m.text for m in said if m.role == "system"), said[-1].text))
        return next(left)

    how = {"agent": agent, "memory": "shop", "select": select, "config": config}
    runner = Runner("remembering", None, Scripted({"": say}), store, how)
    run = runner.collect([TASK], 1).runs[0]
    return runner, run, sent


def test_an_agent_is_told_what_a_memory_has_in_each_conversation():
    store = open_store(":memory:")
    memory, hours, price = kept(store)
    runner, run, sent = played(store, "done", system="Be brief.")
    assert len(sent) == 1
    assert sent[0][0].startswith("Be brief.\n\nNotes from earlier runs, as data;")
    assert hours.text in sent[0][0]
    assert sent[0][1] == TASK.prompt
    assert [len(memory.item(one.id).given) for one in (hours, price)] == [1, 1]
    assert runner.replay(run).calls == len(run.calls)
    fork = runner.fork(run, memory={"without": [hours.id]}, model=Scripted({"": "again"}))[0]
    assert hours.text not in str(fork.conversation(0))
    assert price.text in str(fork.conversation(0))


def test_what_the_model_chooses_is_told_and_counted_alone():
    store = open_store(":memory:")
    memory, hours, price = kept(store)
    runner, run, sent = played(store, 'I think {"use": [7, 2, 2]}.', "done", select=1)
    recalls = [json.loads(call.text)["items"] for call in run.calls if call.kind == "recall"]
    chosen = recalls[0][1]["id"]
    assert [one["id"] for one in recalls[1]] == [chosen]
    assert all(one.text in sent[0][1] for one in (hours, price))
    given = {one.id: len(memory.item(one.id).given) for one in (hours, price)}
    assert given == {one.id: int(one.id == chosen) for one in (hours, price)}
    assert memory.item(chosen).text in sent[1][0]
    assert sum(one.text in sent[1][0] for one in (hours, price)) == 1
    assert runner.replay(run).calls == len(run.calls)
    at = run.at(next(call.seq for call in run.calls[::-1] if call.kind == "recall"))
    late, early = (
        runner.fork(run, place, memory={"without": [chosen]}, model=Scripted({"": "?"}))[0] for place in (at, None)
    )
    left = [[json.loads(c.text)["items"] for c in one.calls if c.kind == "recall"] for one in (late, early)]
    assert [len(items) for items in left[0]] == [2, 0], "chosen and taken away"
    assert [len(items) for items in left[1]] == [1, 1], "never offered, so the model's first is the other one"
    assert chosen not in json.dumps(left[1])


@pytest.mark.parametrize("said", ["all of them", '{"use": "1"}', '{"use": [true]}', "{" * 999])
def test_a_model_that_chooses_nothing_that_can_be_read_gets_the_first_items(said):
    store = open_store(":memory:")
    memory, hours, price = kept(store)
    _, run, sent = played(store, said, said, said, "done", select=1)
    assert len(sent) == 4
    assert any(call.kind == "note" and "no selection" in call.action for call in run.calls)
    assert sum(len(memory.item(one.id).given) for one in (hours, price)) == 1


def test_a_model_may_choose_none():
    store = open_store(":memory:")
    memory, hours, _ = kept(store)
    _, run, sent = played(store, '{"use": []}', "done", select=3)
    assert sent[1][0] == ""
    assert not memory.item(hours.id).given
    assert Run(store, run.id).stop == "returned"
