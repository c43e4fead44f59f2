"""Steering through the record: forks carry writes, a replay follows them without a model, a fork gives them again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from clew.core.errors import BadInput
from clew.core.records import Edit
from clew.core.values import Task
from clew.harness import LiveRun, Runner
from clew.models.taps.tap import Tap
from clew.store import Run, open_store
from clew.store.bundles.chosen import copy_run
from clew.store.memory import MemoryStore

pytest.importorskip("torch", reason="did not run: torch is not installed")

from clew.models.local import Local, small
from clew.models.taps import read
from clew.models.taps.forms import taps_of

WORDS = [f"w{i}" for i in range(40)]


async def talker(run: LiveRun, turns: int = 4) -> None:
    chat = run.chat(max_tokens=6)
    for turn in range(turns):
        await chat.ask(f"w{turn} w7 w9")


async def sampler(run: LiveRun) -> None:
    await run.chat(max_tokens=6).ask("w1")
    chat = run.chat(max_tokens=4)
    chat.say("user", "w2 w3")
    chat.take((await chat.sample(3))[0])


def model() -> Local:
    return small(WORDS, d=32, layers=3, seed=1, context=512, steady=True, ref="small")


def vector(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=32).astype(np.float32)


def said(run: Run) -> list[tuple[int, ...] | None]:
    return [run.store.node(call.node_out).ids for call in run.calls if call.kind == "ask" and call.node_out]


def seq_of(run: Run, ask: int) -> int:
    return [call.seq for call in run.calls if call.kind == "ask"][ask]


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_a_steered_fork_is_recorded_replayed_and_forked_again(where: str, tmp_path: Path) -> None:
    store = MemoryStore() if where == "memory" else open_store(str(tmp_path / "runs.db"))
    runner = Runner(talker, None, model(), store=store)
    (run,) = runner.collect([Task("t", "x")], n=1).runs
    tap = Tap(1, add=vector(1) * 3, part="reply"), Tap(0, along=vector(2), clamp=2.0)
    at = seq_of(run, 1)
    (steered,) = runner.fork(run, at=at, tap=tap)
    assert said(steered)[:1] == said(run)[:1]
    assert said(steered)[1:] != said(run)[1:]
    requests = {run.calls[at].request, steered.calls[at].request}
    assert len(requests) == 2, "the digest of a request covers its taps"
    (value,) = [edit.value for edit in steered.changes.edits]
    assert taps_of(value, store.blob) == tap
    assert len(json.dumps(value)) < 300, "the record names vectors and does not hold them"
    for call in steered.calls:
        noted = [note for note in steered.annotations("taps", "call") if note.seq == call.seq]
        assert len(noted) == (call.kind == "ask" and call.seq >= at)
        if noted:
            first, second = json.loads(noted[0].data)["reached"]
            reply = len(store.node(call.node_out).ids) - call.head
            prompt = sum(len(node.ids) for node in store.thread(call.node_in)) + call.head
            assert first == {"prompt": 0, "reply": reply - 1, "cached": 0}
            assert second["reply"] == reply - 1
            assert second["prompt"] + second["cached"] == prompt

    class Dead:
        ref, version, renderer = "small", 0, None

        async def complete(self, request: object) -> None:
            raise AssertionError("a replay asks no model")

    follower = Runner(talker, None, Dead(), store=store)
    for one in (run, steered):
        follower.replay(one)
    (again,) = runner.fork(steered, at=at, seed="same")
    assert said(again) == said(steered)
    assert taps_of(again.changes.edits[0].value, store.blob) == tap
    (later,) = runner.fork(steered, at=seq_of(steered, 3), seed="same")
    assert said(later) == said(steered)
    assert [call.request for call in later.calls] == [call.request for call in steered.calls]
    (plain,) = runner.fork(steered, at=at, tap=())
    assert said(plain) == said(run), "without its taps a steered run is the run it was forked from"
    other = Runner(talker, None, model(), store=store)
    (elsewhere,) = other.fork(steered, at=at, seed="same")
    assert said(elsewhere) == said(steered), "an engine that has nothing cached gives the same"
    assert store.verify() == []


def test_an_edit_of_kind_tap_is_the_same_as_the_argument() -> None:
    runner = Runner(talker, None, model(), store=MemoryStore())
    (run,) = runner.collect([Task("t", "x")], n=1).runs
    at, tap = seq_of(run, 1), Tap(1, add=vector(1) * 3)
    (one,) = runner.fork(run, at=at, tap=tap)
    (other,) = runner.fork(run, at=at, edits=[Edit("tap", at, tap)], seed="same")
    (listed,) = runner.fork(run, at=at, edits=[Edit("tap", at, [{"layer": 1, "add": (vector(1) * 3).tolist()}])])
    assert said(one) == said(other) == said(listed)
    assert one.changes.edits == other.changes.edits
    with pytest.raises(BadInput, match="is no tap"):
        runner.fork(run, at=at, edits=[Edit("tap", at, "loud")])


def test_samples_of_one_call_are_steered_and_counted() -> None:
    runner = Runner(sampler, None, model(), store=MemoryStore())
    (run,) = runner.collect([Task("t", "x")], n=1).runs
    at = seq_of(run, 1)
    (steered,) = runner.fork(run, at=at, tap=Tap(0, add=vector(1) * 3))
    packed = steered.calls[at].packed
    assert [sample.ids for sample in packed] != [sample.ids for sample in run.calls[at].packed]
    (note,) = [note for note in steered.annotations("taps", "call") if note.seq == at]
    (reached,) = json.loads(note.data)["reached"]
    assert reached["reply"] == sum(len(sample.ids) - steered.calls[at].head - 1 for sample in packed)


def test_vectors_go_where_their_runs_go(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "one.db"))
    runner = Runner(talker, None, model(), store=store)
    (run,) = runner.collect([Task("t", "x")], n=1).runs
    tap = Tap(1, add=vector(1) * 3)
    (steered,) = runner.fork(run, at=seq_of(run, 1), tap=tap)
    (named,) = tap.vectors
    key = bytes.fromhex(named.name)
    copied, merged = MemoryStore(), open_store(str(tmp_path / "two.db"))
    copy_run(copied, store, steered.id)
    merged.merge(store)
    for there in (copied, merged):
        assert there.blob(key) == named.data
    store.gc(dry_run=False)
    assert store.blob(key) == named.data
    memory = MemoryStore()
    copy_run(memory, store, steered.id)
    memory.redact(f"{steered.id}@{seq_of(steered, 1)}")
    assert memory.blob(key) == named.data, "what is redacted takes no vector along"


def test_a_steered_run_is_read_with_its_writes(tmp_path: Path) -> None:
    local = model()
    runner = Runner(talker, None, local, store=MemoryStore())
    (run,) = runner.collect([Task("t", "x")], n=1).runs
    tap, at = Tap(0, add=vector(1) * 3, part="reply"), seq_of(run, 1)
    (steered,) = runner.fork(run, at=at, tap=tap)
    states = read(local, [steered], [0], "reply", folder=tmp_path / "s", dtype="float32")
    for call in steered.calls:
        if call.kind != "ask":
            continue
        prompt = [i for node in steered.store.thread(call.node_in) for i in node.ids]
        ids, start = [*prompt, *steered.store.node(call.node_out).ids], len(prompt) + call.head
        (plain,) = local.states([ids], [0])
        moved = states.take(0, states.rows_of(steered.id, call.seq)) - plain[start:, 0]
        expected = np.broadcast_to(vector(1) * 3, moved.shape) if call.seq >= at else np.zeros_like(moved)
        np.testing.assert_allclose(moved, expected, rtol=0, atol=1e-5)
    local.close()
