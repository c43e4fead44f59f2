"""A world that asks a model while it performs an action: its answers are part of the act's record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from clew.core.errors import ReplayDiverged, WorldError
from clew.core.keys import state_key
from clew.core.protocols import Record, Restores, World
from clew.core.records import Request
from clew.core.values import Completion, Limits, Message, Observation, StopReason, Task, ToolCall, ToolSpec, Usage
from clew.harness import Runner
from clew.harness.agents import player
from clew.models.fakes import Scripted
from clew.store import Run
from clew.worlds.judging import reenact
from clew.worlds.world_asks import Asks


class Oracle:
    """A model that tells the world what happens, by the request's seed; counts what it is asked."""

    ref = "oracle"
    version = 3
    renderer = None

    def __init__(self) -> None:
        self.calls = 0

    async def complete(self, request: Request) -> Completion:
        self.calls += 1
        said = f"{request.path[-1].message.text} leads to room {request.seed % 1000}"
        return Completion(Message("assistant", said), usage=Usage(7, 5, 0), cost=0.5)


class Told:
    """A world whose next view is what a model says of the action; asks twice where the action is ``look``."""

    tools: Sequence[ToolSpec] = ()

    def __init__(self, asks: Asks, restores: Restores, steps: int) -> None:
        self.asks, self.restores, self.left, self.seen = asks, restores, steps, "a hall"

    @property
    def state_key(self) -> bytes:
        return state_key(f"{self.left} {self.seen}")

    def observe(self) -> Observation:
        return Observation(self.seen, None, self.left == 0)

    async def step(self, action: str | ToolCall) -> Observation:
        if self.left == 0:
            raise WorldError("over")
        self.seen = await self.asks.ask(str(action), "oracle")
        if action == "look":
            self.seen += " and " + await self.asks.ask([Message("user", "what else?")], "oracle", max_tokens=9)
        self.left -= 1
        return self.observe()

    def close(self) -> None:
        self.left = 0


class Snapped(Told):
    def snapshot(self) -> bytes:
        return f"{self.left}|{self.seen}".encode()

    def restore(self, snapshot: bytes) -> None:
        left, _, self.seen = snapshot.decode().partition("|")
        self.left = int(left)


class Rooms:
    """Tasks of a world that a model makes up."""

    def __init__(self, restores: Restores = "reenact") -> None:
        self.ref, self.restores = f"rooms({restores!r})", restores

    def sample(self, n: int, seed: int = 0, split: str = "train") -> list[Task]:
        return [Task(f"rooms-{i}", "go") for i in range(n)]

    def find(self, task_id: str) -> Task:
        return Task(task_id, "go")

    def open(self, task: Task, asks: Asks) -> World:
        return (Snapped if self.restores == "exact" else Told)(asks, self.restores, 4)

    async def judge(self, task: Task, run: Record, world: World | None) -> Mapping[str, float]:
        last = world if isinstance(world, Told) else await reenact(self, task, run)
        assert isinstance(last, Told)
        return {"reward": float(last.left == 0)}


def made(oracle: Oracle, restores: Restores = "reenact", store: object = ":memory:", **how: object) -> Runner:
    return Runner(player, Rooms(restores), Scripted(["east", "look", "west", "up"] * 9), store,
                  resolve_model={"oracle": oracle}.__getitem__, **how)  # fmt: skip


@pytest.mark.parametrize("restores", ["reenact", "exact"])
def test_what_a_world_asks_is_recorded_with_its_act_and_replayed_from_there(restores: Restores, tmp_path: Path) -> None:
    oracle = Oracle()
    runner = made(oracle, restores, tmp_path / "runs.db")
    run = runner.collect(runner.taskset.sample(1), n=1).runs[0]
    acts = [c for c in run.calls if c.kind == "act"]
    assert (run.stop, run.reward, oracle.calls) == (StopReason.DONE, 1.0, 5)
    assert [len(c.inner) for c in acts] == [1, 2, 1, 1]
    assert acts[1].inner[0].model == "oracle"
    assert " and ".join(one.text for one in acts[1].inner) == acts[1].text
    assert (acts[1].usage, acts[1].cost, run.cost) == (Usage(14, 10, 0), 1.0, 2.5)
    runner.replay(run)
    assert runner.judge([run])[0].value == 1.0, "a world taken through the record again is told what it was told"
    assert oracle.calls == 5, "neither touches the model"
    assert runner.store.verify() == []


@pytest.mark.parametrize("restores", ["reenact", "exact"])
def test_forks_of_it_ask_only_from_their_place_on(restores: Restores) -> None:
    oracle = Oracle()
    runner = made(oracle, restores)
    run = runner.collect(runner.taskset.sample(1), n=1).runs[0]
    same = runner.fork(run, at=run.at(step=2), seed="same")[0]
    assert oracle.calls == 5 + 2
    assert [c.text for c in same.calls if c.kind == "act"] == [c.text for c in run.calls if c.kind == "act"]
    fresh = runner.fork(run, at=run.at(step=1), seed=5)[0]
    rooms, others = ([c.text for c in each.calls if c.kind == "act"] for each in (run, fresh))
    assert rooms[0] == others[0]
    assert rooms[1] != others[1]
    runner.replay(fresh)
    assert runner.store.verify() == []


def test_a_world_that_now_asks_more_has_diverged(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = made(Oracle())
    run = runner.collect(runner.taskset.sample(1), n=1).runs[0]
    step = Told.step

    async def curious(self: Told, action: str | ToolCall) -> Observation:
        await self.asks.ask("one thing more", "oracle")
        return await step(self, action)

    monkeypatch.setattr(Told, "step", curious)
    with pytest.raises(ReplayDiverged, match="asks a model more"):
        runner.fork(run, at=run.at(step=2))


def test_its_tokens_and_dollars_count_towards_the_limits_and_its_failures_are_the_acts() -> None:
    class Broken(Oracle):
        async def complete(self, request: Request) -> Completion:
            raise OSError("no connection")

    runner = made(Oracle(), limits=Limits(cost=1.2))
    run: Run = runner.collect(runner.taskset.sample(1), n=1).runs[0]
    assert run.stop is StopReason.COST_LIMIT
    assert run.cost == 1.5
    run = made(Broken()).collect(Rooms().sample(1), n=1).runs[0]
    assert run.stop is StopReason.MODEL_ERROR
    assert next(c.error for c in run.calls if c.kind == "act") == "ModelError: oracle: OSError: no connection"
