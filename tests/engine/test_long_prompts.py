"""A long prompt is prefilled in pieces between the decode steps of what runs; counted in steps, never in seconds."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from clew.core.values import Completion
from clew.models.engine.admission import PIECE
from clew.models.engine.engine import Engine
from clew.models.engine.forwards.fast import CHUNK
from clew.models.engine.live_batch import Batch
from clew.models.engine.speculation.lengths import Fixed
from clew.models.engine.state import Result, Waiting
from clew.models.local import Local, small
from tests.engine.drafters import Witness
from tests.engine.helpers import WORDS, Talk, ask, expected, sharpen

LONG = CHUNK + 5 * PIECE
Make = Callable[..., Local]


@pytest.fixture(scope="module")
def make() -> Make:
    base = small(WORDS, d=32, context=4 * LONG)
    sharpen(base.module)

    def build(**options: Any) -> Local:
        model = Local(copy.deepcopy(base.module), renderer=base.renderer, ref="tiny", dtype=torch.float64, **options)
        model.engine._batch._stops[:] = False
        return model

    return build


def said(model: Local, seed: int, words: int, name: str = "") -> Talk:
    rng = np.random.default_rng(seed)
    return Talk(model, name or f"r{seed}").say(" ".join(rng.choice(WORDS, words)))


def entry(talk: Talk, seed: int = 0, live: bool = True, **sampling: Any) -> Waiting:
    return Waiting(talk.request(seed, **sampling), 0, lambda results: None, 0.0, live=live)


def count(batch: Batch, waiting: Waiting) -> int:
    """Tokens that a running request has sampled."""
    (place,) = np.flatnonzero(batch._live.rows == waiting.slot)
    return int(batch._live.count[place])


def finish(batch: Batch, results: list[Result]) -> None:
    while batch.active:
        batch.step(results)


def completion(results: list[Result], waiting: Waiting) -> Completion:
    (answer,) = [r.answer for r in results if r.entry is waiting]
    assert isinstance(answer, Completion)
    return answer


def equal(a: Completion, b: Completion, exact: bool) -> None:
    assert a.tokens == b.tokens
    assert a.usage.prompt == b.usage.prompt
    assert a.logprobs is not None
    assert b.logprobs is not None
    if exact:
        assert a.logprobs.tobytes() == b.logprobs.tobytes()
    np.testing.assert_allclose(a.logprobs, b.logprobs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("steady", [False, True])
@pytest.mark.parametrize("fast", [None, False])
def test_a_reply_goes_on_a_token_for_each_piece_of_a_long_prompt(make: Make, steady: bool, fast: bool | None) -> None:
    model = make(steady=steady, fast=fast)
    batch, results = model.engine._batch, list[Result]()
    first, long = entry(said(model, 1, 5), max_tokens=60), entry(said(model, 2, LONG), max_tokens=5)
    assert not batch.admit([first], results)
    for _ in range(3):
        batch.step(results)
    before = count(batch, first)
    assert not batch.admit([long], results)
    assert batch._rows.joined[long.slot] is None  # nothing of it is computed yet
    steps = 0
    while batch._rows.joined[long.slot] is None:
        batch.step(results)
        steps += 1
        assert count(batch, first) == before + steps
        assert steps < 100
    prompt = len(said(model, 2, LONG).ids) + len(model.renderer.head())
    assert steps == -(-prompt // PIECE)
    finish(batch, results)
    other = make(steady=steady, fast=fast)
    for waiting in (first, long):
        (alone,) = ask(other, [waiting.request])
        equal(completion(results, waiting), alone, steady)
    model_law = expected(model.module, long.request, completion(results, long).tokens or ())
    np.testing.assert_allclose(completion(results, long).logprobs, model_law, rtol=0, atol=1e-5)


def test_short_requests_join_while_a_long_prompt_is_prefilled(make: Make) -> None:
    model = make()
    batch, results = model.engine._batch, list[Result]()
    long, short = entry(said(model, 2, LONG), max_tokens=5), entry(said(model, 3, 5), max_tokens=2)
    batch.admit([long], results)
    batch.step(results)
    batch.admit([short], results)
    batch.step(results)
    assert [r.entry for r in results] == [short]
    finish(batch, results)
    equal(completion(results, long), ask(make(), [long.request])[0], False)


@pytest.mark.parametrize("steady", [False, True])
def test_samples_of_one_long_prompt_share_its_prefill_and_wait_for_it(make: Make, steady: bool) -> None:
    model = make(steady=steady)
    batch, results = model.engine._batch, list[Result]()
    runs = [entry(said(model, 1, 5), max_tokens=80)]
    batch.admit(runs, results)
    talk = said(model, 2, LONG)
    longer = talk.fork("longer", 1).say(" ".join(["w3"] * LONG))  # shares a long prefix, and has as much of its own
    samples = [entry(talk, i, max_tokens=4) for i in range(3)] + [entry(longer, 9, max_tokens=4)]
    batch.admit(samples, results)
    while any(s.answered is False for s in samples):
        before = count(batch, runs[0])
        batch.step(results)
        assert count(batch, runs[0]) == before + 1
    finish(batch, results)
    assert batch.counts.prompt < 2 * len(longer.ids)
    for waiting in [*runs, *samples]:
        equal(completion(results, waiting), ask(make(steady=steady), [waiting.request])[0], steady)


def test_who_copies_from_a_long_prompt_that_is_given_up_computes_the_rest_alone(make: Make) -> None:
    model = make()
    batch, results = model.engine._batch, list[Result]()
    talk = said(model, 2, LONG)
    gone, stays = entry(talk, 0, max_tokens=4), entry(talk, 1, max_tokens=4)
    batch.admit([entry(said(model, 1, 5), max_tokens=30), gone, stays], results)
    batch.step(results)
    batch.step(results)
    batch.cut([gone], results)
    assert completion(results, gone).finish == "cut"
    assert completion(results, gone).tokens == ()
    finish(batch, results)
    assert completion(results, stays).usage.cached == 2 * PIECE
    assert completion(results, gone).usage.prompt == completion(results, stays).usage.prompt
    equal(completion(results, stays), ask(make(), [stays.request])[0], False)
    assert not batch._rows.slots.busy.any()


def test_rows_may_grow_and_move_while_a_long_prompt_is_prefilled(make: Make) -> None:
    model = make(max_rows=32)
    batch, results = model.engine._batch, list[Result]()
    first = entry(said(model, 1, 5), max_tokens=400)
    batch.admit([first], results)
    long = entry(said(model, 2, LONG), max_tokens=4)
    batch.admit([long], results)
    more = []
    for i in range(12):
        batch.step(results)
        more.append(entry(said(model, 10 + i, 3 + 40 * (i % 3)), max_tokens=2 + i))
        batch.admit([more[-1]], results)
    finish(batch, results)
    for waiting in [first, long, *more]:
        equal(completion(results, waiting), ask(make(), [waiting.request])[0], False)


def test_rows_are_not_cut_shorter_than_a_prompt_that_is_not_yet_in_them(make: Make) -> None:
    size = 2 * LONG
    model = make(max_rows=32, cache_bytes=2 * size * make().engine._batch.forward.token_bytes)
    batch, results = model.engine._batch, list[Result]()
    long = entry(said(model, 2, LONG), max_tokens=4)
    shorts = [entry(said(model, 10 + i, 3), max_tokens=6) for i in range(8)]
    assert not batch.admit([long, *shorts[:7]], results)
    assert batch._rows.slots.busy.all()
    held = batch._rows.slots.size
    later = batch.admit(shorts[7:], results)  # there is no row, and only short ones are seen to be in use
    assert held >= batch._rows.slots.size >= len(long.request.path[0].ids or ())
    finish(batch, results)
    batch.admit(later, results)
    finish(batch, results)
    for waiting in [long, *shorts]:
        equal(completion(results, waiting), ask(make(), [waiting.request])[0], False)


def test_a_drafter_is_shown_a_long_prompt_piece_by_piece(make: Make) -> None:
    model = make()
    batch, results = model.engine._batch, list[Result]()
    witness = Witness(model.module, (0,))
    batch.attach(witness, Fixed(2))
    first, long = entry(said(model, 1, 5), max_tokens=60), entry(said(model, 2, LONG), max_tokens=9)
    batch.admit([first], results)
    batch.admit([long], results)
    finish(batch, results)
    assert witness.looked > 25  # each look compares what it was shown with the module's own states
    assert batch.drafts is not None
    assert not batch.drafts.counts.faults


def test_tokens_are_counted_once_whoever_joins(make: Make) -> None:
    batch, results = (model := make()).engine._batch, list[Result]()
    for i in range(4):
        batch.admit([entry(said(model, i, 5 if i % 2 else LONG), max_tokens=5 + i)], results)
        batch.step(results)
    finish(batch, results)
    assert batch.counts.sampled == 5 + 6 + 7 + 8


def test_where_nobody_waits_for_one_answer_prompts_pass_at_once(make: Make) -> None:
    model = make()
    batch, results = model.engine._batch, list[Result]()
    first, long = entry(said(model, 1, 5), live=False, max_tokens=30), entry(said(model, 2, LONG), live=False)
    batch.admit([first], results)
    batch.admit([long], results)
    assert batch._rows.joined[long.slot] is not None
    assert count(batch, first) == 1


def test_a_failure_between_two_pieces_leaves_no_row_behind(make: Make) -> None:
    model = make()
    engine: Engine = model.engine
    batch, results = engine._batch, list[Result]()
    batch.admit([entry(said(model, 2, LONG))], results)
    batch.step(results)
    batch.abandon()
    assert not batch.active
    assert not batch._filling
    request = said(model, 3, LONG).request(1)
    equal(ask(model, [request])[0], ask(make(), [request])[0], False)
