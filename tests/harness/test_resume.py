"""A killed process loses no committed Call, does no lasting effect twice, and its runs go on from what is stored."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from benchmarks import kills
from clew.core.errors import CannotRestore, InDoubt, LeaseHeld
from clew.core.values import StopReason, Task
from clew.harness import LiveRun, Runner
from clew.harness.agents import player
from clew.models.fakes import Echo, Scripted
from clew.store import MemoryStore, Run, open_store
from clew.worlds.household import Household
from clew.worlds.toys import Notepad

from .conftest import Wanderer

KILLS = int(os.environ.get("CLEW_KILLS", "1"))


@pytest.mark.whole
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["collection", "driven_by_workers", "training"])
def test_kill_nine_at_random_moments(kind: str, tmp_path: Path) -> None:
    """A few kills here, some of them by ``make nightly``, two hundred by ``python benchmarks/kills.py``."""
    if kind == "training":
        pytest.importorskip("torch", reason="did not run: the extra [local] is not installed")
    counts = getattr(kills, kind)(tmp_path, KILLS, random.Random(4))
    assert counts["kills"] == KILLS
    assert counts["calls"] > 0


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, house: Household) -> None:
    whole = Runner(player, house, Wanderer(), ":memory:").collect(house.sample(1), n=1, seed=3).runs[0]

    class Dies(Wanderer):
        async def complete(self, request):  # type: ignore[no-untyped-def]
            if self.calls == 5:
                raise KeyboardInterrupt
            return await super().complete(request)

    with pytest.raises(KeyboardInterrupt):
        Runner(player, house, Dies(), tmp_path / "runs.db").collect(house.sample(1), n=1, seed=3, name="cut")
    store = open_store(tmp_path / "runs.db")
    cut = Run(store, store.run_ids()[0])
    assert cut.stop is None
    assert store.verify() == []
    done = Runner(player, house, Wanderer(), store).resume(cut)
    assert done.stop is whole.stop
    assert [c.key for c in done.calls] == [c.key for c in whole.calls]
    assert done.reward == whole.reward
    assert store.verify() == []


def test_a_replay_of_an_unfinished_run_asks_nobody_and_writes_nothing(tmp_path: Path, house: Household) -> None:
    class Dies(Wanderer):
        async def complete(self, request):  # type: ignore[no-untyped-def]
            if self.calls == 5:
                raise KeyboardInterrupt
            return await super().complete(request)

    with pytest.raises(KeyboardInterrupt):
        Runner(player, house, Dies(), tmp_path / "runs.db").collect(house.sample(1), n=1, seed=3)
    store = open_store(tmp_path / "runs.db")
    cut, again = Run(store, store.run_ids()[0]), Wanderer()
    before = store.calls(cut.id)
    assert before[-1].done == -1, "the last ask was sent and never answered"
    Runner(player, house, again, store).replay(cut)
    assert again.calls == 0
    assert store.calls(cut.id) == before
    assert Runner(player, house, Wanderer(), store).resume(cut).stop is not None


def test_collect_of_a_name_goes_on_where_it_stopped(tmp_path: Path, house: Household) -> None:
    model = Wanderer()
    runner = Runner(player, house, model, tmp_path / "runs.db")
    first = runner.collect(house.sample(2), n=2, name="again")
    calls = model.calls
    second = runner.collect(house.sample(2), n=2, name="again")
    assert [r.id for r in second.runs] == [r.id for r in first.runs]
    assert model.calls == calls
    other = runner.collect(house.sample(2), n=2, name="again", iteration=1)
    assert not {r.id for r in other.runs} & {r.id for r in first.runs}


def test_an_effect_in_doubt_stops_and_asks(tmp_path: Path) -> None:
    pad = Notepad(path=str(tmp_path / "pad.txt"))
    model = Scripted(["a", "b", "stop"])
    runner = Runner(player, pad, model, store := open_store(tmp_path / "runs.db"))
    whole = runner.collect(pad.sample(1), n=1).runs[0]
    act = next(c for c in whole.calls if c.kind == "act" and c.action == "b")
    row = whole.row._replace(id="cutcutcutcut", group="")
    store.put_run(row)
    for call in whole.calls[: act.seq]:
        store.put_call(row.id, call._replace(run=row.id))
    store.put_call(row.id, act._replace(run=row.id, done=-1, key=b"", text="", state=b""))
    store.commit()
    (tmp_path / "pad.txt").write_text((tmp_path / "pad.txt").read_text().splitlines()[0] + "\n")
    with pytest.raises(InDoubt, match="'b' was begun") as caught:
        runner.resume("cutcutcutcut")
    assert caught.value.at == f"cutcutcutcut@{act.seq}"
    assert "redo" in caught.value.remedy
    assert len((tmp_path / "pad.txt").read_text().splitlines()) == 1
    again = runner.resume("cutcutcutcut", in_doubt="redo")
    assert again.stop is StopReason.DONE
    assert len((tmp_path / "pad.txt").read_text().splitlines()) == 2


def test_the_very_first_act_can_be_in_doubt_too(tmp_path: Path) -> None:
    pad = Notepad(path=str(tmp_path / "pad.txt"))
    runner = Runner(player, pad, Scripted(["a", "stop"]), store := open_store(tmp_path / "runs.db"))
    whole = runner.collect(pad.sample(1), n=1).runs[0]
    row = whole.row._replace(id="cutcutcutcut", group="")
    store.put_run(row)
    for call in whole.calls[:2]:
        store.put_call(row.id, call._replace(run=row.id))
    store.put_call(row.id, whole.calls[2]._replace(run=row.id, done=-1, key=b"", text="", state=b""))
    store.commit()
    with pytest.raises(InDoubt):
        runner.resume("cutcutcutcut")
    assert runner.resume("cutcutcutcut", in_doubt="redo").stop is StopReason.DONE
    with pytest.raises(CannotRestore, match="no longer in the state"):
        runner.fork(whole, at=1)


def test_a_world_that_moved_on_is_not_resumed(tmp_path: Path) -> None:
    pad = Notepad(path=str(tmp_path / "pad.txt"))
    runner = Runner(player, pad, Scripted(["a", "b", "stop"]), store := open_store(":memory:"))
    whole = runner.collect(pad.sample(1), n=1).runs[0]
    row = whole.row._replace(id="cutcutcutcut", group="")
    store.put_run(row)
    for call in whole.calls[:4]:
        store.put_call(row.id, call._replace(run=row.id))
    with pytest.raises(CannotRestore, match="no longer in the state"):
        runner.resume("cutcutcutcut")


def test_a_run_is_resumed_by_one_process_only(tmp_path: Path, house: Household) -> None:
    runner = Runner(player, house, Wanderer(), store := open_store(tmp_path / "runs.db"))
    run = runner.collect(house.sample(1), n=1).runs[0]
    row = run.row._replace(id="cutcutcutcut", group="")
    store.put_run(row)
    for call in run.calls[:5]:
        store.put_call(row.id, call._replace(run=row.id))
    store.lease("cutcutcutcut", "somebody", 30)
    store.commit()
    with pytest.raises(LeaseHeld):
        runner.resume("cutcutcutcut")
    store.release("cutcutcutcut", "somebody")
    assert runner.resume("cutcutcutcut").stop is not None
    assert os.path.exists(tmp_path / "runs.db")


def test_a_run_that_ended_and_was_not_judged_is_judged_when_it_is_resumed(
    house: Household, wanderer: Wanderer, tmp_path: Path
) -> None:
    """A process may be killed between a run's last Call and its verdict."""
    runner = Runner(player, house, wanderer, tmp_path / "one.db")
    run = runner.collect(house.sample(1), n=1).runs[0]
    bare = Runner(player, house, wanderer, tmp_path / "two.db")
    bare.store.put_run(run.row)
    for call in run.calls:
        for tip in filter(None, (call.node_in, call.node_out)):
            bare.store.put_nodes(runner.store.thread(tip))
        bare.store.put_call(run.id, call)
    asked = wanderer.calls
    assert bare.resume(run.id).reward == run.reward is not None
    assert wanderer.calls == asked


def test_a_run_of_an_hour_keeps_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ask commits, and a commit renews what is held: nobody else may take the run over while it goes on."""
    now, tick, gone = time.time, time.monotonic, [0.0]
    monkeypatch.setattr(time, "time", lambda: now() + gone[0])
    monkeypatch.setattr(time, "monotonic", lambda: tick() + gone[0])
    store, held = MemoryStore(), []

    async def agent(run: LiveRun) -> None:
        for _ in range(4):
            gone[0] += 25
            await run.chat().ask("go on")
            held.append(store.leased() == [run.id])

    Runner(agent, None, Echo(), store).collect([Task("t", "")], n=1)
    assert held == [True] * 4
