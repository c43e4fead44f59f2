"""Random agents that ask beside each other, time out, cancel, call tools that there are not, spawn and run without a
model: each run is sound, replays, and forks at every Call, and so do its forks."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clew.core.errors import BadInput, ClewError, ReplayDiverged
from clew.core.records import Request
from clew.core.values import Completion, Limits, Message, Task, ToolCall
from clew.harness import LiveRun, Runner
from clew.harness.run.live import Conversation
from clew.harness.run.pending import CUT_OFF, GIVEN_UP
from clew.store import Run
from clew.worlds.toys import Slow

Plan = list[Any]
PLANS = int(os.environ.get("CLEW_PLANS", "20"))
LONG = 30.0  # seconds of an answer that is never waited for


class Late:
    """Answers after a while that no seed fixes; ``never`` in the prompt gets no answer in time."""

    ref, version, renderer = "late", 0, None

    async def complete(self, request: Request) -> Completion:
        await asyncio.sleep(LONG if "never" in request.path[-1].message.text else random.choice((0, 0.001, 0.004)))
        return Completion(Message("assistant", f"answer {request.seed % 97}"))


async def look(word: str, times: int = 1) -> str:
    """Looks a word up."""
    await asyncio.sleep(random.choice((0, 0.002)))
    return word * times


def count(upto: int) -> int:
    """Counts."""
    return upto


CALLS = [
    ToolCall("", "look", '{"word": "tree", "times": 2}'),
    ToolCall("", "look", '{"word": "tree", "times": "2"}'),
    ToolCall("", "count", '{"upto": 3}'),
    ToolCall("", "count", '{"upto": "3"}'),
    ToolCall("", "no_such_tool", "{}"),
    ToolCall("", "count", "[" * 100_000),
]


async def wanderer(run: LiveRun, plan: Plan) -> None:
    """Does what a plan says."""
    await _all(run, run.chat("you are tested"), plan)


async def _all(run: LiveRun, chat: Conversation, plan: Plan) -> None:
    for step in plan:
        await _do(run, chat, step)


async def _do(run: LiveRun, chat: Conversation, step: Any) -> None:
    name, what, *rest = step
    if what == "ask":
        try:
            reply = await chat.ask(f"{rest[0]} {name}")
        except BadInput:
            run.note(f"nobody to ask {name}")
        else:
            if "7" in reply.text or "changed" in reply.text:  # what is replied decides what is done
                await run.act(CALLS[0]._replace(id=name))
    elif what == "act":
        observed = await run.act(CALLS[rest[0]]._replace(id=name))
        chat.say("user", observed._replace(call_id=None))
    elif what == "step" and run.view.text:  # there is a world
        with suppress(ClewError):
            await run.act(f"up {name}")
    elif what == "draw":
        run.note(f"drawn {name}", value=await run.draw(name))
    elif what == "spawn":
        child = await run.spawn(wanderer, "go", plan=rest[0])
        run.note(f"child {name}", stop=str(child.stop))
    elif what == "together":
        await asyncio.gather(*(_all(run, run.chat(f"part {i} of {name}"), plan) for i, plan in enumerate(rest[0])))
    elif what == "group":
        async with asyncio.TaskGroup() as group:
            for index, plan in enumerate(rest[0]):
                group.create_task(_all(run, run.chat(f"part {index} of {name}"), plan))
    elif what == "timeout":
        try:
            async with asyncio.timeout(rest[0]):
                await _all(run, chat, rest[1])
        except TimeoutError:
            run.note(f"too late {name}")
    elif what == "cancel":
        task = asyncio.create_task(_all(run, run.chat(f"to be cancelled {name}"), rest[1]))
        await asyncio.sleep(rest[0])
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        run.note(f"went on {name}")
    elif what == "first":
        parts = [_all(run, run.chat(f"racer {i} of {name}"), plan) for i, plan in enumerate(rest[0])]
        tasks = [asyncio.create_task(part) for part in parts]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    elif what == "leave":  # nobody waits for it
        task = asyncio.ensure_future(_all(run, run.chat(f"left alone {name}"), rest[0]))
        task.add_done_callback(lambda task: task.cancelled() or task.exception())


def plans(depth: int = 2) -> st.SearchStrategy[Plan]:
    simple = st.one_of(
        st.tuples(st.just("ask"), st.sampled_from(["why", "when", "never"])),
        st.tuples(st.just("ask"), st.sampled_from(["why", "when"])),
        st.tuples(st.just("act"), st.integers(0, len(CALLS) - 1)),
        st.tuples(st.just("step")),
        st.tuples(st.just("draw")),
    )
    if not depth:
        return st.lists(simple, min_size=1, max_size=2)
    inner = plans(depth - 1)
    several = st.lists(inner, min_size=2, max_size=3)
    moment = st.sampled_from([0.0, 0.001, 0.003, 0.006])
    nested = st.one_of(
        st.tuples(st.sampled_from(["together", "group", "first"]), several),
        st.tuples(st.sampled_from(["timeout", "cancel"]), moment, inner),
        st.tuples(st.sampled_from(["spawn", "leave"]), inner),
    )
    return st.lists(st.one_of(simple, nested, nested), min_size=1, max_size=3)


def named(plan: Plan) -> Plan:
    """The plan with a name for each step, since of two tasks that issue the same at the same moment nothing tells which
    is which; with no two timers alike, since of those nothing tells which fires first; and with every endless wait
    inside a timeout, since a run must end."""
    names = itertools.count(1)

    def steps(plan: Plan) -> Plan:
        return [step(*it) for it in plan]

    def step(what: str, *rest: Any) -> Any:
        name = str(next(names))
        if what in ("timeout", "cancel"):
            return [name, what, rest[0] / 10 + 0.003 * int(name), steps(rest[1])]
        if what in ("together", "group", "first"):
            return [name, what, [steps(plan) for plan in rest[0]]]
        return [name, what, *(steps(it) if isinstance(it, list) else it for it in rest)]

    return [[str(next(names)), "timeout", 0.1, [it]] if "never" in str(it) else it for it in steps(plan)]


def check(runner: Runner, run: Run) -> None:
    faults = runner.store.verify()
    assert not faults, faults[:3]
    assert runner.replay(run).calls == len(run.calls)


def descendants(runner: Runner, run: Run) -> list[Run]:
    children = [Run(runner.store, call.child) for call in run.calls if call.kind == "spawn" and call.child]
    return [it for child in children for it in (child, *descendants(runner, child))]


@settings(
    max_examples=PLANS,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(plan=plans(), model=st.sampled_from([True, True, True, False]), world=st.booleans())
def test_runs_that_give_up_replay_and_fork_at_every_call(plan: Plan, model: bool, world: bool) -> None:
    counter = Slow("counter(steps=1000)", 0.001) if world else None
    runner = Runner(wanderer, counter, Late() if model else None, config={"plan": named(plan)}, tools=[look, count])
    run = runner.collect(counter.sample(1) if counter else [Task("t", "")], n=1).runs[0]
    check(runner, run)
    for child in descendants(runner, run):
        check(Runner.of(runner.store, child, tools=[look, count]), child)
    for call in run.calls[1:]:
        changes: list[dict[str, Any]] = [{}]
        if call.kind == "ask":
            changes.append({"reply": "changed"})
        if call.kind == "act":
            changes.append({"result": "changed"})
        for change in changes:
            fork = runner.fork(run, call.seq, **change)[0]
            assert fork.parent is not None
            assert fork.parent.seq == call.seq
            if call.kind == "ask" and change and not fork.calls[call.seq].error:  # it may be given up before
                assert fork.reply(call.seq).message.text == "changed"
            check(runner, fork)


def test_what_is_given_up_has_its_place_in_the_record() -> None:
    async def agent(run: LiveRun) -> None:
        chat = run.chat()
        try:
            async with asyncio.timeout(0.01):
                await chat.ask("never")
        except TimeoutError:
            run.note("gave up")
        await chat.ask("again")

    runner = Runner(agent, None, Late())
    run = runner.collect([Task("t", "")], n=1).runs[0]
    asked, note, again = run.calls[1:4]
    assert (asked.error, asked.node_out, note.action, again.error) == (GIVEN_UP, b"", "gave up", "")
    assert asked.done < note.done
    check(runner, run)


def test_an_hour_s_timeout_replays_in_a_moment() -> None:
    pace = {"now": 0.01}

    async def agent(run: LiveRun) -> None:
        try:
            async with asyncio.timeout(pace["now"]):
                await run.chat().ask("never")
        except TimeoutError:
            await asyncio.sleep(pace["now"])
            run.note("gave up")

    runner = Runner(agent, None, Late())
    run = runner.collect([Task("t", "")], n=1).runs[0]
    pace["now"] = 3600.0
    check(runner, run)


def test_a_child_run_that_is_given_up_ends_cancelled_and_leaves_nothing_open() -> None:
    async def waiting(run: LiveRun) -> None:
        child = run.spawn(waiting, "wait") if run.task.id == "t" else run.chat().ask("never")
        await child

    async def agent(run: LiveRun) -> None:
        try:
            async with asyncio.timeout(0.05):
                await run.spawn(waiting, "wait")
        except TimeoutError:
            run.note("gave up")

    runner = Runner(agent, None, Late())
    run = runner.collect([Task("t", "")], n=1).runs[0]
    (child,) = descendants(runner, run)
    assert child.stop == "cancelled"
    assert [c.error for c in child.calls if c.kind == "ask"] == [GIVEN_UP]
    assert runner.store.find("stop=open") == []
    check(runner, run)
    Runner(waiting, None, None, runner.store).replay(child)


def test_a_cancel_that_comes_with_the_answer_does_not_lose_it() -> None:
    """Both in one pass of the loop: the agent has what is recorded, and is cancelled where it waits next."""

    async def agent(run: LiveRun) -> None:
        async def talk() -> None:
            chat = run.chat()
            run.note("heard", text=(await chat.ask("why")).text)
            await chat.ask("never")

        task = asyncio.create_task(talk())
        answered = asyncio.get_running_loop().create_future()
        run.chat()
        other = asyncio.create_task(run.chat("beside").ask("why"))
        other.add_done_callback(lambda _: (task.cancel(), answered.set_result(None)))
        await answered
        with suppress(asyncio.CancelledError):
            await task

    class AtOnce(Late):
        async def complete(self, request: Request) -> Completion:
            if "never" in request.path[-1].message.text:
                await asyncio.sleep(LONG)
            return Completion(Message("assistant", "so"))

    for seed in range(10):
        runner = Runner(agent, None, AtOnce())
        run = runner.collect([Task("t", "")], n=1, seed=seed).runs[0]
        heard = [c for c in run.calls if c.kind == "note"]
        answered = [c for c in run.calls if c.kind == "ask" and not c.error]
        assert len(heard) == len(answered) - 1, "what was answered beside the other was also heard"
        check(runner, run)


def test_a_limit_ends_the_run_whatever_the_agent_makes_of_it() -> None:
    async def agent(run: LiveRun) -> None:
        await asyncio.gather(*(run.act(CALLS[2]) for _ in range(4)), return_exceptions=True)

    runner = Runner(agent, None, None, tools=[look, count], limits=Limits(steps=2))
    run = runner.collect([Task("t", "")], n=1).runs[0]
    assert [c.kind for c in run.calls] == ["open", "act", "act", "end"]
    assert run.stop == "step_limit"
    check(runner, run)


def test_two_results_that_come_together_are_handed_over_one_after_the_other() -> None:
    """Each wakes a task of several turns; whichever is the shorter, the first result's task goes first."""
    seen: list[str] = []

    async def after(name: str, ask: Any, turns: int) -> None:
        await ask
        for _ in range(turns):
            await asyncio.sleep(0)
        seen.append(name)

    async def agent(run: LiveRun) -> None:
        asks = [run.chat(name).ask("why") for name in ("long", "short")]
        await asyncio.gather(after("long", asks[0], 10), after("short", asks[1], 0))

    class AtOnce(Late):
        async def complete(self, request: Request) -> Completion:
            return Completion(Message("assistant", "so"))

    runner = Runner(agent, None, AtOnce())
    run = runner.collect([Task("t", "")], n=1).runs[0]
    assert seen == ["long", "short"]
    check(runner, run)
    assert seen == ["long", "short"] * 2


def test_what_is_given_up_as_the_run_ends_is_cut_off() -> None:
    """Of two asks that a timeout cancels, the agent hears of the first, and ends before it hears of the other."""

    async def agent(run: LiveRun) -> None:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.gather(*(run.chat(str(i)).ask("never") for i in range(2)))
        except TimeoutError:
            run.note("gave up")

    runner = Runner(agent, None, Late())
    run = runner.collect([Task("t", "")], n=1).runs[0]
    assert [c.error for c in run.calls] == ["", GIVEN_UP, CUT_OFF, "", ""]
    check(runner, run)


def test_an_agent_that_cancels_what_had_answered_has_diverged() -> None:
    hasty = [False]

    async def agent(run: LiveRun) -> None:
        tasks = [asyncio.create_task(run.chat(name).ask("why")) for name in ("one", "other")]
        await asyncio.sleep(0)
        if hasty[0]:
            tasks[0].cancel()
        await asyncio.wait(tasks)

    runner = Runner(agent, None, Late())
    run = runner.collect([Task("t", "")], n=1).runs[0]
    hasty[0] = True
    with pytest.raises(
        ReplayDiverged, match=r"Call 1 of run .* \(ask\) was recorded to answer, the agent now cancels it"
    ):
        runner.replay(run)


def test_two_timers_fire_in_the_order_in_which_they_were_due() -> None:
    """How long the agent worked before it set the first is recorded nowhere: its clock stood still for that while."""
    order: list[str] = []

    async def agent(run: LiveRun) -> None:
        async def later(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            order.append(name)
            run.note(name)

        time.sleep(0.012)
        first = asyncio.create_task(later("first", 0.030))
        await asyncio.sleep(0)
        run.note("at work")
        second = asyncio.create_task(later("second", 0.024))
        await asyncio.wait([first, second])

    runner = Runner(agent, None, Late())
    run = runner.collect([Task("t", "")], n=1).runs[0]
    check(runner, run)
    assert order == ["first", "second"] * 2


def test_work_between_two_effects_is_not_taken_from_a_timeout() -> None:
    async def agent(run: LiveRun) -> None:
        time.sleep(0.4)
        began = time.monotonic()
        clock = asyncio.get_running_loop().time()
        with suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                await run.chat().ask("never")
        run.note("waited", wall=time.monotonic() - began, clock=asyncio.get_running_loop().time() - clock)

    runner = Runner(agent, None, Late())
    run = runner.collect([Task("t", "")], n=1).runs[0]
    waited = json.loads(run.calls[-2].text)
    assert waited["wall"] > 0.29
    assert waited["clock"] == pytest.approx(0.3, abs=0.1)


def test_a_result_that_comes_as_the_agent_returns_is_in_the_record_or_cut_off() -> None:
    """The model answers after some turns of the loop, the agent returns after others."""
    turns = [0]

    class Soon(Late):
        async def complete(self, request: Request) -> Completion:
            for _ in range(20):
                await asyncio.sleep(0)
            return Completion(Message("assistant", "so"))

    async def agent(run: LiveRun) -> None:
        asking = asyncio.create_task(run.chat().ask("why"))
        for _ in range(turns[0]):
            await asyncio.sleep(0)
        asking.add_done_callback(lambda task: task.cancelled() or task.exception())

    runner, errors = Runner(agent, None, Soon()), set[str]()
    for turns[0] in range(1, 50):
        run = runner.collect([Task("t", "")], n=1).runs[0]
        errors |= {call.error for call in run.calls if call.kind == "ask"}
        check(runner, run)
    assert errors == {"", CUT_OFF}
