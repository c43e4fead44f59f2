"""Runs driven by worker processes: the same records as in one process, whoever is killed meanwhile."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="did not run: the extra [local] is not installed")

import clew.credit
from clew.core.errors import BadInput, InDoubt, StoreError
from clew.core.registry import build
from clew.fit.trainer import Trainer
from clew.harness import LiveRun, Runner
from clew.harness.agents import player
from clew.harness.fork.continuations import Continuations, Start
from clew.harness.trees import grow
from clew.harness.workers.pool import Workers
from clew.harness.workers.processes import local_workers
from clew.harness.workers.recipe import same_versions, versions
from clew.models.fakes import Scripted
from clew.models.local import Local, small
from clew.store import Run, open_store
from clew.train.loop import Plan, Training
from clew.worlds.toys import Notepad

LENIENT = f"{Path(__file__).parent / 'lenient.py'}:Lenient"
REMEMBERER = LENIENT.replace("Lenient", "rememberer")
KILLS = int(os.environ.get("CLEW_KILLS", "1"))


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with local_workers(2) as two:
        yield two


@pytest.fixture(scope="module")
def taskset() -> Any:
    return build("tasksets", LENIENT)


def tiny(taskset: Any) -> Local:
    """A model that has learnt nothing, whose numbers do not hang on what is computed beside."""
    words = taskset.vocabulary()
    return small(words, d=16, layers=1, heads=2, kv_heads=1, context=256, seed=3, ref="tiny", steady=True)


def runner(taskset: Any, model: Local, store: str | Path = ":memory:", **more: Any) -> Runner:
    return Runner(player, taskset, model, store, sampling={"max_tokens": 3}, **more)


def told(run: Run) -> list[tuple[Any, ...]]:
    """All that must be the same bits. How much of a prompt was cached hangs on who drove what before."""
    return [
        (
            *(call.key, call.seed, call.after, call.done, call.node_in, call.node_out, call.text, call.snapshot),
            *(call.usage.prompt, call.usage.completion),
            *(None if numbers is None else numbers.tobytes() for numbers in (call.logprobs, call.entropies)),
        )
        for call in run.calls
    ]


def same(ours: Any, theirs: Any) -> None:
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        assert told(one) == told(other)
        assert one.reward == other.reward is not None


@pytest.mark.whole
def test_groups_forks_trees_and_continuations_are_those_of_one_process(taskset: Any, workers: Workers) -> None:
    model, seen = tiny(taskset), list[str]()
    alone, dealt = runner(taskset, model), runner(taskset, model, executor=workers)
    tasks = taskset.sample(3)
    mine = alone.collect(tasks, n=4, seed=5)
    theirs = dealt.collect(tasks, n=4, seed=5, on_run=lambda run: seen.append(run.id))
    same(mine.runs, theirs.runs)
    assert sorted(seen) == sorted(run.id for run in theirs.runs)
    act = next(call.seq for call in mine.runs[0].calls if call.kind == "act")
    for at, change in ((3, {}), (act, {"result": "nothing is here"})):
        same(*(r.fork(g.runs[0], at, n=3, seed=9, **change) for r, g in ((alone, mine), (dealt, theirs))))
    growth = grow.Growth(leaves=6, seeds=2, places=2, together=2)
    same(*(grow.collect(r, tasks[:2], growth, seed=1).runs for r in (alone, dealt)))
    ask = next(call.seq for call in mine.runs[0].calls if call.kind == "ask")
    found = [
        Continuations(r, seed=2).sample("s", [Start(g.runs[0].id, ask)], 4).popitem()[1].tokens.tolist()
        for r, g in ((alone, mine), (dealt, theirs))
    ]
    assert [len(tokens) for tokens in found] == [4, 4]
    assert dealt.store.verify() == []
    assert not dealt.store.leased()


def test_a_training_of_ten_iterations_ends_in_equal_weights(taskset: Any, workers: Workers) -> None:
    def trained(**more: Any) -> dict[str, Any]:
        model = tiny(taskset)
        plan = Plan(name="t", iterations=10, tasks=2, rollouts=3)
        training = Training(runner(taskset, model, **more), Trainer(model, lr=1e-2), clew.credit.g2po, plan)
        versions = [{c.setup.version for r in it.groups.runs for c in r.calls if c.setup} for it in training.run()]
        assert versions[0] == {0}
        assert max(versions[-1]) == model.version - 1 >= 5
        return dict(model.module.named_parameters())

    mine, theirs = trained(), trained(executor=workers)
    assert all(bool((p == theirs[name]).all()) for name, p in mine.items())


def killed(pid: int) -> None:
    with suppress(ProcessLookupError):  # the one that was killed last time, if nothing has needed it since
        os.kill(pid, signal.SIGKILL)


def test_with_a_lag_of_one_the_runs_come_from_weights_one_iteration_old(taskset: Any, workers: Workers) -> None:
    def trained() -> tuple[list[float], list[set[int]], dict[str, Any]]:
        model = tiny(taskset)
        trainer, plan = Trainer(model, lr=1e-2), Plan(name="t", iterations=5, tasks=2, rollouts=3, lag=1)
        training = Training(runner(taskset, model, executor=workers), trainer, clew.credit.g2po, plan)
        done = list(training.run())
        asked = [{c.setup.version for r in it.groups.runs for c in r.calls if c.setup} for it in done]
        assert [it.step is not None for it in done] == [True] * 5
        return [it.lag for it in done], asked, dict(model.module.named_parameters())

    lags, asked, mine = trained()
    assert lags == [0, 1, 1, 1, 1]
    assert asked == [{0}, {0}, {1}, {2}, {3}]
    again = trained()
    assert again[:2] == (lags, asked)
    assert all(bool((p == again[2][name]).all()) for name, p in mine.items())
    plain = Training(runner(taskset, tiny(taskset)), Trainer(tiny(taskset)), clew.credit.g2po, Plan(name="t", lag=1))
    with pytest.raises(BadInput, match="drives its runs while the weights of this process change"):
        next(plain.run())
    with pytest.raises(BadInput, match="lag=1 with dynamic=2"):
        Plan(name="t", lag=1, dynamic=2)


@pytest.mark.timeout(120 + 30 * KILLS)
def test_a_killed_worker_loses_and_doubles_nothing(taskset: Any, tmp_path: Path) -> None:
    """Some kills here, more with CLEW_KILLS; each at a random moment of a collection."""
    model, dice = tiny(taskset), random.Random(7)
    tasks, slow = taskset.sample(4), build("tasksets", f"slow(of={LENIENT!r}, seconds=0.02)")
    whole = runner(slow, model).collect(tasks, n=4, seed=5)
    with local_workers(2) as two:
        kept = runner(slow, model, tmp_path / "runs.db", executor=two)
        kept.collect(tasks[:1], n=1, seed=5)
        for turn in range(KILLS):
            victim = two.links[dice.randrange(2)].pid
            timer = threading.Timer(dice.random() * 0.25, killed, (victim,))
            timer.start()
            found = kept.collect(tasks, n=4, seed=5, name=f"c{turn}")
            timer.join()
            same(whole.runs, found.runs)
    store = kept.store
    assert store.verify() == []
    assert len(store.run_ids()) == 1 + 16 * KILLS
    assert {len(store.annotations([run], "reward", "run")) for run in store.run_ids()} == {1}


def test_effects_that_cannot_be_undone_happen_once(tmp_path: Path) -> None:
    """The file is written outside: a worker that is killed between an effect and its result leaves the run in doubt."""
    pad = Notepad(path=str(tmp_path / "pad.txt"), seconds=0.05, lines=6)
    model = Scripted([f"line {i}" for i in range(6)] + ["stop"])
    with local_workers(1) as one:
        kept = Runner(player, pad, model, tmp_path / "runs.db", executor=one)

        def kill() -> None:
            while not (tmp_path / "pad.txt").exists():
                time.sleep(0.005)
            time.sleep(0.01)
            os.kill(one.links[0].pid, signal.SIGKILL)

        threading.Thread(target=kill).start()
        with pytest.raises(InDoubt, match="was begun and its result never arrived"):
            kept.collect(pad.sample(1), n=1, name="c")
        lines = (tmp_path / "pad.txt").read_text().splitlines()
        assert len(lines) == len(set(lines)) == 1
        run = kept.store.runs()[0]
        assert [call.done for call in run.calls if call.kind == "act"] == [-1]
    assert kept.store.verify() == []


def test_what_no_worker_can_do_is_said_in_a_sentence(taskset: Any, workers: Workers, tmp_path: Path) -> None:
    model = tiny(taskset)

    async def inside(run: LiveRun) -> None:
        await run.chat().ask("?")

    with pytest.raises(BadInput, match="defined in a notebook or inside a function"):
        Runner(inside, taskset, model, executor=workers).collect(taskset.sample(1), n=1)
    unnamed = small(taskset.vocabulary(), d=16, layers=1, heads=2, kv_heads=1, context=256)
    unnamed.module.register_forward_hook(lambda *_: None)  # what does not pickle
    with pytest.raises(BadInput, match="cannot be taken to a worker"):
        Runner(player, taskset, unnamed, executor=workers).collect(taskset.sample(1), n=1)
    with pytest.raises(StoreError, match="cannot reach the memories"):
        Runner(REMEMBERER, taskset, model, executor=workers).collect(taskset.sample(1), n=1)
    with pytest.raises(BadInput, match="0 workers"):
        local_workers(0)
    with pytest.raises(BadInput, match=r"worker 3 has numpy 0\.1 \(here "):
        same_versions("worker 3", {**versions(), "numpy": "0.1"})
    done = runner(taskset, model, executor=workers).collect(taskset.sample(1), n=1)  # the workers are as good as before
    assert done.runs[0].reward is not None


@pytest.mark.whole
def test_a_driver_that_is_interrupted_goes_on_where_it_was(taskset: Any, workers: Workers, tmp_path: Path) -> None:
    model, tasks = tiny(taskset), taskset.sample(3)
    whole = runner(taskset, model).collect(tasks, n=3, seed=5)

    def stop(run: Run) -> None:
        raise KeyboardInterrupt

    cut = runner(taskset, model, tmp_path / "runs.db", executor=workers)
    with pytest.raises(KeyboardInterrupt):
        cut.collect(tasks, n=3, seed=5, name="c", on_run=stop)
    assert cut.store.verify() == []
    cut.store.close()
    again = runner(taskset, model, open_store(tmp_path / "runs.db"), executor=workers)
    same(whole.runs, again.collect(tasks, n=3, seed=5, name="c").runs)
    assert again.store.verify() == []
