"""Forks: at steps and tokens, with every kind of change; what is shared is stored once."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import numpy as np
import pytest

from clew.core.errors import BadInput, CannotRestore, ReplayDiverged
from clew.core.records import Request
from clew.core.values import Completion, Limits, Message, StopReason, Task, ToolCall
from clew.harness import LiveRun, Runner, tool
from clew.harness.agents import chatter, player, tool_user
from clew.models.fakes import Scripted
from clew.models.markov import Markov
from clew.store import MemoryStore, Run
from clew.worlds.household import Household
from clew.worlds.toys import Counter, Notepad

from .conftest import Wanderer


@pytest.fixture
def runner(house: Household, wanderer: Wanderer) -> Runner:
    return Runner(player, house, wanderer)


@pytest.fixture
def run(runner: Runner, house: Household) -> Run:
    return runner.collect(house.sample(1), n=1).runs[0]


def counts(store: MemoryStore) -> tuple[int, int]:
    return len(store._nodes), sum(len(calls) for calls in store._calls.values())


class Late(Scripted):
    """Gives no answer in time to ``never``."""

    async def complete(self, request: Request) -> Completion:
        if request.path[-1].message.text == "never":
            await asyncio.sleep(30)
        return await super().complete(request)


def test_every_step_forks_and_stores_only_what_is_new(runner: Runner, run: Run) -> None:
    store = runner.store
    assert isinstance(store, MemoryStore)
    for step in run.steps:
        at = run.at(step=step.index)
        nodes, calls = counts(store)
        fork = runner.fork(run, at=at)[0]
        own = len(fork.calls) - fork.shared
        assert fork.shared == at.seq
        assert fork.parent == at
        assert [c.key for c in fork.calls[: at.seq]] == [c.key for c in run.calls[: at.seq]]
        assert counts(store)[1] == calls + own
        assert counts(store)[0] <= nodes + own
        runner.replay(fork)
    assert store.verify() == []


def test_a_fork_of_a_fork_of_a_fork_is_flat(runner: Runner, run: Run) -> None:
    current = run
    for step in (8, 6, 4, 2):
        current = runner.fork(current, at=current.at(step=step))[0]
        assert len(current.row.lineage) <= 2
        runner.replay(current)
    twig = runner.fork(runner.fork(run, at=run.at(step=2))[0], at=run.at(step=6).seq)[0]
    assert twig.row.lineage[0].run == run.id
    assert len(twig.row.lineage) == 2
    runner.replay(twig)


def test_seeds_fresh_same_and_given(runner: Runner, run: Run) -> None:
    at = run.at(step=1)
    same = runner.fork(run, at=at, seed="same", n=2)
    assert [c.key for c in same[0].calls] == [c.key for c in run.calls], "common random numbers repeat the run"
    assert same[1].seed != same[0].seed
    a, b = runner.fork(run, at=at, seed=7)[0], runner.fork(run, at=at, seed=7)[0]
    assert [c.key for c in a.calls] == [c.key for c in b.calls]
    fresh = [runner.fork(run, at=at)[0].seed for _ in range(3)]
    assert len({run.seed, *fresh}) == 4


def test_reply_result_and_world_edits(house: Household, wanderer: Wanderer) -> None:
    runner = Runner(player, Counter(), Scripted({"": "up"}))
    run = runner.collect(Counter().sample(1), n=1).runs[0]
    assert len(run.steps) > 3
    at = run.at(step=2)
    forced = runner.fork(run, at=at, reply="down")[0]
    call = forced.calls[at.seq]
    assert (call.finish, call.forced, call.logprobs) == ("forced", len("down"), None)
    assert forced.calls[at.seq + 1].action == "down"
    told = runner.fork(run, at=at.seq + 1, result="nothing happened")[0]
    assert told.calls[at.seq + 1].text == "nothing happened"
    assert told.calls[at.seq + 1].state == run.calls[at.seq + 1].state, "the world still acted"
    moved = runner.fork(run, at=at, world=["up"])[0]
    assert moved.calls[at.seq].node_in == run.calls[at.seq].node_in, "the agent does not see it"
    assert moved.calls[at.seq + 1].state != run.calls[at.seq + 1].state
    for fork in (forced, told, moved):
        runner.replay(fork)
        runner.replay(runner.fork(fork, at=fork.at(step=3))[0])
    assert runner.store.verify() == []


def test_rewriting_what_the_agent_said(runner: Runner, run: Run) -> None:
    fork = runner.fork(run, rewrite={2: "you are nowhere"})[0]
    said = [n.message.text for n in fork.conversation() if n.message.role == "user"]
    was = [n.message.text for n in run.conversation() if n.message.role == "user"]
    assert said[2] == "you are nowhere"
    assert said[:2] == was[:2]
    assert fork.shared == run.at(step=2).seq
    kept = runner.fork(run, rewrite={2: "you are nowhere"}, keep=True)[0]
    replies = [c for c in kept.calls[kept.shared :] if c.kind == "ask"]
    assert {c.finish for c in replies} == {"forced"}
    assert [kept.reply(c.seq).message.text for c in replies] == [
        run.reply(c.seq).message.text for c in run.calls[run.at(step=2).seq :] if c.kind == "ask"
    ]
    dropped = runner.fork(run, rewrite={3: None})[0]
    assert [n.message.role for n in dropped.conversation()[5:8]] == ["assistant", "assistant", "user"]
    grandchild = runner.fork(fork, at=fork.at(step=5))[0]
    again = [n.message.text for n in grandchild.conversation() if n.message.role == "user"]
    assert again[2] == "you are nowhere", "an edit is inherited by forks of the fork"
    for each in (fork, kept, grandchild):
        runner.replay(each)


def test_a_message_is_named_by_its_node_or_key_or_place() -> None:
    async def agent(run: LiveRun) -> None:
        first, second = run.chat("one"), run.chat("two")
        for chat in (first, second):
            await chat.ask("a")
            await chat.ask("b")

    runner = Runner(agent, None, Scripted({"": lambda request: " ".join(n.message.text for n in request.path)}))
    run = runner.collect([Task("t", "")], n=1).runs[0]
    for conversation in (0, 1):
        node = run.conversation(conversation)[3]
        assert node.message.text == "b"
        for place in (node, node.key, (conversation, 2)):
            fork = runner.fork(run, rewrite={place: "grüß Gott"})[0]
            texts = [[n.message.text for n in fork.conversation(c)][3] for c in (0, 1)]
            assert texts == (["grüß Gott", "b"] if conversation == 0 else ["b", "grüß Gott"])
            assert "grüß Gott" in fork.row.changes, "whoever searches the file finds what was put in"
    reply = run.conversation(0)[2]
    with pytest.raises(BadInput, match=f"no message {reply.key.hex()} was said in run {run.id}"):
        runner.fork(run, rewrite={reply: "x"})


def test_what_was_given_up_is_shared_by_forks_at_calls_that_came_after_it() -> None:
    async def agent(run: LiveRun) -> None:
        never = asyncio.create_task(run.chat().ask("never"))
        await asyncio.sleep(0)
        await run.chat().ask("beside")
        never.cancel()
        with suppress(asyncio.CancelledError):
            await never
        await run.chat().ask("after")

    runner = Runner(agent, None, Late({"": "yes"}))
    run = runner.collect([Task("t", "")], n=1).runs[0]
    never, beside, after = (c for c in run.calls if c.kind == "ask")
    assert never.error
    assert runner.fork(run, at=after.seq)[0].shared == after.seq
    assert runner.fork(run, at=beside.seq)[0].shared == never.seq, "it was given up after the Call there was issued"


def test_a_fork_keeps_what_answered_beside_an_ask_that_it_makes_anew() -> None:
    async def agent(run: LiveRun) -> None:
        never, chat = asyncio.create_task(run.chat().ask("never")), run.chat()
        await asyncio.sleep(0)
        await chat.ask("first")
        await chat.ask("second")
        never.cancel()
        with suppress(asyncio.CancelledError):
            await never
        await chat.ask("after")

    runner = Runner(agent, None, Late({"": "yes"}))
    run = runner.collect([Task("t", "")], n=1).runs[0]
    never, first, second, _ = (c for c in run.calls if c.kind == "ask")
    fork = runner.fork(run, at=second.seq)[0]
    assert fork.shared == never.seq, "an ask that had not answered there is made anew, and all after it is the fork's"
    assert [c.seq for c in fork.calls] == list(range(len(run.calls)))
    assert fork.calls[first.seq] == first._replace(run=fork.id, cost=0.0)
    assert runner.store.verify() == []
    runner.replay(fork)


def test_a_fork_goes_on_with_the_time_that_its_record_took() -> None:
    class Slow(Scripted):
        async def complete(self, request: Request) -> Completion:
            return (await super().complete(request))._replace(seconds=100.0)

    async def agent(run: LiveRun) -> None:
        for _ in range(5):
            await run.chat().ask("go on")

    runner = Runner(agent, None, Slow({"": "yes"}), limits=Limits(seconds=250.0))
    run = runner.collect([Task("t", "")], n=1).runs[0]
    assert run.stop == StopReason.RETURNED, "live, the clock counts"
    stops = [runner.fork(run, at=seq)[0].stop for seq in (2, 3, 4)]
    assert stops == [StopReason.RETURNED, StopReason.RETURNED, StopReason.TIME_LIMIT]


def test_token_forks_force_the_first_tokens() -> None:
    model = Markov(tokens=True)
    runner = Runner(chatter, None, model, sampling={"max_tokens": 12})
    run = runner.collect([Task("t", "the thread")], n=1).runs[0]
    ask = run.calls[1]
    node = run.reply(1)
    assert node.ids is not None
    sampled = len(node.ids) - ask.head
    assert sampled > 2
    for token in range(1, sampled + 1):
        fork = runner.fork(run, at=run.at(1, token=token), seed=token)[0]
        call, reply = fork.calls[1], fork.reply(1)
        assert reply.ids is not None
        assert reply.ids[: call.head + token] == node.ids[: call.head + token]
        assert call.forced == token
        assert call.logprobs is not None
        assert len(call.logprobs) == len(reply.ids) - call.head - token
        assert str(fork.parent) == f"{run.id}@1+{token}"
        runner.replay(fork)
    with pytest.raises(BadInput, match=f"has {sampled} tokens, not {sampled + 1}"):
        runner.fork(run, at=run.at(1, token=sampled + 1))
    forced = runner.fork(run, at=run.at(1), prefix=list(node.ids[ask.head : ask.head + 2]))[0]
    assert forced.calls[1].forced == 2
    assert runner.store.verify() == []


def test_character_forks_where_there_are_no_tokens() -> None:
    class Finisher:
        ref, version, renderer = "finisher", 0, None

        async def complete(self, request):  # type: ignore[no-untyped-def]
            from clew.core.values import Completion

            return Completion(Message("assistant", request.forced_text + "...the end"))

    runner = Runner(chatter, None, Finisher())
    run = runner.collect([Task("t", "tell")], n=1).runs[0]
    fork = runner.fork(run, at=run.at(1, token=5), seed="fresh")[0]
    assert fork.reply(1).message.text == "...th...the end"
    assert fork.calls[1].forced == 5


def test_swapping_the_model_renders_the_path_anew_and_says_so() -> None:
    first, second = Markov("one two three one two", tokens=True), Markov("red green blue red green", tokens=True)

    async def agent(run: LiveRun) -> None:
        chat = run.chat()
        for _ in range(3):
            await chat.ask("go on")

    runner = Runner(agent, None, first, sampling={"max_tokens": 4})
    run = runner.collect([Task("t", "")], n=1).runs[0]
    fork = runner.fork(run, at=2, model=second)[0]
    path = fork.conversation()
    assert {n.tokenizer for n in path} == {second.renderer.ref}
    assert fork.calls[2].setup is not None
    assert fork.calls[2].setup.model == second.ref
    drift = fork.annotations("drift")
    assert len(drift) >= 3
    assert all("tokenizer" in a.data for a in drift)
    aligned = [n.text_key for n in path[:3]]
    assert aligned == [n.text_key for n in run.conversation()[:3]], "a key without tokens aligns the two"
    runner.replay(fork)
    assert runner.store.verify() == []


def test_worlds_that_cannot_be_restored_are_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    pad = Notepad(path=str(tmp_path / "pad.txt"))
    runner = Runner(player, pad, Scripted(["a", "b", "c", "stop"]))
    run = runner.collect(pad.sample(1), n=1).runs[0]
    before = (tmp_path / "pad.txt").read_text()
    runs = runner.store.run_ids()
    with pytest.raises(CannotRestore, match="kind none"):
        runner.fork(run, at=run.at(step=2))
    assert runner.store.run_ids() == runs, "nothing was stored"
    assert (tmp_path / "pad.txt").read_text() == before


def test_reenacted_worlds_are_checked_by_their_state() -> None:
    counter = Counter(restores="reenact")
    runner = Runner(player, counter, Scripted({"": "up"}))
    run = runner.collect(counter.sample(1), n=1).runs[0]
    fork = runner.fork(run, at=run.at(step=3))[0]
    runner.replay(fork)
    noisy = Counter(restores="reenact", noise=True)
    other = Runner(player, noisy, Scripted({"": "up"}))
    drifting = other.collect(noisy.sample(1), n=1).runs[0]
    assert any(diverges(other, drifting) for _ in range(20)), "a world with noise does not come back to its states"


def diverges(runner: Runner, run: Run) -> bool:
    try:
        runner.fork(run, at=run.at(step=-1))
    except ReplayDiverged as error:
        return "led to another state" in error.message
    return False


def test_children_are_forked_through_their_ancestors() -> None:
    async def child(run: LiveRun) -> str:
        chat = run.chat()
        first = await chat.ask(run.task.prompt)
        return (await chat.ask("and then?" + first.text)).text

    async def parent(run: LiveRun) -> None:
        chat = run.chat()
        plan = await chat.ask("plan")
        done = await run.spawn(child, f"do {plan.text}")
        await chat.ask(f"child ended {done.stop}")

    import sys

    module = sys.modules[__name__]
    child.__qualname__ = parent.__qualname__ = ""
    child.__qualname__, parent.__qualname__ = "child", "parent"
    module.child, module.parent = child, parent  # type: ignore[attr-defined]
    runner = Runner(parent, None, Wanderer())
    run = runner.collect([Task("t", "")], n=1).runs[0]
    spawn = next(c for c in run.calls if c.kind == "spawn")
    kid = Run(runner.store, spawn.child)
    assert kid.row.spawned_by == f"{run.id}@{spawn.seq}"
    assert kid.stop is StopReason.RETURNED
    runner.replay(run)
    fork = runner.fork(kid, at=kid.at(2), reply="changed")[0]
    assert fork.parent == run.at(spawn.seq), "the parent is forked at the spawn"
    forked_kid = Run(runner.store, fork.calls[spawn.seq].child)
    assert forked_kid.id != kid.id
    assert forked_kid.shared == 2
    assert forked_kid.reply(2).message.text == "changed"
    runner.replay(fork)
    assert runner.store.verify() == []


def test_places_and_changes_that_do_not_fit_are_refused(runner: Runner, run: Run) -> None:
    with pytest.raises(BadInput, match="changes an ask"):
        runner.fork(run, at=2, reply="no")
    with pytest.raises(BadInput, match="changes an act"):
        runner.fork(run, at=1, result="no")
    with pytest.raises(BadInput, match="no Call 999"):
        runner.fork(run, at=999)
    with pytest.raises(BadInput, match="unknown sampling setting 'heat'"):
        runner.fork(run, at=1, sampling={"heat": 2})
    with pytest.raises(BadInput, match="has no message 77"):
        runner.fork(run, rewrite={77: "x"})


def test_sampling_edits_hold_from_their_call_on(runner: Runner, run: Run) -> None:
    fork = runner.fork(run, at=run.at(step=4), sampling={"temperature": 0.0})[0]
    temperatures = [c.setup.asked.temperature for c in fork.calls if c.kind == "ask" and c.setup and c.setup.asked]
    assert temperatures[:4] == [1.0] * 4
    assert set(temperatures[4:]) == {0.0}
    runner.replay(fork)
    with pytest.raises(BadInput, match="unknown sampling setting"):
        Runner(player, None, None, sampling={"heat": 1})


def test_imported_transcripts_sample_the_next_reply_and_stop_at_the_next_act() -> None:
    from clew.harness.agents import transcript

    data = {"opening": [{"role": "user", "text": "hello"}],
            "turns": [{"acts": "calls", "answers": [["tool", ""]]}, {"acts": "none"}]}  # fmt: skip
    calls = (ToolCall("c1", "look", "{}"),)

    def look() -> str:
        """Looks."""
        return "a room"

    recorded = Runner(transcript, None, Scripted([Message("assistant", "", calls=calls), "done"]), tools=[tool(look)])
    run = recorded.collect([Task("t", "", data)], n=1).runs[0]
    assert run.stop is StopReason.RETURNED
    bare = Runner(transcript, None, Scripted([Message("assistant", "", calls=calls)] * 2), recorded.store)
    fork = bare.fork(run, at=1)[0]
    assert fork.stop is StopReason.NO_WORLD
    assert [c.kind for c in fork.calls] == ["open", "ask", "end"]
    bare.replay(fork)


def test_group_statistics_count_calls_not_nodes(house: Household) -> None:
    runner = Runner(player, house, Scripted({"": "go kitchen"}))
    runs = runner.collect(house.sample(1), n=4).runs
    assert len({r.reply(1).key for r in runs}) == 1
    assert sum(c.kind == "ask" for r in runs for c in r.calls) == 4 * len(runs[0].steps)
    assert np.all([r.reward == 0 for r in runs])


def test_limits_end_a_run_with_their_reason(house: Household, wanderer: Wanderer) -> None:
    for limits, reason in (
        (Limits(steps=3), StopReason.STEP_LIMIT),
        (Limits(seconds=0.0), StopReason.TIME_LIMIT),
        (Limits(tokens=0), StopReason.TOKEN_LIMIT),
        (Limits(cost=0.0), StopReason.COST_LIMIT),
    ):
        runner = Runner(player, house, wanderer, limits=limits)
        run = runner.collect(house.sample(1), n=1).runs[0]
        assert run.stop is reason
        runner.replay(run)


def test_a_fork_may_have_limits_of_its_own(house: Household, wanderer: Wanderer) -> None:
    runner = Runner(player, house, wanderer, limits=Limits(steps=3))
    run = runner.collect(house.sample(1), n=1).runs[0]
    assert runner.fork(run, at=run.at(step=2))[0].stop is StopReason.STEP_LIMIT
    longer = runner.fork(run, at=run.at(step=2), limits=Limits(steps=5))[0]
    assert len(longer.steps) == 5
    assert runner.fork(longer, at=longer.at(step=4))[0].stop is StopReason.STEP_LIMIT
    runner.replay(longer)


def test_tool_user_answers() -> None:
    def add(a: int, b: int = 2) -> int:
        """Adds."""
        return a + b

    calls = (ToolCall("x", "add", '{"a": 1}'), ToolCall("y", "add", '{"a": "q", "c": 1}'))
    runner = Runner(tool_user, None, Scripted([Message("assistant", "", calls=calls), "three"]), tools=[add])
    run = runner.collect([Task("t", "sum")], n=1).runs[0]
    acts = [c for c in run.calls if c.kind == "act"]
    assert acts[0].text == "3"
    assert acts[1].text.startswith('error: add: argument a must be integer, not "q"')
    assert [c.text for c in run.calls if c.kind == "note"] == ['{"text": "three"}']


def test_a_given_reply_stands_where_the_later_ones_are_kept() -> None:
    """``keep`` forces the replies after the change, not the one that the change replaces."""
    runner = Runner(player, Counter(low=2, high=2), Markov("up down stop", tokens=True), limits=Limits(steps=3))
    run = runner.collect([Counter(low=2, high=2).sample(1)[0]], n=1).runs[0]
    seq = next(c.seq for c in run.calls if c.kind == "ask")
    fork = runner.fork(run, at=seq, reply="stop down", keep=True)[0]
    assert fork.reply(seq).message.text.strip() == "stop down"
    assert fork.reply(seq).message.text != run.reply(seq).message.text
