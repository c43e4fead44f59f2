"""Replay touches neither model nor world, gives equal keys, and names the first thing that differs."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from clew.core.errors import ReplayDiverged
from clew.core.values import Message, Observation, ToolCall
from clew.harness import LiveRun, Runner, tool
from clew.harness.agents import player, tool_user
from clew.models.fakes import Scripted
from clew.store import Run, open_store
from clew.worlds.household import Household

from .conftest import Jittery, Wanderer, racer


class Closed:
    """A taskset that may not be opened: proof that replay leaves the world alone."""

    def __init__(self, inner: Household) -> None:
        self.inner, self.ref = inner, inner.ref

    def find(self, task_id: str):  # type: ignore[no-untyped-def]
        return self.inner.find(task_id)

    def open(self, task):  # type: ignore[no-untyped-def]
        raise AssertionError("replay opened the world")

    def sample(self, n: int, seed: int = 0, split: str = "train"):  # type: ignore[no-untyped-def]
        return self.inner.sample(n, seed, split)

    async def judge(self, task, run, world):  # type: ignore[no-untyped-def]
        raise AssertionError("replay judged")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_household_replays_without_model_or_world(
    kind: str, tmp_path: Path, house: Household, wanderer: Wanderer
) -> None:
    store = open_store(":memory:" if kind == "memory" else tmp_path / "runs.db")
    groups = Runner(player, house, wanderer, store).collect(house.sample(2), n=3)
    before = wanderer.calls
    follower = Runner(player, Closed(house), wanderer, store)
    for run in groups.runs:
        assert follower.replay(run).calls == len(run.calls)
    assert wanderer.calls == before
    assert store.verify() == []


def test_racing_conversations_replay_in_their_recorded_order() -> None:
    model = Jittery()
    runner = Runner(racer, None, model)
    for attempt in range(30):
        run = runner.fork(seed_run(runner, attempt), at=1, seed=attempt)[0]
        calls = model.calls
        runner.replay(run)
        assert model.calls == calls
    assert runner.store.verify() == []


def seed_run(runner: Runner, seed: int) -> Run:
    from clew.core.values import Task

    return runner.collect([Task("race", "")], n=1, seed=seed).runs[0]


def test_parallel_tool_calls_answered_out_of_order() -> None:
    """Three acts under way at once, the last issued answers first: recorded order is the order of answers."""
    ended: list[str] = []

    async def slow(name: str, seconds: float) -> str:
        """Waits."""
        await asyncio.sleep(seconds)
        ended.append(name)
        return f"{name} done"

    async def agent(run: LiveRun) -> None:
        chat = run.chat(tools=run.tools)
        reply = await chat.ask("go")
        answers: list[tuple[str, Observation]] = []

        async def one(call: ToolCall) -> None:
            answer = await run.act(call)
            answers.append((call.id, answer))

        await asyncio.gather(*(one(call) for call in reply.calls))
        for _, answer in answers:
            chat.say("tool", answer)
        await chat.ask()

    calls = tuple(
        ToolCall(f"c{i}", "slow", f'{{"name": "{i}", "seconds": {s}}}') for i, s in enumerate((0.06, 0.03, 0.0))
    )
    model = Scripted([Message("assistant", "", calls=calls), "all done"])
    runner = Runner(agent, None, model, tools=[tool(slow)])
    run = seed_run(runner, 0)
    assert ended == ["2", "1", "0"]
    acts = [c for c in run.calls if c.kind == "act"]
    assert [c.seq for c in acts] == [2, 3, 4]
    assert sorted(acts, key=lambda c: c.done) == acts[::-1], "answers came in reverse order of issue"
    said = [n.message.text for n in run.conversation() if n.message.role == "tool"]
    assert said == ["2 done", "1 done", "0 done"]
    ended.clear()
    asked = model.calls
    assert runner.replay(run).calls == len(run.calls)
    assert ended == []
    assert model.calls == asked
    assert runner.store.verify() == []


def test_a_changed_agent_is_named_at_its_first_other_request(house: Household, wanderer: Wanderer) -> None:
    run = Runner(player, house, wanderer, store := open_store(":memory:")).collect(house.sample(1), n=1).runs[0]

    async def other(live: LiveRun) -> None:
        chat = live.chat()
        while not live.done:
            reply = await chat.ask(live.view)
            await live.act(reply if live.step < 3 else "look")

    with pytest.raises(ReplayDiverged, match=r"Call 8 .* recorded as act .*asks for act 'look'") as caught:
        Runner(other, house, None, store).replay(run)
    assert caught.value.at == f"{run.id}@8"


def test_a_changed_context_is_told(house: Household, wanderer: Wanderer) -> None:
    run = Runner(player, house, wanderer, store := open_store(":memory:")).collect(house.sample(1), n=1).runs[0]

    async def polite(live: LiveRun) -> None:
        await live.chat("please").ask(live.view)

    async def cold(live: LiveRun) -> None:
        await live.chat(temperature=0.0).ask(live.view)

    with pytest.raises(ReplayDiverged, match=r"whose message 0 is user 'put .* where it is system 'please'"):
        Runner(polite, house, None, store).replay(run)
    with pytest.raises(ReplayDiverged, match="other sampling or tools"):
        Runner(cold, house, None, store).replay(run)


def test_an_agent_that_stops_early_or_goes_on_has_diverged(house: Household, wanderer: Wanderer) -> None:
    run = Runner(player, house, wanderer, store := open_store(":memory:")).collect(house.sample(1), n=1).runs[0]

    async def short(live: LiveRun) -> None:
        await live.act(await live.chat().ask(live.view))

    async def idle(live: LiveRun) -> None:
        await live.chat().ask(live.view)
        await asyncio.Event().wait()

    async def chatty(live: LiveRun) -> None:
        await player(live)
        live.note("one more thing")

    with pytest.raises(ReplayDiverged, match="goes on with ask"):
        Runner(short, house, None, store).replay(run)
    with pytest.raises(ReplayDiverged, match="issues nothing"):
        Runner(idle, house, None, store).replay(run)
    with pytest.raises(ReplayDiverged, match="was recorded as the end"):
        Runner(chatty, house, None, store).replay(run)


@pytest.mark.parametrize(
    ("statement", "call"),
    [
        ("UPDATE call SET text = 'you won' WHERE at = (SELECT min(at) FROM call) + 4", 4),
        ("UPDATE call SET reward = 1.0 WHERE at = (SELECT min(at) FROM call) + 6", 6),
        ("UPDATE call SET action = 'take key' WHERE at = (SELECT min(at) FROM call) + 2", 2),
        ("UPDATE call SET done = 99 WHERE at = (SELECT min(at) FROM call) + 4", 4),
    ],
)
def test_a_tampered_record_is_named(
    statement: str, call: int, tmp_path: Path, house: Household, wanderer: Wanderer
) -> None:
    path = tmp_path / "runs.db"
    store = open_store(path)
    run = Runner(player, house, wanderer, store).collect(house.sample(1), n=1).runs[0].id
    store.close()
    with sqlite3.connect(path) as db:
        assert db.execute(statement).rowcount == 1
    db.close()
    with pytest.raises(ReplayDiverged) as caught:
        Runner(player, house, None, path).replay(run)
    assert caught.value.at == f"{run}@{call}"


def test_limits_and_errors_replay_as_they_were() -> None:
    from clew.core.errors import ModelError
    from clew.core.values import Limits, StopReason, Task

    async def agent(run: LiveRun) -> None:
        chat = run.chat()
        for _ in range(5):
            try:
                await chat.ask("again")
            except ModelError:
                run.note("failed once")

    model = Scripted(["a", ModelError("no answer"), "b", "c", "d", "e"], by="call")
    runner = Runner(agent, None, model, limits=Limits(tokens=8))
    run = runner.collect([Task("t", "")], n=1).runs[0]
    assert run.stop is StopReason.TOKEN_LIMIT
    assert [c.action for c in run.calls if c.kind == "note"] == ["failed once"]
    runner.replay(run)


def test_draw_now_and_notes_replay(house: Household) -> None:
    from clew.core.values import Task

    seen: list[tuple[float, float]] = []

    async def agent(run: LiveRun) -> None:
        seen.append((await run.draw("coin"), await run.now()))
        run.note("kept", coin=seen[-1][0])

    runner = Runner(agent)
    run = runner.collect([Task("t", "")], n=1).runs[0]
    runner.replay(run)
    assert seen[0] == seen[1]
    assert 0 <= seen[0][0] < 1


def test_textworld_replays(tmp_path: Path) -> None:
    pytest.importorskip("textworld", reason="did not run: the extra [textworld] is not installed")
    from clew.core.registry import build

    games = build("tasksets", f"textworld(folder={str(tmp_path)!r})")
    model = Wanderer(("look", "inventory", "go north", "go south", "go east", "go west"))
    from clew.core.values import Limits

    runner = Runner(player, games, model, limits=Limits(steps=6))
    run = runner.collect(games.sample(1), n=1).runs[0]
    calls = model.calls
    assert runner.replay(run).calls == len(run.calls)
    assert model.calls == calls
    fork = runner.fork(run, at=run.at(step=3), reply="inventory")[0]
    assert fork.shared == run.at(step=3).seq
    runner.replay(fork)
    assert runner.store.verify() == []


def test_tool_user_in_the_shop_replays() -> None:
    from clew.worlds.toys import Shop

    shop = Shop()
    task = shop.sample(1)[0]
    calls = [Message("assistant", "", calls=(ToolCall("a", "basket", "{}"), ToolCall("b", "price", "{bad"),)),
             Message("assistant", "", calls=(ToolCall("c", "leave", "{}"),)), "bye"]  # fmt: skip
    runner = Runner(tool_user, shop, Scripted(calls))
    run = runner.collect([task], n=1).runs[0]
    acts = [c for c in run.calls if c.kind == "act"]
    assert [c.finish for c in acts] == ["tool"] * 3
    assert acts[1].text.startswith("error: the arguments are not JSON")
    runner.replay(run)
