"""The cache of keys and values as a server needs it: shared between whoever asks, and within its memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from clew.core.records import Request
from clew.core.values import Completion, Limits, Task
from clew.harness import LiveRun, Runner
from clew.models.engine.state import Waiting
from clew.models.local import Local
from clew.worlds.toys import Counter
from tests.engine.helpers import WORDS, Talk, ask, sharpen
from tests.engine.test_stream import collect

Make = Callable[..., Local]


def prompt(request: Request) -> list[int]:
    return [*(i for node in request.path for i in node.ids or ()), *request.head]


def test_samples_of_one_request_share_its_prefill(make: Make) -> None:
    """Whether they come together or one later, each computes one token of the prompt, and samples as if alone."""
    model, alone = make(), make()
    asked = Talk(model).say(" ".join(WORDS)).request(0, max_tokens=20)
    requests = [asked._replace(seed=seed) for seed in range(6)]
    together, later = ask(model, requests), ask(model, [asked._replace(seed=9)])
    length = len(prompt(asked))
    assert [c.usage.cached for c in together] == [0] + [length - 1] * 5
    assert later[0].usage.cached == length - 1
    apart = [ask(alone, [r])[0] for r in requests]
    assert [c.tokens for c in together] == [c.tokens for c in apart]
    assert len({c.tokens for c in together}) > 1


def test_a_request_joins_a_running_one_in_its_prefix(make: Make) -> None:
    model = make()
    model.engine._batch._stops[:] = False
    talk = Talk(model).say(" ".join(WORDS))

    async def go() -> list[tuple[Any, Completion]]:
        first = asyncio.ensure_future(collect(model.stream(talk.request(1, max_tokens=150))))
        while not model.engine.stats().counts.sampled:
            await asyncio.sleep(0.001)
        second = await collect(model.stream(talk.request(2, max_tokens=5)))
        assert not first.done()
        return [await first, second]

    (_, one), (_, two) = asyncio.run(go())
    assert (one.usage.cached, two.usage.cached) == (0, len(prompt(talk.request())) - 1)


async def tries(run: LiveRun) -> None:
    chat = run.chat()
    chat.say("user", "w1 w2 w3")
    await chat.sample(3)
    await chat.ask("w4")


def test_a_run_that_ended_holds_no_row_of_its_asks_or_of_its_samples(make: Make) -> None:
    model = make()
    run = Runner(tries, None, model, sampling={"max_tokens": 6}).collect([Task("t", "")], n=1).runs[0]
    slots = model.engine._batch._rows.slots
    assert {holder for holder in slots.where if run.id in holder} == {(run.id, 0, i) for i in (-1, 0, 1, 2)}
    ask(model, [Talk(model, "other").say("w9").request(1)])  # the tick in which the engine takes note
    assert list(slots.where) == [("other", -1, -1)]
    assert sorted(slots.used)[-2] == 0, "rows of the ended run are not the first to be given away"


def test_what_a_stored_run_was_asked_is_cached_for_whoever_asks_the_same(make: Make) -> None:
    """A run is recorded; a request from outside with its beginning, as a fork of it has, computes only what is new."""
    model = make()
    runner = Runner(
        "clew.harness.agents:player", taskset := Counter(), model, sampling={"max_tokens": 6}, limits=Limits(steps=3)
    )
    run = runner.collect(taskset.sample(1), n=1, seed=0).runs[0]
    call = [c for c in run.calls if c.kind == "ask"][-1]
    path = tuple(runner.store.thread(call.node_in))
    request = Request(path, seed=5, head=model.renderer.head())
    length = len(prompt(request))
    (other,) = ask(model, [request])
    assert other.usage.cached == length - 1
    fork = Talk(model)
    fork.path = list(path)[:-1]
    (turned,) = ask(model, [fork.say("w9 w9 w9").request(7)])
    assert turned.usage.cached >= len([i for node in path[:-1] for i in node.ids or ()])
    sharpen(model.module, 7)
    model.publish()
    (fresh,) = ask(model, [request])
    assert (fresh.usage.cached, fresh.version) == (0, 1)


@pytest.mark.parametrize("steady", [False, True])
def test_rows_grow_with_their_replies(make: Make, monkeypatch: pytest.MonkeyPatch, steady: bool) -> None:
    """Room for a reply is made as it is sampled; the answer is the one of a cache that had it from the start."""
    whole, model = make(steady=steady), make(steady=steady)
    requests = [Talk(model).say(w).request(i, max_tokens=240) for i, w in enumerate(WORDS[:5])]
    for local in (whole, model):
        local.engine._batch._stops[:] = False
    monkeypatch.setattr("clew.models.engine.forwards.arena.SHORT", 256)
    expected = ask(whole, requests)
    monkeypatch.setattr("clew.models.engine.forwards.arena.SHORT", 64)
    arena, sizes = model.engine._batch.forward.arena, list[int]()
    take = arena.take
    monkeypatch.setattr(arena, "take", lambda *given: sizes.append(given[1]) or take(*given))  # type: ignore[func-returns-value]
    got = ask(model, requests)
    assert sizes == [64] * 5 + [128] * 5 + [256] * 5
    for one, other in zip(got, expected, strict=True):
        assert one.tokens == other.tokens
        if steady:
            np.testing.assert_array_equal(one.logprobs, other.logprobs)


def test_one_long_prompt_does_not_make_every_row_long(make: Make) -> None:
    """Memory for 32 short rows: a long one takes the place of some of them, and goes where they are wanted again."""
    limit = 32 * 64
    model = make(max_rows=64, cache_bytes=limit * make().engine._batch.forward.token_bytes)
    arena = model.engine._batch.forward.arena
    short = [Talk(model).say(WORDS[i]).request(i, max_tokens=8) for i in range(40)]
    expected = [c.tokens for c in ask(make(), short)]
    assert [c.tokens for c in ask(model, short)] == expected
    assert (np.count_nonzero(arena.room), arena.total) == (32, limit)
    (long,) = ask(model, [Talk(model).say(" ".join(WORDS * 4)).request(1, max_tokens=8)])
    assert long.usage.prompt > 128
    assert (sorted(set(arena.room.tolist())), arena.total) == ([0, 64, 256], limit)
    assert np.count_nonzero(arena.room) >= 24
    assert [c.tokens for c in ask(model, short)] == expected
    assert arena.total == limit


def test_what_runs_may_take_more_than_the_memory_and_gives_it_back(make: Make) -> None:
    """Replies grow until they no longer fit; each is whole all the same, and the next batch has the limit again."""
    whole = make()
    model = make(max_rows=4, cache_bytes=4 * 64 * whole.engine._batch.forward.token_bytes)
    requests = [Talk(model).say(w).request(i, max_tokens=90) for i, w in enumerate(WORDS[:4])]
    for local in (whole, model):
        local.engine._batch._stops[:] = False
    expected = [c.tokens for c in ask(whole, requests)]
    assert [c.tokens for c in ask(model, requests)] == expected
    arena = model.engine._batch.forward.arena
    assert arena.total > 4 * 64
    ask(model, [Talk(model).say("w1").request(9, max_tokens=4)])
    assert arena.total <= 4 * 64


def test_memory_is_that_of_the_rows_and_a_search_costs_only_rows_that_share(make: Make) -> None:
    """One row of some 240 tokens among 31 of some 55: at most 1.3 times what they hold together."""
    model = make()
    batch, rng = model.engine._batch, np.random.default_rng(0)
    lengths = [236, *[50] * 31]
    prompts = [Talk(model, str(n)).say(" ".join(rng.choice(WORDS, k))) for n, k in enumerate(lengths)]
    requests = [talk.request(n, max_tokens=8) for n, talk in enumerate(prompts)]
    assert not batch.admit([Waiting(r, 0, lambda _: None, 0.0) for r in requests], [])
    rows, held, room = batch.room()
    assert (rows, held) == (32, sum(len(prompt(r)) for r in requests))
    assert room <= 1.3 * held
    looked, slots = [], batch._rows.slots
    common = slots._common
    slots._common = lambda rows, ids, written: looked.append(len(rows)) or common(rows, ids, written)  # type: ignore[method-assign,func-returns-value]
    slots.match(np.array(prompt(requests[3]), np.int32), 5)
    slots.match(np.array([9] * 40, np.int32), 5)
    assert looked == [2, 1]
