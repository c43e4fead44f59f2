"""Effects that fail on their way are recorded as failed: no gap in the chain, and the run replays."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest

from clew.core.errors import BadInput, StoreFull, WorldError
from clew.core.protocols import Done
from clew.core.records import Request
from clew.core.values import Completion, Message, StopReason, Task
from clew.harness import LiveRun, Runner
from clew.harness.agents import chatter
from clew.models.fakes import Scripted
from clew.store import MemoryStore, Run
from clew.worlds.toys import Counter


def test_an_ask_without_a_model_is_recorded_and_replays() -> None:
    async def agent(run: LiveRun) -> None:
        for ask in (lambda chat: chat.ask("hello"), lambda chat: chat.sample(2)):
            chat = run.chat("you are tested")
            with pytest.raises(BadInput, match="no model"):
                await ask(chat)
        run.note("nobody there")

    runner = Runner(agent)
    run = runner.collect([Task("t", "")], n=1).runs[0]
    assert [(c.kind, c.error[:8]) for c in run.calls[1:3]] == [("ask", "BadInput"), ("ask", "BadInput")]
    assert run.stop is StopReason.RETURNED
    assert runner.store.verify() == []
    assert runner.replay(run).calls == 5


@pytest.mark.parametrize("reply", ["given", Message("assistant", "given"), {"role": "assistant", "text": "given"}])
def test_a_reply_that_is_given_needs_no_model(reply: Any) -> None:
    made = Runner(chatter, None, Scripted(["sampled"]))
    run = made.collect([Task("t", "hello")], n=1).runs[0]
    runner = Runner(chatter, None, None, made.store)
    fork = runner.fork(run, 1, reply=reply)[0]
    assert fork.reply(1).message.text == "given"
    assert fork.stop is StopReason.RETURNED
    runner.replay(fork)
    unasked = runner.fork(run, 1)[0]
    assert unasked.stop is StopReason.AGENT_ERROR
    runner.replay(unasked)
    ids = runner.fork(run, 1, reply=[1, 2])[0]
    assert "token ids are given" in ids.calls[1].error
    runner.replay(ids)
    assert runner.store.verify() == []


class Shut(Counter):
    """A world that fails where ``at`` says: as it is opened, when its state is asked for, or as it acts."""

    at = "open"

    def open(self, task: Task) -> Any:
        if self.at == "open":
            raise ValueError("no such place")
        world = super().open(task)
        if self.at == "snapshot":
            world.snapshot = self._fail  # type: ignore[attr-defined]
        if self.at == "step":
            world.step = lambda action: self._fail()  # type: ignore[method-assign]
        return world

    def _fail(self) -> Any:
        raise ValueError("it broke")


@pytest.mark.parametrize("at", ["open", "snapshot", "step"])
def test_a_world_that_fails_leaves_no_gap(at: str) -> None:
    async def agent(run: LiveRun) -> None:
        try:
            await run.act("up")
        except WorldError:
            run.note("it broke")

    shut = Shut()
    shut.at = at
    runner = Runner(agent, shut)
    run = runner.collect(shut.sample(1), n=1).runs[0]
    assert any("ValueError" in c.error for c in run.calls)
    assert run.stop is (StopReason.RETURNED if at == "step" else StopReason.WORLD_ERROR)
    assert runner.store.verify() == []
    assert runner.replay(run).calls == len(run.calls)


def test_a_fork_after_an_act_that_failed_passes_it_over() -> None:
    class Picky(Counter):
        def open(self, task: Task) -> Any:
            world = super().open(task)
            step = world.step

            def picky(action: Any) -> Any:
                if action == "sideways":
                    raise WorldError("there is no sideways")
                return step(action)

            world.step = picky  # type: ignore[method-assign]
            return world

    async def agent(run: LiveRun) -> None:
        for action in ("up", "sideways", "up", "stop"):
            try:
                await run.act(action)
            except WorldError:
                run.note("not so")

    picky = Picky(restores="reenact")
    runner = Runner(agent, picky)
    run = runner.collect(picky.sample(1), n=1).runs[0]
    fork = runner.fork(run, run.calls[-2].seq)[0]
    assert fork.calls[-2].text == run.calls[-2].text == "count 2"
    assert fork.reward == run.reward
    runner.replay(fork)
    assert runner.store.verify() == []


def test_a_recorded_model_that_cannot_be_built_stops_only_what_asks_it() -> None:
    made = Runner("clew.harness.agents:chatter", None, Scripted(by="call", replies=["hello"]))
    run = made.collect([Task("t", "hi")], n=1).runs[0]
    row = run.row._replace(id="unbuildable", model="scripted")
    made.store.put_run(row)
    for call in run.calls:
        made.store.put_call(row.id, call._replace(run=row.id))
    made.store.commit()
    runner = Runner.of(made.store, "unbuildable")
    assert runner.model is None
    assert runner.replay("unbuildable").calls == 3
    assert runner.fork("unbuildable", 1, reply="given")[0].stop is StopReason.RETURNED
    failed = runner.fork("unbuildable", 1)[0]
    assert "this run has no model: model 'scripted'" in failed.calls[1].error
    assert made.store.verify() == []


class Full(MemoryStore):
    """Takes no commit any more once a run has ended."""

    ended = False

    def release(self, run: str, owner: str) -> None:
        super().release(run, owner)
        self.ended = True

    def commit(self) -> None:
        if self.ended:
            raise StoreFull("no room is left")
        super().commit()


def test_a_store_that_fills_up_as_a_run_ends_says_so() -> None:
    late: list[bool] = []

    async def collect() -> None:
        limit = asyncio.timeout(20)
        try:
            async with limit:
                async for _ in Runner(chatter, None, Scripted({"": "so"}), Full()).stream([Task("t", "hello")], 1):
                    pass
        finally:
            late.append(limit.expired())

    with pytest.raises(StoreFull, match="no room"):
        asyncio.run(collect())
    assert late == [False], "the run waited for a commit that would never come"


def test_what_a_model_still_does_is_cancelled_when_a_collection_is_left() -> None:
    ended: list[str] = []

    class Slow(Scripted):
        async def complete(self, request: Request) -> Completion:
            if request.path[-1].message.text == "slow":
                try:
                    await asyncio.sleep(30)
                finally:
                    ended.append("cancelled")
            return Completion(Message("assistant", "so"))

    async def agent(run: LiveRun) -> None:
        await run.chat().ask(run.task.id)

    async def leave() -> list[str]:
        runner = Runner(agent, None, Slow({"": "so"}))
        async with aclosing(runner.stream([Task("quick", ""), Task("slow", "")], 1)) as groups:
            async for group in groups:
                assert [run.row.task_id for run in group] == ["quick"]
                break
        return list(ended)

    assert asyncio.run(leave()) == ["cancelled"]


def test_an_engine_that_takes_no_request_ends_the_runs_that_asked_it() -> None:
    class Broken(Scripted):
        def submit(self, requests: Sequence[Request], done: Done) -> None:
            raise MemoryError("the cache does not fit")

        def seat(self, change: int) -> None: ...
        def release(self, run: str) -> None: ...

    async def collect() -> list[Run]:
        runner = Runner(chatter, None, Broken({"": "so"}))
        async with asyncio.timeout(20):
            return [run async for group in runner.stream([Task("t", "hello")], 2) for run in group]

    runs = asyncio.run(collect())
    assert [run.stop for run in runs] == [StopReason.MODEL_ERROR] * 2
    assert "the cache does not fit" in runs[0].calls[-1].error


def test_an_engine_of_another_thread_gives_each_run_its_own_answer() -> None:
    class Threaded(Scripted):
        def submit(self, requests: Sequence[Request], done: Done) -> None:
            said = [Completion(Message("assistant", f"to {it.path[-1].message.text}")) for it in requests]
            threading.Thread(target=lambda: [done([pair]) for pair in reversed(list(enumerate(said)))]).start()

        def seat(self, change: int) -> None: ...
        def release(self, run: str) -> None: ...

    async def agent(run: LiveRun) -> None:
        run.note((await run.chat().ask(run.task.id)).text)

    async def collect() -> list[Run]:
        runner = Runner(agent, None, Threaded({"": ""}))
        async with asyncio.timeout(20):
            tasks = [Task(name, "") for name in ("a", "b", "c")]
            return [run async for group in runner.stream(tasks, 1) for run in group]

    told = {run.row.task_id: [c.action for c in run.calls if c.kind == "note"] for run in asyncio.run(collect())}
    assert told == {name: [f"to {name}"] for name in ("a", "b", "c")}
