"""Speculation in the engine: what comes out is what plain decoding gives, whatever is drafted and verified."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from clew.models.engine.budget import Fixed
from clew.models.local import Local
from tests.engine.drafters import Blind, Stubborn, Twin, Witness
from tests.engine.helpers import WORDS, Talk, ask, sharpen

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
