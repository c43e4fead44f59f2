"""New weights come into force while replies run: these end under the old ones, and what comes does not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import torch

from clew.models.engine.stream import Stream
from clew.models.local import Local
from tests.engine.drafters import Blind
from tests.engine.helpers import Talk, ask
from tests.engine.test_batched import FAMILIES
from tests.engine.test_local import built

Make = Callable[..., Local]


def changed(model: Local) -> None:
    with torch.no_grad():
        for weight in model.module.parameters():
            weight.mul_(-0.7)


async def begun(model: Local, request: Any) -> Stream:
    """A reply under way, of which some tokens are there."""
    stream = model.stream(request)
    count = 0
    async for _ in stream:
        count += 1
        if count == 3:
            return stream
    raise AssertionError("it ended")


async def rest(stream: Stream) -> Any:
    async for _ in stream:
        pass
    return stream.completion


def endless(model: Local) -> Local:
    model.engine._batch._stops[:] = False
    return model


@pytest.mark.parametrize("family", ["fast", "gemma3", "bloom"])
def test_what_runs_ends_under_its_weights_and_what_comes_does_not_wait(make: Make, family: str) -> None:
    import transformers

    others = {**FAMILIES, "bloom": transformers.BloomConfig(vocab_size=47, hidden_size=32, n_layer=2, n_head=4)}

    def fresh() -> Local:
        return endless(make(dtype=torch.float64) if family == "fast" else built(others[family]))

    model = fresh()
    long, short = Talk(model, "long").say("w1 w2"), Talk(model, "short").say("w3")
    first, second = long.request(1, max_tokens=90), short.request(2, max_tokens=4)
    alone = ask(fresh(), [first])[0]
    other = fresh()
    changed(other)
    other.publish()
    later = ask(other, [second])[0]

    async def both() -> tuple[Any, Any, int]:
        stream = await begun(model, first)
        changed(model)
        model.publish()
        answer = await model.complete(second)
        running = model.engine.stats().running
        return await rest(stream), answer, running

    ended, answer, running = asyncio.run(both())
    assert running == 1, "the long reply was still under way"
    assert (ended.version, answer.version) == (0, 1)
    assert list(ended.tokens) == list(alone.tokens or ())
    assert list(answer.tokens) == list(later.tokens or ())
    assert model.engine.stats().running == 0
    again = ask(model, [first])[0]
    assert again.version == 1
    want = ask(other, [first])[0].tokens or ()
    assert again.tokens == want[: len(again.tokens or ())], "no cache of the earlier weights is used"


def test_full_rows_do_not_keep_new_weights_waiting(make: Make) -> None:
    model = endless(make(dtype=torch.float64, max_rows=2))
    talks = [Talk(model, f"r{i}").say(f"w{i} w2") for i in range(3)]

    async def all_of_them() -> list[Any]:
        streams = [await begun(model, talk.request(i, max_tokens=60)) for i, talk in enumerate(talks[:2])]
        changed(model)
        model.publish()
        answer = await model.complete(talks[2].request(9, max_tokens=3))
        return [answer, *[await rest(stream) for stream in streams]]

    answer, *ended = asyncio.run(all_of_them())
    assert answer.version == 1
    assert [one.version for one in ended] == [0, 0]
    assert [len(one.tokens) for one in ended] == [60, 60]


def test_a_reply_of_earlier_weights_can_be_dropped(make: Make) -> None:
    model = endless(make(dtype=torch.float64))
    talk = Talk(model, "r").say("w1 w2")

    async def dropped() -> Any:
        stream = await begun(model, talk.request(1, max_tokens=200))
        changed(model)
        model.publish()
        await model.complete(talk.request(2, max_tokens=2))
        await stream.aclose()
        return stream.completion

    cut = asyncio.run(dropped())
    assert (cut.finish, cut.version) == ("cut", 0)
    assert model.engine.stats().running == 0


def test_with_a_drafter_the_batch_ends_first(make: Make) -> None:
    net = make().module.config.vocab_size
    model = endless(make(dtype=torch.float64, draft=Blind(net)))
    talk = Talk(model, "r").say("w1 w2")

    async def both() -> tuple[Any, Any]:
        stream = await begun(model, talk.request(1, max_tokens=60))
        changed(model)
        model.publish()
        later = asyncio.ensure_future(model.complete(talk.request(2, max_tokens=2)))
        ended = await rest(stream)
        assert not later.done()
        return ended, await later

    ended, answer = asyncio.run(both())
    assert (ended.version, answer.version) == (0, 1)
