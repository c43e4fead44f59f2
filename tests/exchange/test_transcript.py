"""Transcripts as runs: whatever conversation goes in can be replayed, and comes out as it was."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.core.errors import BadInput, ModelError, ReplayDiverged
from clew.core.values import Message, StopReason, ToolCall, ToolSpec, Usage
from clew.exchange import export, recall, record
from clew.exchange.transcript import Meter, Transcript, lost, regained, task_id_of, turns_of
from clew.harness import Runner
from clew.models.fakes import Echo, Scripted
from clew.store import MemoryStore, Run
from clew.store.contract import Script
from clew.worlds.toys import Counter

call = ToolCall("c1", "look", '{"at":"door"}')
TALK = (
    Message("system", "be brief"),
    Message("user", "what do you see?"),
    Message("assistant", "", "hm", (call, ToolCall("c2", "look", "not json"))),
    Message("tool", "a door", call_id="c1", extra='{"chat":{"name":"look"}}'),
    Message("tool", "nothing", call_id="c2"),
    Message("assistant", "a door"),
    Message("user", "and behind it?"),
    Message("system", "time is short"),
    Message("assistant", "a garden"),
    Message("user", "thanks"),
)


def kept(it: Transcript):
    store = MemoryStore()
    run = Run(store, record(store, it))
    store.commit()
    return store, run


def test_a_conversation_becomes_asks_and_acts():
    store, run = kept(Transcript(TALK, "t1", (ToolSpec("look"),), 1.0, {"style": 0.5}, "gpt-4o"))
    kinds = [c.kind for c in run.calls]
    assert kinds == ["open", "ask", "act", "act", "ask", "act", "ask", "act", "end"]
    assert json.loads(store.row(run.id).task)["prompt"] == "what do you see?"
    assert run.calls[1].setup.version == 0  # of the weights: nobody knows it
    assert [c.text for c in run.calls if c.kind == "act"] == ["a door", "nothing", "and behind it?", "thanks"]
    assert run.calls[2].action == '["c1","look","{\\"at\\":\\"door\\"}"]'
    assert (run.reward, run.stop, run.row.origin) == (1.0, StopReason.RETURNED, "import")
    assert {a.method: a.value for a in store.annotations([run.id])} == {"reward": 1.0, "style": 0.5}
    assert not store.verify()
    runner = Runner.of(store, run)
    assert runner.replay(run).calls == len(run.calls)
    assert store.row(run.id).agent_digest == runner.agent_digest != "", "else nobody hears that the agent has changed"


messages = st.lists(
    st.tuples(
        st.sampled_from(["system", "user", "assistant", "tool"]),
        st.text(st.characters(exclude_categories=()), max_size=6),
        st.lists(st.sampled_from([call, call._replace(id="c2"), call._replace(id="")]), max_size=2).map(tuple),
        st.sampled_from([None, "c1", "c2", ""]),
    ).map(lambda t: Message(t[0], t[1], "", t[2] if t[0] == "assistant" else (), t[3] if t[0] == "tool" else None)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(messages)
def test_any_conversation_is_kept_and_replays(talk):
    store, run = kept(Transcript(tuple(talk), "t"))
    assert recall(run).messages == tuple(talk)
    assert not store.verify()
    assert Runner.of(store, run).replay(run).calls == len(run.calls)


def test_a_transcript_that_says_something_else_is_named():
    store, run = kept(Transcript(TALK, "t1"))
    runner = Runner.of(store, run)
    task = runner.task_of(run.row)
    task.data["turns"][1]["say"][0]["text"] = "time is plenty"
    runner.task_of = lambda row: task
    with pytest.raises(ReplayDiverged, match=f"{run.id}@6"):
        runner.replay(run)


def test_a_fork_samples_the_next_reply_and_stops_at_the_act():
    store, run = kept(Transcript(TALK, "t1", model="gpt-4o"))
    model = Scripted({"": "a wall"})
    runner = Runner.of(store, run, model=model)
    (fork,) = runner.fork(run, at=4)
    assert (model.calls, fork.stop) == (1, StopReason.NO_WORLD)
    assert fork.conversation(0)[-1].message.text == "a wall"
    assert fork.shared == 4
    (again,) = runner.fork(run, at=5, result="a cellar", model=Echo())
    assert again.conversation(0)[-2].message.text == "time is short"
    assert [n.message.text for n in again.conversation(0)][-3] == "a cellar"


def test_what_replies_took_is_kept():
    meter = Meter(Usage(10, 5, 2), 0.25, 1.5)
    _, run = kept(Transcript(TALK, "t1", meters=(meter, Meter(), meter)))
    assert run.cost == 0.5
    assert recall(run).meters == (meter, Meter(), meter)


def test_tasks_without_a_name_are_told_apart_by_their_opening():
    store = MemoryStore()
    one, two, other = (
        Run(store, record(store, Transcript(talk))).task_id for talk in (TALK, TALK[:3], (Message("user", "else"),))
    )
    assert one == two != other
    assert (one, other) == ("task-41462983c2b7", "task-e69b4f6b4eda")  # files that are imported next year meet these
    answered = [Message("tool", "a", call_id="c", extra="{}")]
    assert task_id_of(answered) == "task-fa37fa165ceb"


def test_turns():
    opening, turns = turns_of(TALK)
    assert [m.role for m in opening] == ["system", "user"]
    assert [(t.acts, len(t.answers), len(t.say)) for t in turns] == [("calls", 2, 0), ("text", 1, 1), ("text", 1, 0)]
    greeting = (Message("assistant", "hello"), Message("user", "hi"), Message("assistant", "so"))
    opening, turns = turns_of(greeting)
    assert (len(opening), len(turns)) == (2, 1)


@given(messages, messages)
def test_what_a_format_loses_is_regained(before, after):
    for message, read in zip(before, after, strict=False):
        assert regained(read, json.loads(json.dumps(lost(message, read)))) == message


def test_runs_that_were_not_imported_are_recalled_too():
    counter = Counter()
    runner = Runner("clew.harness.agents:player", counter, Scripted(["up", "stop"]))
    (group,) = runner.collect(counter.sample(1), n=1)
    it = recall(group[0])
    assert [m.role for m in it.messages] == ["user", "assistant", "user", "assistant"]  # no ask showed the last result
    assert [m.text for m in it.messages if m.role == "assistant"] == ["up", "stop"]
    assert (it.fields, it.about["stop"], it.reward) == (None, StopReason.DONE, group[0].reward)
    store, run = kept(it)
    assert recall(run).messages == it.messages
    assert not store.verify()


async def a_watcher_of_its_own_tools(run):
    """Asks twice in one conversation, once beside it, and acts after its last ask."""
    chat = run.chat("be brief")
    chat.say("assistant", "an example")
    await run.act("up")
    first = await chat.ask("one")
    await run.chat().ask("aside")
    await run.act(first.text)
    await chat.ask("two")
    chat.say("user", "nobody is shown this")
    await run.act("stop")


def test_only_what_a_model_was_sent_or_said_is_exported():
    counter = Counter()
    runner = Runner(a_watcher_of_its_own_tools, counter, Scripted({"": "up"}))
    (group,) = runner.collect(counter.sample(1), n=1)
    it = recall(group[0])
    main = [("system", "be brief"), ("assistant", "an example"), ("user", "one"), ("assistant", "up"), ("user", "two")]
    assert [(m.role, m.text) for m in it.messages] == [*main, ("assistant", "up")]
    assert [[m.text for m in other] for other in it.others] == [["aside", "up"]]
    assert [m.usage.completion > 0 for m in it.meters] == [False, True, True]  # the example took nothing
    assert len(group[0].calls) == 8  # open, act, ask, ask, act, ask, act, end: no result of an act is a message


def test_the_conversation_with_most_messages_is_the_main_one():
    async def agent(run):
        await run.chat().ask("a title, please")
        chat = run.chat()
        await chat.ask("work")
        await chat.ask("more work")
        await chat.branch(1).ask("otherwise")

    counter = Counter()
    (group,) = Runner(agent, counter, Echo()).collect(counter.sample(1), n=1)
    it = recall(group[0])
    assert [m.text for m in it.messages if m.role == "user"] == ["work", "more work"]
    assert [[m.text for m in o if m.role == "user"] for o in it.others] == [["a title, please"], ["work", "otherwise"]]


def test_a_prompt_that_got_no_reply_was_sent_all_the_same():
    async def agent(run):
        chat = run.chat()
        await chat.ask("one")
        with suppress(ModelError):
            await chat.ask("two")

    def model(request):
        if request.path[-1].message.text == "two":
            raise ModelError("overloaded")
        return "yes"

    counter = Counter()
    (group,) = Runner(agent, counter, Scripted({"": model})).collect(counter.sample(1), n=1)
    assert [m.text for m in recall(group[0]).messages] == ["one", "yes", "two"]


def test_a_run_that_asked_nothing_is_left_out_of_an_export(tmp_path):
    async def silent(run):
        await run.act("stop")

    counter = Counter()
    runner = Runner(silent, counter, Echo())
    (mute,) = runner.collect(counter.sample(1), n=1)
    (loud,) = Runner("clew.harness.agents:chatter", counter, Echo(), runner.store).collect(counter.sample(1), n=1)
    assert recall(mute[0]).messages == ()
    assert export(runner.store, [mute[0], loud[0]], tmp_path / "out.jsonl") == 1
    with pytest.raises(BadInput, match="none of these runs asked a model"):
        export(runner.store, [mute[0]], tmp_path / "none.jsonl")
    assert [p.name for p in tmp_path.iterdir()] == ["out.jsonl"]


def test_a_reply_counts_though_the_world_has_not_opened_yet():
    """Results are numbered as they are handed over: the first, number 0, need not be that of the first Call."""
    store = MemoryStore()
    script = Script(store)
    script.put("open", after=0, done=-1)
    script.ask("what is it?", "a door", after=0, done=0)
    it = recall(Run(store, script.run))
    assert [m.text for m in it.messages] == ["what is it?", "a door"]
    assert (it.model, len(it.meters)) == ("tiny-1", 1)
