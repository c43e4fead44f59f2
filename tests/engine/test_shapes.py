"""Penalties, biases and ends: the law of each token is the one worked out by hand, and a trainer gets what it needs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from clew.core.errors import BadInput
from clew.core.keys import canonical, sampling_form
from clew.core.values import Sampling
from clew.models.engine.speculation.lengths import Fixed
from clew.models.kept import unpack
from clew.models.local import Local
from clew.models.shaping import PLAIN, sampling_with, shape_of, written
from tests.engine.drafters import Blind
from tests.engine.helpers import WORDS, Talk, ask

Make = Callable[..., Local]
SHAPES: dict[str, dict[str, Any]] = {
    "min_p": {"min_p": 0.2},
    "presence": {"presence_penalty": 1.5},
    "frequency": {"frequency_penalty": 0.8},
    "repetition": {"repetition_penalty": 1.7},
    "bias": {"logit_bias": {"3": 4.0, "5": -50}},
    "allowed": {"allowed_token_ids": [4, 5, 6, 7]},
    "least": {"min_tokens": 6},
    "endless": {"ignore_eos": True},
    "all": {
        "min_p": 0.05, "presence_penalty": 0.5, "frequency_penalty": 0.3, "repetition_penalty": 1.2,
        "logit_bias": {"7": 1.0}, "min_tokens": 4,
    },
}  # fmt: skip


def law(logits: torch.Tensor, prompt: list[int], reply: list[int], shape: dict[str, Any], stops: frozenset[int]) -> Any:
    """The log-probabilities of the next token, from the definitions in ``Shape``'s docstring alone."""
    x = logits.double().clone()
    if shape.get("ignore_eos") or len(reply) < shape.get("min_tokens", 0):
        x[sorted(stops)] = -np.inf
    if shape.get("allowed_token_ids"):
        x[[i for i in range(len(x)) if i not in shape["allowed_token_ids"]]] = -np.inf
    for token, bias in shape.get("logit_bias", {}).items():
        x[int(token)] += bias
    for token in set(prompt) | set(reply):
        by = shape.get("repetition_penalty", 1.0)
        x[token] = x[token] / by if x[token] > 0 else x[token] * by
    for token in set(reply):
        x[token] -= shape.get("presence_penalty", 0) + shape.get("frequency_penalty", 0) * reply.count(token)
    p = x.softmax(-1)
    x[p < shape.get("min_p", 0) * p.max()] = -np.inf
    return x.log_softmax(-1).numpy()


@pytest.mark.parametrize("drafted", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_each_token_is_drawn_from_the_law_worked_out_by_hand(make: Make, name: str, drafted: bool) -> None:
    model = make(dtype=torch.float64)
    if drafted:
        model = make(dtype=torch.float64, draft=Blind(model.module.config.vocab_size), lengths=Fixed(3))
    text = written(SHAPES[name])
    talks = [Talk(model, f"r{i}").say(" ".join(WORDS[i : i + 4])) for i in range(3)]
    plain = Talk(model, "plain").say("w1")
    asked = [t.request(i, max_tokens=12, shape=text) for i, t in enumerate(talks)]
    *answers, beside = ask(model, [*asked, plain.request(9, max_tokens=12)])
    for request, answer in zip(asked, answers, strict=True):
        prompt = [*(i for node in request.path for i in node.ids or ()), *request.head]
        reply = list(answer.tokens or ())
        with torch.no_grad():
            logits = model.module(torch.tensor([[*prompt, *reply]])).logits[0]
        for i, token in enumerate(reply):
            want = law(logits[len(prompt) + i - 1], prompt, reply[:i], SHAPES[name], model.renderer.stop)
            assert answer.logprobs[i] == pytest.approx(float(want[token]), abs=1e-5)
            if shape_of(text).cuts and not drafted and not shape_of(text).bends:
                left = unpack(answer.kept)[i].tolist()
                assert left == (np.flatnonzero(np.isfinite(want)).tolist() if np.isinf(want).any() else [])
        if name in ("least", "endless"):
            assert len(reply) >= (12 if name == "endless" else 6)
    if not drafted:
        alone = ask(make(dtype=torch.float64), [plain.request(9, max_tokens=12)])[0]
        assert beside.tokens == alone.tokens, "rows beside are not touched"


def test_given_beginnings_count_as_said(make: Make) -> None:
    model = make(dtype=torch.float64)
    talk = Talk(model, "r").say("w1 w2")
    text = written({"presence_penalty": 2.0, "min_tokens": 3})
    request = talk.request(1, forced=(9, 9), max_tokens=6, shape=text)
    answer = ask(model, [request])[0]
    prompt = [*(i for node in request.path for i in node.ids or ()), *request.head]
    first = (answer.tokens or ())[0]
    with torch.no_grad():
        logits = model.module(torch.tensor([[*prompt, 9, 9]])).logits[0, -1]
    want = law(logits, prompt, [9, 9], json.loads(text), model.renderer.stop)
    assert answer.logprobs[0] == pytest.approx(float(want[first]), abs=1e-5)


def test_a_shape_that_leaves_nothing_fails_alone(make: Make) -> None:
    model = make()
    end = min(model.renderer.stop)
    nothing = written({"allowed_token_ids": [end], "min_tokens": 4})
    bad, good = Talk(model, "a").say("w1"), Talk(model, "b").say("w2")
    both = (model.complete(request) for request in (bad.request(shape=nothing), good.request()))

    async def asked() -> list[Any]:
        return await asyncio.gather(*both, return_exceptions=True)

    found = asyncio.run(asked())
    assert isinstance(found[0], BadInput)
    assert "leaves no token to draw" in str(found[0])
    assert found[1].tokens == ask(model, [good.request()])[0].tokens


WRONG = {
    "min_p=2 has no meaning": {"min_p": 2},
    "presence_penalty=nan": {"presence_penalty": float("nan")},
    "repetition_penalty=0": {"repetition_penalty": 0},
    "logit_bias={'x': 1}": {"logit_bias": {"x": 1}},
    "allowed_token_ids=[-1]": {"allowed_token_ids": [-1]},
    "min_tokens=True": {"min_tokens": True},
    "unknown sampling setting 'minp'": {"minp": 0.1},
}


@pytest.mark.parametrize("said", WRONG)
def test_values_without_a_meaning_are_named(said: str) -> None:
    with pytest.raises(BadInput) as refused:
        sampling_with(Sampling(), WRONG[said])
    assert said in str(refused.value)


def test_settings_are_named_as_others_are_and_neutral_ones_leave_no_trace() -> None:
    made = sampling_with(Sampling(), {"min_p": 0.1, "temperature": 0.7, "logit_bias": {"3": 1}})
    assert shape_of(made.shape) == PLAIN._replace(min_p=0.1, logit_bias={3: 1})
    more = sampling_with(made, {"min_p": 0.0, "ignore_eos": True})
    assert shape_of(more.shape) == PLAIN._replace(logit_bias={3: 1}, ignore_eos=True)
    assert sampling_with(made, {"min_p": 0, "logit_bias": {}}) == Sampling(temperature=0.7)
    neutral = sampling_with(Sampling(), {"presence_penalty": 0, "repetition_penalty": 1})
    assert canonical(sampling_form(neutral)) == canonical(sampling_form(Sampling()))
    assert "shape" not in sampling_form(Sampling())
    with pytest.raises(BadInput, match="is no JSON object"):
        shape_of("[1]")
