"""Speculation in the engine: what comes out is what plain decoding gives, whatever is drafted and verified."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from clew.core.values import Sampling
from clew.models.engine.speculation.lengths import Fixed
from clew.models.local import Local
from clew.models.sampling import Laws, in_force
from tests.engine.drafters import Blind, Stubborn, Twin, Witness
from tests.engine.helpers import WORDS, Talk, ask, expected, sharpen

Make = Callable[..., Local]


class Ragged:
    """Lengths at random, and rounds without drafts."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def draft(self, rows: Any) -> bool:
        return bool(self.rng.random() < 0.8)

    def choose(self, rows: Any, fresh: Any, chance: Any) -> Any:
        assert fresh.dtype == bool
        return self.rng.integers(0, chance.shape[1] + 1, len(rows))


def drafters(module: Any) -> dict[str, Blind]:
    like = copy.deepcopy(module)
    sharpen(like, 7, 0.02)
    vocabulary = module.config.vocab_size
    return {
        "blind": Blind(vocabulary), "stubborn": Stubborn(vocabulary), "twin": Twin(module, 5), "like": Twin(like, 7),
        "seeing": Witness(module, (0,), 3),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["blind", "stubborn", "twin", "like", "seeing"])
@pytest.mark.parametrize("policy", [Fixed(0), Fixed(2), Fixed(9), Ragged()])
@pytest.mark.parametrize("fast", [None, False])
def test_greedy_replies_are_those_of_generate(make: Make, name: str, policy: Any, fast: bool | None) -> None:
    if fast is False and not isinstance(policy, Ragged):
        pytest.skip("the slow twin under one policy")
    plain = make(dtype=torch.float64)
    model = make(dtype=torch.float64, draft=drafters(plain.module)[name], lengths=policy, fast=fast)
    rng = np.random.default_rng(0)
    talks = [Talk(model, f"r{i}").say(" ".join(rng.choice(WORDS, 1 + 3 * i))) for i in range(5)]
    answers = ask(model, [t.request(i, temperature=0.0, max_tokens=12 + i) for i, t in enumerate(talks)])
    for talk, answer, i in zip(talks, answers, range(5), strict=True):
        prompt = torch.tensor([[*talk.ids, *talk.renderer.head()]])
        with torch.no_grad():
            whole = plain.module.generate(prompt, do_sample=False, max_new_tokens=12 + i)  # type: ignore[operator]
        assert list(answer.tokens or ()) == whole[0, prompt.shape[1] :].tolist()
    assert model.engine.drafted is not None
    assert not model.engine.drafted.faults


@pytest.mark.parametrize("fast", [None, False])
def test_verification_gives_the_logits_and_taps_of_the_module(make: Make, fast: bool | None) -> None:
    """Ragged rows in any order, behind cached prefixes, after a longer verification was cut back."""
    model = make(dtype=torch.float64, fast=fast)
    forward, rng = model.engine._batch.forward, np.random.default_rng(3)
    forward.resize(8, 128)
    forward.taps = (0,)
    ids = [rng.integers(0, 40, 40).tolist() for _ in range(4)]
    rows, starts, counts = np.array([5, 0, 2, 3]), np.array([20, 7, 30, 1]), [1, 33, 8, 4]
    prompts = [i[:n] for i, n in zip(ids, starts, strict=True)]
    forward.prefill(rows, prompts, np.zeros(4, np.int64))
    prompt_taps = forward.hidden.split([len(p) for p in prompts])
    forward.verify(rows, [[1, 2, 3]] * 4, starts)  # what is rejected is forgotten
    logits = forward.verify(rows, [i[s : s + n] for i, s, n in zip(ids, starts, counts, strict=True)], starts)
    parts, taps = logits.split(counts), forward.hidden.split(counts)
    for i, (start, n) in enumerate(zip(starts.tolist(), counts, strict=True)):
        with torch.no_grad():
            whole: Any = model.module(torch.tensor([ids[i][: start + n]]), output_hidden_states=True, use_cache=False)
        torch.testing.assert_close(parts[i], whole.logits[0, start:], rtol=0, atol=1e-4)
        torch.testing.assert_close(taps[i], whole.hidden_states[1][0, start:], rtol=0, atol=1e-5)
        torch.testing.assert_close(prompt_taps[i], whole.hidden_states[1][0, :start], rtol=0, atol=1e-5)
    single = forward.decode(rows, np.array([1, 2, 3, 4]), starts)
    torch.testing.assert_close(single, forward.verify(rows, [[1], [2], [3], [4]], starts), rtol=0, atol=1e-10)
    assert forward.hidden.shape == (4, 32)


def test_taps_of_long_and_unlike_prompts_come_row_after_row(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = make(dtype=torch.float64).engine._batch.forward
    forward.resize(8, 128)
    forward.taps = (0,)
    rng = np.random.default_rng(1)
    ids = [rng.integers(0, 40, n).tolist() for n in (90, 3, 40, 41, 17)]
    forward.prefill(np.array([4, 0, 2, 1, 3]), ids, np.zeros(5, np.int64))
    whole = forward.hidden.clone()
    monkeypatch.setattr("clew.models.engine.forwards.fast.CHUNK", 36)
    monkeypatch.setattr("clew.models.engine.forwards.packed_rows.PACK", 50)
    forward.prefill(np.array([4, 0, 2, 1, 3]), ids, np.zeros(5, np.int64))
    torch.testing.assert_close(forward.hidden, whole, rtol=0, atol=1e-12)


def test_the_drafter_sees_what_the_target_computed_through_turns_forks_copies_and_new_weights(make: Make) -> None:
    """Witness looks at every draft; a difference is a fault, and faults are counted."""
    model = make(dtype=torch.float64, max_rows=5)
    witness = Witness(model.module, (0,))
    model.engine._batch.attach(witness, Ragged(4))
    rng = np.random.default_rng(0)
    talks = [Talk(model, f"r{i}") for i in range(4)]
    for turn in range(4):
        for talk in talks:
            talk.say(" ".join(rng.choice(WORDS, rng.integers(1, 24))))
        answers = ask(model, [t.request(turn * 10 + i, max_tokens=3 + 4 * i) for i, t in enumerate(talks)])
        for talk, answer in zip(talks, answers, strict=True):
            talk.take(answer)
        talks.append(talks[turn].fork(f"f{turn}", 2 * turn + 1))
        if turn == 2:
            sharpen(model.module, 5, 0.05)
            model.publish()
    assert model.engine.drafted is not None
    assert witness.looked > 20
    assert not model.engine.drafted.faults
    assert model.engine.drafted.reached[1] > 0


def test_a_drafter_that_comes_later_has_seen_every_prefix_it_drafts_behind(make: Make) -> None:
    model = make(dtype=torch.float64)
    talk = Talk(model, "r").say("w1 w2 w3 w4 w5 w6")
    talk.take(ask(model, [talk.request(0)])[0])
    talk.say("w7")
    assert ask(model, [talk.request(1)])[0].usage.cached > 0
    witness = Witness(model.module, (0,))
    model.engine._batch.attach(witness, Fixed(4))
    answer = ask(model, [talk.request(2, max_tokens=12)])[0]
    assert answer.usage.cached == 0, "what is cached was computed before it came"
    assert witness.looked
    assert model.engine.drafted is not None
    assert not model.engine.drafted.faults
    model.engine._batch.attach(None, Fixed(4))
    assert model.engine.drafted is None
    plain, fresh = (ask(one, [talk.request(2, max_tokens=12)])[0] for one in (model, make(dtype=torch.float64)))
    assert plain.tokens == fresh.tokens


def test_replies_end_exactly_where_plain_ones_end(make: Make) -> None:
    """Stop strings, stop tokens, lengths and the context inside blocks that are accepted whole; greedy."""
    plain = make(dtype=torch.float64)
    drafted = make(dtype=torch.float64, draft=Twin(plain.module, 8, 300), lengths=Fixed(8))
    talk = Talk(plain, "").say("w1 w2 w3")
    free = ask(plain, [talk.request(0, temperature=0.0, max_tokens=40)])[0]
    words = free.message.text.split()
    ways: list[dict[str, Any]] = [{"stop": (f"{words[2]} {words[3]}",)}, {"stop": (words[1],)}]
    ways += [{"max_tokens": n} for n in (1, 2, 5, 9, 10)] + [{"max_tokens": 400}]
    for temperature in (0.0, 1.0):
        requests = [talk.request(3, **{"max_tokens": 40, "temperature": temperature, **way}) for way in ways]
        for request, a, b in zip(requests, ask(plain, requests), ask(drafted, requests), strict=True):
            assert a.finish == b.finish or temperature
            if temperature == 0:
                assert a.tokens == b.tokens
                assert a.message == b.message
            assert b.tokens is not None
            np.testing.assert_allclose(b.logprobs, expected_law(plain.module, request, b.tokens), atol=1e-4)
            assert len(b.tokens) <= request.sampling.max_tokens
            assert not set(b.tokens[:-1]) & set(plain.renderer.stop)
            for stop in request.sampling.stop:
                assert stop not in b.message.text
    assert drafted.engine.drafted is not None
    assert drafted.engine.drafted.emitted > 2 * drafted.engine.drafted.rounds


def expected_law(module: Any, request: Any, tokens: Any) -> Any:
    return expected(module, request, tokens) if request.sampling.temperature else np.zeros(len(tokens))


def test_a_deadline_cuts_a_reply_under_drafts(make: Make) -> None:
    model = make(draft=Blind(make().module.config.vocab_size), lengths=Fixed(4))
    talk = Talk(model, "").say("w1")
    answer = ask(model, [talk.request(max_tokens=200)._replace(deadline=0.0)])[0]
    assert answer.finish == "cut"
    assert len(answer.tokens or ()) <= 5


def test_rows_of_length_0_are_plain_steps(make: Make) -> None:
    plain = make(dtype=torch.float64)
    drafted = make(dtype=torch.float64, draft=Blind(plain.module.config.vocab_size), lengths=Nothing())
    talks = [Talk(plain, f"r{i}").say(WORDS[i]) for i in range(3)]
    requests = [t.request(i, max_tokens=20) for i, t in enumerate(talks)]
    assert [a.tokens for a in ask(plain, requests)] == [a.tokens for a in ask(drafted, requests)]
    assert drafted.engine.drafted is not None
    assert not drafted.engine.drafted.proposed.any()


class Nothing:
    """Drafts, and verifies none."""

    def draft(self, rows: Any) -> bool:
        return True

    def choose(self, rows: Any, fresh: Any, chance: Any) -> Any:
        return np.zeros(len(rows), np.int64)


def test_a_reply_does_not_depend_on_what_runs_beside_it(make: Make) -> None:
    """With lengths that do not either: noise is by seed and place."""
    vocabulary = make().module.config.vocab_size
    model = make(dtype=torch.float64, draft=Blind(vocabulary), lengths=Fixed(3))
    talks = [Talk(model, "").say(WORDS[i % 40]) for i in range(12)]
    requests = [t.request(i, max_tokens=6 + i % 5, temperature=0.5 + i % 3 / 2) for i, t in enumerate(talks)]
    together = [a.tokens for a in ask(model, requests)]
    assert together == [ask(model, [r])[0].tokens for r in requests]


@pytest.mark.parametrize(
    ("policy", "sampling"), [(Fixed(3), {}), (Ragged(2), {"temperature": 0.8, "top_k": 12, "top_p": 0.9})]
)
def test_samples_follow_the_targets_law(make: Make, policy: Any, sampling: dict[str, Any]) -> None:
    """The second token of replies, of which the first is summed out: drafted in the first round."""
    module = make(dtype=torch.float64).module
    like = copy.deepcopy(module)
    sharpen(like, 7, 0.1)
    model, n = make(dtype=torch.float64, draft=Twin(like, 3), lengths=policy), 1200
    talk = Talk(model).say("w1 w2")
    requests = [talk.request(i, max_tokens=4, **sampling) for i in range(n)]
    answers = [a for i in range(0, n, 240) for a in ask(model, requests[i : i + 240])]
    pairs = np.array([(a.tokens or ())[:2] for a in answers if len(a.tokens or ()) > 1])
    prompt = [*talk.ids, *talk.renderer.head()]
    laws = Laws.of([Sampling(4, **sampling)])
    with torch.no_grad():
        first = in_force(module(torch.tensor([prompt])).logits[:, -1], laws).exp()[0]
        after = module(torch.tensor([[*prompt, i] for i in range(len(first))])).logits[:, -1]
    first[list(model.renderer.stop)] = 0  # those replies have no second token
    law = (first[:, None] * in_force(after, laws.take(np.zeros(len(first), np.int64))).exp()).sum(0).numpy()
    counts, due = np.bincount(pairs[:, 1], minlength=len(law)), law / law.sum() * len(pairs)
    assert not counts[due == 0].any()
    likely = due > 5
    seen, due = np.append(counts[likely], counts[~likely].sum()), np.append(due[likely], due[~likely].sum())
    assert stats.chisquare(seen[due > 0], due[due > 0]).pvalue > 1e-3
    assert model.engine.drafted is not None
    assert 0.2 < model.engine.drafted.accepted[0] / model.engine.drafted.reached[0] < 0.98


def test_likeliest_tokens_are_told_for_every_token_of_a_block(make: Make) -> None:
    plain = make(dtype=torch.float64)
    drafted = make(dtype=torch.float64, draft=Twin(plain.module), lengths=Fixed(4))
    talk = Talk(plain, "").say("w3 w4")
    request = talk.request(0, temperature=0.0, max_tokens=9)._replace(tops=2)
    a, b = ask(plain, [request])[0], ask(drafted, [request])[0]
    assert a.tokens == b.tokens
    assert a.plain is not None
    assert a.tops is not None
    assert b.tops is not None
    np.testing.assert_allclose(a.plain, b.plain, atol=1e-5)
    assert [[i for i, _ in top] for top in a.tops] == [[i for i, _ in top] for top in b.tops]
