"""Cached equals fresh, batched equals single, the law sampled from is the model's, new weights meet no old cache."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from clew.core.errors import BadInput, ContextOverflow, ModelError, Refused
from clew.core.protocols import Batches, Scores
from clew.core.values import Completion
from clew.models.engine.cache_rows import LEAST
from clew.models.engine.forwards.arena import KEYS, VALUES
from clew.models.engine.state import Result, Waiting
from clew.models.local import Local, small
from clew.models.taps.tap import Tap
from tests.engine.helpers import WORDS, Talk, ask, expected, sharpen

Make = Callable[..., Local]


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**31), rows=st.sampled_from([2, 5, 64]), steady=st.booleans())
def test_whatever_happens_a_reply_has_the_logprobs_of_a_fresh_forward(
    base: torch.nn.Module, seed: int, rows: int, steady: bool
) -> None:
    """Turns, forks, releases, evictions, new weights, forced tokens and temperatures in random order."""
    rng = np.random.default_rng(seed)
    source = small(WORDS, d=32, context=256)
    source.module.load_state_dict(base.state_dict())
    model = Local(source.module, renderer=source.renderer, max_rows=rows, steady=steady)
    talks = [Talk(model, f"r{i}") for i in range(6)]
    for turn in range(5):
        chosen = [t for t in talks if rng.random() < 0.8] or talks[:1]
        requests, forced = [], []
        for talk in chosen:
            if not talk.path or talk.path[-1].message.role == "assistant":
                talk.say(" ".join(rng.choice(WORDS, rng.integers(1, 20))))
            forced.append(tuple(rng.integers(10, 40, rng.integers(0, 3)).tolist()))
            heat = float(rng.choice([1.0, 0.7]))
            requests.append(talk.request(int(rng.integers(2**60)), forced[-1], temperature=heat))
        for talk, request, kept, answer in zip(chosen, requests, forced, ask(model, requests), strict=True):
            assert answer.tokens is not None
            assert answer.logprobs is not None
            np.testing.assert_allclose(answer.logprobs, expected(model.module, request, answer.tokens), atol=1e-4)
            assert answer.version == model.version
            talk.take(answer, kept)
        talks.append(talks[0].fork(f"f{turn}", int(rng.integers(0, len(talks[0].path) + 1))))
        model.release(talks[int(rng.integers(len(talks)))].name)
        if rng.random() < 0.3:
            sharpen(model.module, int(rng.integers(99)), 0.05)
            model.publish()


def test_batched_decode_equals_single_decode_in_float64(make: Make) -> None:
    many, one = make(dtype=torch.float64), make(dtype=torch.float64, max_rows=1)
    rng = np.random.default_rng(0)
    talks = [Talk(many, f"r{i}").say(" ".join(rng.choice(WORDS, 1 + 3 * i))) for i in range(20)]
    together = ask(many, [t.request(i) for i, t in enumerate(talks)])
    for i, talk in enumerate(talks):
        alone = ask(one, [talk.request(i)])[0]
        assert alone.tokens == together[i].tokens
        np.testing.assert_allclose(alone.logprobs, together[i].logprobs, rtol=0, atol=1e-7)  # stored as float32


def test_forward_passes_agree_to_the_last_digits_of_float64(make: Make) -> None:
    forward = make(dtype=torch.float64).engine._batch.forward
    forward.resize(8, 128)
    rng = np.random.default_rng(1)
    ids = [rng.integers(0, 40, n).tolist() for n in (3, 40, 17, 90)]
    rows, zero = np.arange(4), np.zeros(4, np.int64)
    fresh = forward.prefill(rows, ids, zero)
    forward.prefill(rows, [i[:2] for i in ids], zero)
    cached = forward.prefill(rows, [i[2:] for i in ids], zero + 2)
    torch.testing.assert_close(cached, fresh, rtol=0, atol=1e-12)
    for i in range(4):
        for at, token in enumerate(ids[i]):
            single = forward.decode(np.array([i]), np.array([token]), np.array([at]))
        torch.testing.assert_close(single[0], fresh[i], rtol=0, atol=1e-12)


@pytest.mark.parametrize("steady", [False, True])
def test_long_prompts_pass_in_chunks_and_unlike_ones_in_groups(
    make: Make, monkeypatch: pytest.MonkeyPatch, steady: bool
) -> None:
    whole = make(dtype=torch.float64, steady=steady).engine._batch.forward
    parts = make(dtype=torch.float64, steady=steady).engine._batch.forward
    rng = np.random.default_rng(1)
    ids = [rng.integers(0, 40, n).tolist() for n in (90, 3, 40, 41, 17)]
    rows, zero = np.array([4, 0, 2, 1, 3]), np.zeros(5, np.int64)
    whole.resize(8, 128)
    parts.resize(8, 128)
    expected_logits = whole.prefill(rows, ids, zero)
    monkeypatch.setattr("clew.models.engine.forwards.fast.CHUNK", 36)
    monkeypatch.setattr("clew.models.engine.forwards.packed_rows.PACK", 50)
    torch.testing.assert_close(parts.prefill(rows, ids, zero), expected_logits, rtol=0, atol=1e-12)
    for kept in product(range(parts.layers), (KEYS, VALUES)):
        cached = [forward.arena.stretches(kept, 128) for forward in (parts, whole)]
        torch.testing.assert_close(*cached, rtol=0, atol=1e-12)


def test_greedy_with_a_cache_is_greedy_without_where_the_choice_is_clear(make: Make) -> None:
    model = make()
    rng = np.random.default_rng(2)
    talk, clear = Talk(model, "r"), 0
    for _ in range(6):
        talk.say(" ".join(rng.choice(WORDS, 5)))
        answer = ask(model, [talk.request(temperature=0.0)])[0]
        assert answer.tokens is not None
        ids = [*talk.ids, *talk.renderer.head()]
        for token in answer.tokens:
            with torch.no_grad():
                top = model.module(torch.tensor([ids])).logits[0, -1].topk(2)
            if top.values[0] - top.values[1] > 1e-4:
                assert token == top.indices[0]
                clear += 1
            ids.append(token)
        assert answer.logprobs is not None
        assert not answer.logprobs.any()  # the distribution in force is a point mass
        talk.take(answer)
    assert clear > 10


def test_a_seed_gives_the_same_tokens_in_batches_of_1_8_and_64(make: Make) -> None:
    model = make()
    talks = [Talk(model).say(WORDS[i % 40] + " w1") for i in range(64)]
    requests = [t.request(1000 + i, max_tokens=12) for i, t in enumerate(talks)]
    whole = [c.tokens for c in ask(model, requests)]
    assert [c.tokens for i in range(0, 64, 8) for c in ask(model, requests[i : i + 8])] == whole
    assert [ask(model, [r])[0].tokens for r in requests[:16]] == whole[:16]
    assert len(set(whole)) > 30


def test_samples_follow_the_models_own_law_and_that_of_generate(make: Make) -> None:
    model, n = make(), 4000
    talk = Talk(model).say("w1 w2")
    prompt = [*talk.ids, *talk.renderer.head()]
    answers = [c.tokens or () for c in ask(model, [talk.request(i, max_tokens=2) for i in range(n)])]
    torch.manual_seed(0)
    out = model.module.generate(
        torch.tensor([prompt]), do_sample=True, num_return_sequences=n, max_new_tokens=2, top_k=0,
        eos_token_id=sorted(model.renderer.stop), pad_token_id=0,
    )[:, len(prompt):].tolist()  # fmt: skip
    stop = next(iter(model.renderer.stop))
    theirs = [tuple(row[:1]) if row[0] == stop else tuple(row) for row in out]
    with torch.no_grad():
        size = model.module.config.vocab_size
        first = model.module(torch.tensor([prompt])).logits[0, -1].double().softmax(-1)
        pairs = torch.tensor([[*prompt, t] for t in range(size)])
        second = model.module(pairs).logits[:, -1].double().softmax(-1)
    law = {(a, b): float(first[a] * second[a, b]) for a in range(size) for b in range(size) if a != stop}
    law[(stop,)] = float(first[stop])
    common = [key for key, p in law.items() if p * n >= 8]
    probabilities = np.array([law[key] for key in common])
    probabilities = np.append(probabilities, 1 - probabilities.sum())
    counts = [[replies.count(key) for key in common] for replies in (answers, theirs)]
    ours, other = (np.append(c, n - sum(c)) for c in counts)
    assert len(common) > 20
    assert stats.chisquare(ours, probabilities * n).pvalue > 1e-3
    assert stats.chi2_contingency([ours, other]).pvalue > 1e-3


def test_new_weights_between_two_turns_never_meet_an_old_cache(make: Make) -> None:
    model = make()
    talk = Talk(model, "r").say("w1 w2 w3")
    talk.take(ask(model, [talk.request(1)])[0])
    talk.say("w4")
    sharpen(model.module, 9)
    old = ask(model, [talk.request(2)])[0]
    assert old.version == 0  # changed weights are not served before bump
    assert old.usage.cached > 0
    model.publish()
    new = ask(model, [talk.request(2)])[0]
    assert (new.version, new.usage.cached) == (1, 0)
    np.testing.assert_allclose(new.logprobs, expected(model.module, talk.request(2), new.tokens or ()), atol=1e-4)


def test_weights_bumped_in_the_middle_of_a_reply_are_not_its_own(make: Make) -> None:
    model = make()
    before = model.module.state_dict()
    twin = make()
    twin.module.load_state_dict(before)
    talk = Talk(model, "r").say("w1")
    first, results, arrived = threading.Event(), [], threading.Event()

    class Renderer:  # bumps in the middle of the reply, from the engine's own thread
        stop = frozenset([2])

        def decode(self, ids: object) -> str:
            if not first.is_set():
                first.set()
                sharpen(model.module, 9)
                model.publish()
            return ""

        def parse(self, ids: tuple[int, ...]) -> object:
            return talk.renderer.parse(ids)

    model.engine._batch._answers._renderer = Renderer()
    model.submit([talk.request(5, stop=("never",), max_tokens=30)], lambda r: (results.extend(r), arrived.set()))
    assert arrived.wait(20)
    answer = results[0][1]
    assert isinstance(answer, Completion)
    assert answer.version == 0
    np.testing.assert_allclose(answer.logprobs, expected(twin.module, talk.request(5), answer.tokens or ()), atol=1e-4)
    assert ask(model, [talk.request(5)])[0].version == 1


def test_a_turn_computes_only_what_is_new_and_caches_all_but_the_last_token(make: Make) -> None:
    model = make()
    talk = Talk(model, "r").say("w1 w2 w3")
    answer = ask(model, [talk.request(1)])[0]
    assert answer.usage.cached == 0
    talk.take(answer)
    before = len(talk.ids)
    talk.say("w4 w5")
    answer = ask(model, [talk.request(2)])[0]
    assert answer.usage.cached == before - 1
    assert answer.usage.prompt == len(talk.ids) + 1  # the head
    assert answer.usage.completion == len(answer.tokens or ())


def test_forks_and_siblings_copy_the_prefix_they_share(make: Make) -> None:
    model = make()
    talk = Talk(model, "r").say(" ".join(WORDS))
    talk.take(ask(model, [talk.request(1)])[0])
    talk.say("w4 w5")
    fork = talk.fork("fork", 1)
    answer = ask(model, [fork.request(3)])[0]
    assert answer.usage.cached == answer.usage.prompt - 1
    group = [Talk(model, f"g{i}").say(" ".join(reversed(WORDS))) for i in range(8)]
    requests = [t.request(i) for i, t in enumerate(group)]
    answers = ask(model, requests)
    assert sum(a.usage.cached == 0 for a in answers) <= 1 + sum(len(WORDS) < 16 for _ in answers)
    for request, answer in zip(requests, answers, strict=True):
        np.testing.assert_allclose(answer.logprobs, expected(model.module, request, answer.tokens or ()), atol=1e-4)


def test_the_least_used_row_is_given_away_and_released_rows_first(make: Make) -> None:
    model = make(max_rows=2)
    one, two, three = (Talk(model, name).say(f"{w} {w}") for name, w in (("a", "w1"), ("b", "w2"), ("c", "w3")))
    for talk in (one, two):
        talk.take(ask(model, [talk.request(1)])[0])
    model.release("b")
    three.take(ask(model, [three.request(1)])[0])
    assert ask(model, [one.say("w9").request(2)])[0].usage.cached > 4
    assert ask(model, [two.say("w9").request(2)])[0].usage.cached <= 2  # the first two tokens of any conversation


def test_more_requests_than_rows_all_get_their_answer(make: Make) -> None:
    model, free = make(max_rows=3), make()
    talks = [Talk(model, f"r{i}").say(w) for i, w in enumerate(WORDS[:20])]
    requests = [t.request(i) for i, t in enumerate(talks)]
    assert [c.tokens for c in ask(model, requests)] == [c.tokens for c in ask(free, requests)]


def test_forced_tokens_belong_to_the_reply_and_are_not_sampled(make: Make) -> None:
    model = make()
    talk = Talk(model, "r").say("w1")
    whole = ask(model, [talk.request(7, max_tokens=10)])[0]
    assert whole.tokens is not None
    k = min(3, len(whole.tokens) - 1)
    rest = ask(model, [talk.request(7, whole.tokens[:k], max_tokens=10)])[0]
    assert rest.tokens == whole.tokens[k:]  # same seed, same place in the reply: the same noise
    assert rest.message == whole.message
    ended = ask(model, [talk.request(7, (12, next(iter(model.renderer.stop))))])[0]
    assert (ended.tokens, ended.finish, ended.usage.completion) == ((), "stop", 0)
    assert ended.message.text == model.renderer.parse((12,)).text


def test_rows_that_ended_are_let_go_when_they_are_half_of_all_and_not_before(make: Make) -> None:
    """Neighbours are views of the cache. What ended computes in vain beside what runs, until that is half of it."""
    model = make(max_rows=4 * LEAST)
    batch, results, widths = model.engine._batch, list[Result](), list[int]()
    batch._stops[:] = False
    talks = [Talk(model, f"r{i}").say("w1 w2") for i in range(4 * LEAST)]
    batch.admit([Waiting(t.request(i, max_tokens=2 + i), 0, print, 0.0) for i, t in enumerate(talks)], results)
    while batch.active:
        width, running = len(batch._live.rows), batch.active
        batch.step(results)
        half = 2 * running <= width and width > LEAST
        assert len(batch._live.rows) == (running if half else width)
        widths.append(width)
    assert sorted({*widths}) == [LEAST, 2 * LEAST, 4 * LEAST]
    assert len(results) == len(talks)


def test_stop_strings_and_deadlines_end_a_reply(make: Make) -> None:
    model = make()
    talk = Talk(model, "r").say("w1")
    plain = ask(model, [talk.request(3, max_tokens=12)])[0]
    words = plain.message.text.split()
    assert len(words) > 3
    stopped = ask(model, [talk.request(3, max_tokens=12, stop=(f"{words[2]}",))])[0]
    assert stopped.finish == "stop"
    assert stopped.message.text.split() == words[: words.index(words[2])]
    assert plain.tokens is not None
    assert stopped.tokens == plain.tokens[: len(stopped.tokens or ())]
    late = ask(model, [talk.request(3, max_tokens=200)._replace(deadline=0.0)])[0]
    assert late.finish == "cut"
    assert len(late.tokens or ()) == 1


def test_a_reply_may_fill_the_context_and_no_more(make: Make) -> None:
    model = make()
    talk = Talk(model, "r").say("w1")
    whole = ask(model, [talk.request(1, max_tokens=9999)])[0]
    prompt = whole.usage.prompt
    room = model.context - prompt
    assert whole.in_force is not None
    assert whole.in_force.max_tokens == room
    assert len(whole.tokens or ()) <= room
    assert (whole.finish == "length") == (len(whole.tokens or ()) == room)
    assert ask(model, [talk.request(1, max_tokens=room)])[0].in_force is None


def test_what_is_wrong_with_one_request_is_its_result_alone(make: Make) -> None:
    model = make()
    talk = Talk(model, "r").say("w1")
    good = talk.request(1)
    bad = [
        (Talk(model, "s").say(" ".join(["w1"] * 300)).request(1), ContextOverflow),
        (good._replace(sampling=good.sampling._replace(temperature=-1.0)), BadInput),
        (good._replace(path=(talk.path[0]._replace(ids=None),)), BadInput),
        (good._replace(path=(talk.path[0]._replace(ids=(1, 999)),)), BadInput),
        (good._replace(path=(), head=()), BadInput),
        (good._replace(taps=(Tap(layer=1),)), BadInput),
    ]

    async def go() -> list[Completion | BaseException]:
        asked = [model.complete(r) for r in (good, *(r for r, _ in bad), good)]
        return await asyncio.gather(*asked, return_exceptions=True)

    results = asyncio.run(go())
    assert isinstance(results[0], Completion)
    assert isinstance(results[-1], Completion)
    for (_, kind), result in zip(bad, results[1:-1], strict=True):
        assert isinstance(result, kind)
        assert result.remedy


def test_a_failure_of_the_forward_reaches_every_request_and_the_engine_goes_on(make: Make) -> None:
    model = make()
    talks = [Talk(model, f"r{i}").say("w1 w2") for i in range(5)]
    good = ask(model, [t.request(i) for i, t in enumerate(talks)])
    weights = model.engine._batch.forward._w
    model.engine._batch.forward._w = None

    async def go() -> list[Completion | BaseException]:
        return await asyncio.gather(
            *[model.complete(t.request(i)) for i, t in enumerate(talks)], return_exceptions=True
        )

    assert all(isinstance(r, ModelError) and "AttributeError" in str(r) for r in asyncio.run(go()))
    model.engine._batch.forward._w = weights
    again = ask(model, [t.request(i) for i, t in enumerate(talks)])
    assert [c.tokens for c in again] == [c.tokens for c in good]


def test_weights_that_are_not_numbers_are_reported_and_leave_no_trace(make: Make) -> None:
    model = make()
    talk = Talk(model, "r").say("w1 w2 w3")
    good, kept = ask(model, [talk.request(1)])[0], model.module.state_dict()
    kept = {name: value.clone() for name, value in kept.items()}
    with torch.no_grad():
        model.module.model.layers[0].self_attn.v_proj.weight.fill_(float("nan"))
    model.publish()
    with pytest.raises(ModelError, match="not numbers"):
        ask(model, [talk.request(1)])
    model.module.load_state_dict(kept)
    model.publish()
    assert ask(model, [talk.request(1)])[0].tokens == good.tokens


def test_what_is_done_goes_back_and_newcomers_join_while_the_rest_decodes(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clew.models.engine.engine.HOLD", 0.0)
    monkeypatch.setattr("clew.models.engine.engine.FIRST_TICK", 0.0)
    model, alone = make(), make()
    talks = [Talk(model, f"r{i}").say(w) for i, w in enumerate(WORDS[:4])]
    never = model.engine._batch._stops
    never[:] = False  # replies run to their limit
    alone.engine._batch._stops[:] = False
    requests = [t.request(i, max_tokens=n) for i, (t, n) in enumerate(zip(talks, (2, 2, 200, 3), strict=True))]
    order: list[int] = []
    found: dict[int, Completion] = {}
    finished = threading.Event()

    def done(offset: int, results: list[tuple[int, Completion | BaseException]]) -> None:
        for i, answer in results:
            assert isinstance(answer, Completion)
            order.append(i + offset)
            found[i + offset] = answer
        if len(order) == 2:
            model.submit(requests[3:], lambda r: done(3, r))
        if len(order) == 4:
            finished.set()

    model.submit(requests[:3], lambda r: done(0, r))
    assert finished.wait(60)
    assert order == [0, 1, 3, 2]
    for i, request in enumerate(requests):
        assert ask(alone, [request])[0].tokens == found[i].tokens


def test_a_closed_engine_refuses_what_waits_and_what_comes(make: Make) -> None:
    model = make()
    talk = Talk(model, "r").say("w1")
    model.seat(5)  # four more could come: the request waits for them
    model.engine._tick = 60.0
    results: list[tuple[int, object]] = []
    model.submit([talk.request(1)], results.extend)
    model.close()
    assert isinstance(results[0][1], Refused)
    with pytest.raises(Refused):
        asyncio.run(model.complete(talk.request(1)))


def test_a_tick_waits_for_the_seats_and_answers_them_in_one_call(make: Make) -> None:
    model = make()
    model.seat(3)
    model.engine._tick = 60.0
    talks = [Talk(model, f"r{i}").say("w1") for i in range(3)]
    calls: list[list[tuple[int, object]]] = []
    arrived = threading.Event()
    model.submit([t.request(1, max_tokens=3) for t in talks[:2]], lambda r: (calls.append(r), arrived.set()))
    assert not arrived.wait(0.2)
    model.submit([talks[2].request(1, max_tokens=3)], lambda r: None)
    assert arrived.wait(20)
    assert sorted(i for i, _ in calls[0]) == [0, 1]


def test_runs_that_are_seated_and_ask_one_by_one_share_prefills(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain asyncio over ``complete``: replies of several lengths end apart, and the next turns begin together."""
    model, widths = make(), list[int]()
    prefill = model.engine._batch.forward.prefill
    monkeypatch.setattr(
        model.engine._batch.forward,
        "prefill",
        lambda slots, *rest: (widths.append(len(slots)), prefill(slots, *rest))[1],
    )

    async def play(number: int, seated: int) -> list[tuple[int, ...] | None]:
        talk, found = Talk(model, f"r{number}").say("w1"), list[tuple[int, ...] | None]()
        for turn in range(3):
            reply = await model.complete(talk.request(number * 10 + turn, max_tokens=2 + (number + turn) % 5))
            found.append(reply.tokens)
            talk.add(reply.message, (*model.renderer.head(), *(reply.tokens or ())))
            talk.say("w2")
        model.seat(-seated)
        return found

    async def together() -> list[list[tuple[int, ...] | None]]:
        model.seat(6)
        return await asyncio.gather(*[play(number, 1) for number in range(6)])

    async def apart() -> list[list[tuple[int, ...] | None]]:
        return [await play(number, 0) for number in range(6)]

    model.engine._tick = 60.0
    seated = asyncio.run(together())
    assert widths == [6, 6, 6]
    assert model.engine._seats == 0
    assert asyncio.run(apart()) == seated, "whoever comes alone gets the same replies, at once"


def test_the_engine_serves_the_protocols_and_its_thread_ends_when_idle(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clew.models.engine.engine.LINGER", 0.05)
    model = make()
    assert isinstance(model, Batches)
    assert isinstance(model, Scores)
    talk = Talk(model, "r").say("w1")
    ask(model, [talk.request(1)])
    thread = model.engine._thread
    if thread is not None:
        thread.join(10)
    assert model.engine._thread is None
    assert ask(model, [talk.request(1)])[0].tokens


def test_entropies_are_those_of_the_law_in_force(make: Make) -> None:
    model = make()
    talk = Talk(model).say("w1 w2")
    request = talk.request(4, max_tokens=3, top_k=5, temperature=0.8)
    answer = ask(model, [request])[0]
    ids = [*talk.ids, *request.head]
    for token, entropy, logprob in zip(answer.tokens or (), answer.entropies, answer.logprobs, strict=True):
        with torch.no_grad():
            top = model.module(torch.tensor([ids])).logits[0, -1].double().topk(5)
        p = (top.values / 0.8).softmax(-1)
        assert token in top.indices
        assert abs(float(-(p * p.log()).sum()) - entropy) < 1e-4
        assert abs(float(p[top.indices == token].log()) - logprob) < 1e-4
        ids.append(token)
