"""Streams: pieces that are settled, the same tokens as an answer in one, and work that ends when nobody wants it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest

from clew.core.errors import BadInput, Busy, Refused
from clew.core.records import Request
from clew.core.values import Completion, Message, Piece
from clew.models.contract import check_model
from clew.models.engine.pieces import Settled, Text
from clew.models.local import Local
from clew.models.rendering import ChatTemplateRenderer
from clew.models.replies import parse_reply, settled_reply
from tests.engine.helpers import WORDS, Talk, ask
from tests.engine.test_rendering import PLAIN, local, tokenizer

Make = Callable[..., Local]


async def collect(items: AsyncIterator[Any]) -> tuple[list[Piece], Completion]:
    *pieces, last = [item async for item in items]
    assert all(isinstance(piece, Piece) for piece in pieces)
    assert isinstance(last, Completion)
    return pieces, last


def streams(model: Local, requests: Sequence[Request]) -> list[tuple[list[Piece], Completion]]:
    async def together() -> list[tuple[list[Piece], Completion]]:
        return await asyncio.gather(*[collect(model.stream(r)) for r in requests])

    return asyncio.run(together())


def fits(pieces: Sequence[Piece], last: Completion) -> None:
    """Pieces bring everything the Completion has, once."""
    assert "".join(pieces) == last.message.text
    assert "".join(p.reasoning for p in pieces) == last.message.reasoning
    assert sum((p.tokens for p in pieces), ()) == last.tokens
    assert last.logprobs is not None
    brought = [p.logprobs for p in pieces if p.logprobs is not None]
    np.testing.assert_array_equal(np.concatenate(brought) if brought else [], last.logprobs)


async def quiet(model: Local) -> None:
    """Until nothing runs or waits."""
    for _ in range(2000):
        if model.engine.stats()[:2] == (0, 0):
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"still at work: {model.engine.stats()}")


def test_the_model_contract_holds(make: Make) -> None:
    assert "check_streams" in check_model(make(), ("w1 w2", "w3"))


@pytest.mark.parametrize("steady", [False, True])
def test_a_stream_brings_what_complete_brings(make: Make, steady: bool) -> None:
    model = make(steady=steady)
    requests = [Talk(model).say(w).request(i, max_tokens=40, tops=3) for i, w in enumerate(WORDS[:9])]
    whole = ask(make(steady=steady), requests)
    for (pieces, last), expected in zip(streams(model, requests), whole, strict=True):
        fits(pieces, last)
        assert (last.tokens, last.message, last.finish) == (expected.tokens, expected.message, expected.finish)
        assert len(pieces) > 1
        assert last.tops == sum((p.tops or () for p in pieces), ())


def test_forced_tokens_are_in_the_text_and_not_among_the_tokens(make: Make) -> None:
    model = make()
    talk = Talk(model).say("w1")
    whole = ask(model, [talk.request(3, max_tokens=12)])[0]
    assert whole.tokens is not None
    ((pieces, last),) = streams(model, [talk.request(3, whole.tokens[:4], max_tokens=12)])
    fits(pieces, last)
    assert (last.message, last.tokens) == (whole.message, whole.tokens[4:])


def test_a_stop_string_is_never_shown_nor_its_beginning(make: Make) -> None:
    model = make()
    talk = Talk(model).say("w1")
    free = ask(model, [talk.request(2, max_tokens=40)])[0].message.text.split()
    stop = " ".join(free[5:7])
    ((pieces, last),) = streams(model, [talk.request(2, max_tokens=40, stop=(stop,))])
    fits(pieces, last)
    assert (last.finish, stop in last.message.text) == ("stop", False)
    shown = ""
    for piece in pieces:
        shown += piece
        assert last.message.text.startswith(shown)


def test_characters_come_whole() -> None:
    """Byte by byte, with each byte a token: half a character is never shown."""
    renderer = ChatTemplateRenderer(tokenizer(PLAIN))
    said = "é€😀 und so weiter: ひらがな" * 5
    ids, settled, shown = renderer.encode(said), Settled(renderer, (), ()), ""
    assert len(ids) == len(said.encode())
    for i in ids:
        shown += settled.add([i])[0]
        assert "\ufffd" not in shown
        assert said.startswith(shown)
    assert shown + settled.rest(Message("assistant", said))[0] == said


def test_text_in_windows_is_the_text_as_a_whole() -> None:
    """Random bytes, broken characters among them, in pieces of random length."""
    renderer, rng = ChatTemplateRenderer(tokenizer(PLAIN)), np.random.default_rng(0)
    for _ in range(30):
        raw = b"".join(
            [bytes([rng.integers(256)]), "€".encode(), b"ab ", "😀".encode()][rng.integers(4)] for _ in range(60)
        )
        ids = [byte_id(b) for b in raw]
        text, shown, at = Text(renderer.decode), "", 0
        while at < len(ids):
            step = int(rng.integers(1, 6))
            shown += text.add(ids[at : at + step])
            at += step
        whole = renderer.decode(ids)
        assert whole.startswith(shown)
        assert len(whole) - len(shown) <= 3


def byte_id(value: int) -> int:
    """The id of one byte in the byte-level vocabulary."""
    from tokenizers import pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    shown = [b for b in range(256) if chr(b).isprintable() and (33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255)]
    hidden = [b for b in range(256) if b not in shown]
    letter = chr(value) if value in shown else chr(256 + hidden.index(value))
    return letters.index(letter)


REPLIES = [
    "plain words. ", "<think>first\nthen</think>\n\nthe answer", "<think>\n\n</think>\n\nno thought",
    "I look.\n<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>",
    "<think>call it</think><tool_call>{\"name\": \"a\", \"arguments\": {\"x\": 1}}</tool_call>",
    "<tool_call>not json</tool_call> and on", 'so [TOOL_CALLS] [{"name": "a", "arguments": {}}]',
    "<think>never ended", "a < b <thi> c", "  <think>spaced</think> x ", "two\n\n",
]  # fmt: skip


@pytest.mark.parametrize("reply", REPLIES)
def test_what_is_settled_is_never_taken_back(reply: str) -> None:
    whole, text, thought = parse_reply(reply), "", ""
    for n in range(len(reply) + 1):
        now, thinks = settled_reply(reply[:n])
        assert whole.text.startswith(now), f"{reply[:n]!r} settles {now!r} of {whole.text!r}"
        assert whole.reasoning.startswith(thinks)
        assert (len(now), len(thinks)) >= (len(text), 0)
        assert thinks.startswith(thought)
        text, thought = now, thinks


def test_streams_of_a_chat_template_fit(make: Make) -> None:
    model = local(ChatTemplateRenderer(tokenizer(PLAIN)))
    for pieces, last in streams(model, [Talk(model).say("hi").request(i, max_tokens=60) for i in range(6)]):
        assert sum((p.tokens for p in pieces), ()) == last.tokens
        assert last.message.text.startswith("".join(pieces)[:-3])


def test_closing_a_stream_frees_its_row_and_leaves_a_cut_answer(make: Make) -> None:
    model = make()
    model.engine._batch._stops[:] = False
    talk = Talk(model).say("w1")

    async def go() -> Completion:
        stream = model.stream(talk.request(1, max_tokens=200))
        async with aclosing(stream) as items:
            async for _ in items:
                break
        assert stream.completion is not None
        await quiet(model)
        assert [item async for item in stream] == []
        return stream.completion

    cut, whole = asyncio.run(go()), ask(make(), [talk.request(1, max_tokens=200)])[0]
    assert cut.finish == "cut"
    assert cut.tokens is not None
    assert whole.tokens is not None
    assert 0 < len(cut.tokens) < 200
    both = min(len(cut.tokens), len(whole.tokens))
    assert cut.tokens[:both] == whole.tokens[:both]
    assert model.engine.stats().counts.cut == 1


@pytest.mark.parametrize("how", ["complete", "stream", "forgotten"])
def test_what_nobody_waits_for_ends(make: Make, how: str) -> None:
    model = make(max_rows=2)
    model.engine._batch._stops[:] = False
    requests = [Talk(model, f"r{i}").say(w).request(i, max_tokens=240) for i, w in enumerate(WORDS[:5])]

    async def go() -> None:
        if how == "forgotten":
            left = [model.stream(r) for r in requests]
            for stream in left[:2]:
                await anext(stream)
            left.clear()
            del stream
            gc.collect()
        else:
            one = model.complete if how == "complete" else lambda r: collect(model.stream(r))
            tasks = [asyncio.ensure_future(one(r)) for r in requests]  # two run, three wait for a row
            while model.engine.stats().running < 2:
                await asyncio.sleep(0.001)
            for task in tasks:
                task.cancel()
            assert all(
                isinstance(x, asyncio.CancelledError) for x in await asyncio.gather(*tasks, return_exceptions=True)
            )
        await quiet(model)

    asyncio.run(go())
    stats = model.engine.stats()
    assert stats.counts.sampled < 5 * 240
    assert stats.counts.cut == (2 if how == "forgotten" else 5)
    assert len(ask(model, [requests[0]._replace(run="x")])[0].tokens or ()) == 240


def test_others_are_not_disturbed_by_a_cut(make: Make) -> None:
    model = make(dtype=None, steady=True)
    talks = [Talk(model, f"r{i}").say(w) for i, w in enumerate(WORDS[:6])]
    requests = [t.request(i, max_tokens=60) for i, t in enumerate(talks)]
    expected = ask(make(steady=True), requests)

    async def go() -> list[Any]:
        tasks = [asyncio.ensure_future(collect(model.stream(r))) for r in requests]
        while not model.engine.stats().counts.sampled:
            await asyncio.sleep(0.001)
        tasks[2].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    got = asyncio.run(go())
    for i, (answer, whole) in enumerate(zip(got, expected, strict=True)):
        if i != 2:
            np.testing.assert_array_equal(answer[1].logprobs, whole.logprobs)
            assert answer[1].tokens == whole.tokens


def test_errors_reach_whoever_reads_the_stream(make: Make) -> None:
    model = make()
    with pytest.raises(BadInput, match="cannot sample"):
        streams(model, [Talk(model).say("w1").request(1, temperature=-1.0)])
    model.close()
    with pytest.raises(Refused, match="closed"):
        streams(model, [Talk(model).say("w1").request(1)])


def test_more_than_may_wait_are_refused_with_a_pause(make: Make) -> None:
    model = make(max_rows=2, max_waiting=3)
    requests = [Talk(model).say(w).request(i, max_tokens=30) for i, w in enumerate(WORDS[:9])]

    async def go() -> list[Any]:
        return await asyncio.gather(*[model.complete(r) for r in requests], return_exceptions=True)

    for _ in range(2):  # and again once there is room
        got = asyncio.run(go())
        busy = [x for x in got if isinstance(x, Busy)]
        assert [isinstance(x, Completion) for x in got].count(True) == 5
        assert len(busy) == 4
        assert all(1 <= x.wait <= 60 for x in busy)
    stats = model.engine.stats()
    assert (stats.counts.refused, stats.counts.requests, stats.running, stats.waiting) == (8, 10, 0, 0)


def test_counts_are_those_of_the_answers(make: Make) -> None:
    model = make()
    requests = [Talk(model).say("w1 w2 w3").request(i, max_tokens=9) for i in range(7)]
    usage = [c.usage for c in ask(model, requests)]
    counts = model.engine.stats().counts
    assert counts.sampled == sum(u.completion for u in usage)
    assert counts.cached == sum(u.cached for u in usage)
    assert counts.prompt == sum(u.prompt - u.cached for u in usage)
