"""Steady mode: the same bits whatever arrives when, whatever runs beside it, and whether or not the cache was lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from clew.core.records import Request
from clew.core.values import Completion
from clew.models.engine.forwards.weights import attended, products
from clew.models.local import Local
from tests.engine.helpers import WORDS, Talk, ask

Make = Callable[..., Local]


def same(a: Completion, b: Completion) -> bool:
    assert a.logprobs is not None
    assert b.logprobs is not None
    assert a.entropies is not None
    assert b.entropies is not None
    bits = a.logprobs.tobytes() == b.logprobs.tobytes() and a.entropies.tobytes() == b.entropies.tobytes()
    return bits and a.tokens == b.tokens and a.finish == b.finish


def talks_of(model: Local, n: int) -> list[Talk]:
    rng = np.random.default_rng(0)
    return [Talk(model, f"r{i}").say(" ".join(rng.choice(WORDS, 2 + 3 * (i % 9)))) for i in range(n)]


def turn(
    model: Local, talks: list[Talk], number: int, sizes: list[int], order: np.random.Generator
) -> list[Completion]:
    """One turn of all talks, sent in pieces of the given sizes in a random order."""
    requests: list[Request] = [
        t.request(1000 * number + i)._replace(order=(0, i, 0)) for i, t in enumerate(talks)
    ]  # fmt: skip
    answers: dict[int, Completion] = {}
    shuffled = order.permutation(len(talks)).tolist()
    for size in sizes:
        piece, shuffled = shuffled[:size], shuffled[size:]
        answers |= dict(zip(piece, ask(model, [requests[i] for i in piece]), strict=True))
    for i, talk in enumerate(talks):
        talk.take(answers[i])
        talk.say(WORDS[i] + " w1 w2")
    return [answers[i] for i in range(len(talks))]


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """So many threads compute: a single product is divided among them, several are dealt out."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("inside", [64, 256, 512, 1024])
def test_a_row_of_a_product_is_the_same_beside_any_others(inside: int, threads: int) -> None:
    """Plain products differ here by the number of rows, at more numbers the wider they are and by the processor."""
    draw = torch.Generator().manual_seed(0)
    x, start, weights = (torch.randn(*sizes, generator=draw) for sizes in ((120, inside), (120, 96), (96, inside)))
    times, plus = products(steady=True)
    for matrix in (weights.t(), weights.t().contiguous()):
        whole, added = times(x, matrix), plus(start.clone(), x, matrix)
        torch.testing.assert_close(whole, x @ matrix)
        torch.testing.assert_close(added, start + x @ matrix)
        for first, count in ((0, 1), (5, 2), (33, 7), (16, 16), (50, 40)):
            some = slice(first, first + count)
            assert torch.equal(times(x[some], matrix), whole[some])
            assert torch.equal(plus(start[some].clone(), x[some], matrix), added[some])


@pytest.mark.parametrize("span", [448, 1024])
def test_attention_of_a_row_is_the_same_beside_any_others(span: int, threads: int) -> None:
    """A row alone whose heads share one key is a batch of one."""
    draw = torch.Generator().manual_seed(0)
    queries, keys, values = (torch.randn(9, *sizes, generator=draw) for sizes in ((4, 64), (64, span), (span, 64)))
    mask = torch.zeros(9, 1, span)
    whole = attended(mask, queries, keys, values, steady=True)
    torch.testing.assert_close(whole, (queries @ keys).softmax(-1) @ values)
    for first, count in ((0, 1), (3, 1), (5, 2), (1, 8)):
        some = slice(first, first + count)
        assert torch.equal(attended(mask[some], queries[some], keys[some], values[some], steady=True), whole[some])


@pytest.mark.parametrize("sizes", [[20], [1] * 20, [3, 9, 8], [13, 7]])
def test_the_same_bits_under_any_arrival(make: Make, sizes: list[int]) -> None:
    base, other = make(steady=True), make(steady=True)
    ours, theirs = talks_of(base, 20), talks_of(other, 20)
    for number in range(3):
        expected = turn(base, ours, number, [20], np.random.default_rng(0))
        found = turn(other, theirs, number, sizes, np.random.default_rng(number + 1))
        assert all(map(same, expected, found))


def test_the_same_bits_after_a_lost_cache(make: Make) -> None:
    base = make(steady=True)
    talks = talks_of(base, 12)
    for number in range(3):
        turn(base, talks, number, [12], np.random.default_rng(0))
    requests = [t.request(i)._replace(order=(0, i, 0)) for i, t in enumerate(talks)]
    warm = ask(base, requests)
    assert all(c.usage.cached for c in warm)
    cold = ask(make(steady=True), requests)
    evicted = ask(make(steady=True, max_rows=8), requests)
    assert cold[0].usage.cached == 0
    assert all(map(same, warm, cold))
    assert all(map(same, warm, evicted))


def test_the_same_bits_for_forced_and_copied_prefixes(make: Make) -> None:
    base = make(steady=True)
    talk = Talk(base, "r").say(" ".join(WORDS))
    whole = ask(base, [talk.request(5, max_tokens=12)])[0]
    assert whole.tokens is not None
    assert whole.logprobs is not None
    fork = talk.fork("f", 1)
    rest = ask(base, [fork.request(5, whole.tokens[:4], max_tokens=12)])[0]
    assert rest.usage.cached > len(WORDS)
    assert rest.logprobs is not None
    assert rest.tokens == whole.tokens[4:]
    assert rest.logprobs.tobytes() == whole.logprobs[4:].tobytes()
