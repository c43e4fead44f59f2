"""The law in force against transformers' own warpers, and the draw against the law."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import TopKLogitsWarper, TopPLogitsWarper

from clew.core.errors import BadInput
from clew.core.values import Sampling, check_sampling
from clew.models.sampling import Laws, draw, in_force, noise

LOGITS = torch.from_numpy(np.random.default_rng(0).normal(0, 2, (5, 30)))
SETTINGS = [
    Sampling(), Sampling(temperature=0.5), Sampling(top_k=4), Sampling(top_p=0.6), Sampling(9, 1.7, 0.8, 7),
]  # fmt: skip


@pytest.mark.parametrize("asked", SETTINGS)
def test_law_is_that_of_transformers(asked: Sampling) -> None:
    ours = in_force(LOGITS, Laws.of([asked] * 5))
    scores = LOGITS / asked.temperature
    if asked.top_k:
        scores = TopKLogitsWarper(asked.top_k)(None, scores)
    if asked.top_p < 1:
        scores = TopPLogitsWarper(asked.top_p)(None, scores)
    torch.testing.assert_close(ours.exp(), scores.softmax(-1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("asked", SETTINGS)
def test_draws_follow_the_law(asked: Sampling) -> None:
    n = 20_000
    laws = Laws.of([asked] * n)
    logits = LOGITS[:1].expand(n, -1)
    u = noise(np.arange(n, dtype=np.uint64), np.full(n, 3, np.uint64), 1)[:, 0]
    tokens, logprobs, _ = draw(logits, laws, torch.from_numpy(u)[:, None])[:3]
    tokens, logprobs = tokens[:, 0], logprobs[:, 0]
    law = in_force(logits[:1], Laws.of([asked]))[0]
    assert torch.equal(logprobs, law[tokens])
    p = law.exp().numpy()
    counts = np.bincount(tokens.numpy(), minlength=30)
    assert not counts[p == 0].any()
    likely = p * n > 5
    rest = np.array([p[~likely].sum()]) if p[~likely].sum() > 0 else np.zeros(0)
    found = np.append(counts[likely], counts[~likely].sum()) if rest.size else counts[likely]
    assert stats.chisquare(found, np.append(p[likely], rest) * n).pvalue > 1e-3


def test_rows_of_a_mixed_batch_are_those_of_their_own() -> None:
    mixed = [*SETTINGS[:4], Sampling(temperature=0.0)]
    u = torch.from_numpy(noise(np.arange(5, dtype=np.uint64), np.zeros(5, np.uint64), 1))
    tokens, logprobs, entropies = draw(LOGITS, Laws.of(mixed), u)[:3]
    for i, asked in enumerate(mixed):
        one = draw(LOGITS[i : i + 1], Laws.of([asked]), u[i : i + 1])
        assert (tokens[i], logprobs[i], entropies[i]) == (one[0][0], one[1][0], one[2][0])
    assert tokens[4] == LOGITS[4].argmax()
    assert (logprobs[4], entropies[4]) == (0, 0)


def test_noise_depends_on_seed_and_place_alone() -> None:
    seeds = np.array([5, 5, 9], np.uint64)
    block = noise(seeds, np.array([0, 2, 0], np.uint64), 6)
    assert (block[0, 2:] == block[1, :4]).all()
    assert block[0, 0] != block[2, 0]
    many = noise(np.arange(20_000, dtype=np.uint64), np.zeros(20_000, np.uint64), 2)
    assert stats.kstest(many[:, 0], "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(many.T)[0, 1]) < 0.03


def test_the_last_token_with_probability_is_the_last_that_can_be_drawn() -> None:
    logits = torch.full((1, 6), -torch.inf)
    logits[0, :3] = torch.tensor([0.0, 1.0, -3.0])
    tokens, _, entropy = draw(
        logits, Laws.of([Sampling(top_k=4)]), torch.tensor([[1 - 2.0**-40]], dtype=torch.float64)
    )[:3]
    assert tokens[0] == 2
    assert entropy[0] < 0


@pytest.mark.parametrize(
    "asked",
    [
        Sampling(temperature=-0.1),
        Sampling(temperature=float("nan")),
        Sampling(top_p=0.0),
        Sampling(top_k=-1),
        Sampling(-1),
    ],
)
def test_settings_without_a_meaning_are_refused(asked: Sampling) -> None:
    with pytest.raises(BadInput, match="cannot sample"):
        check_sampling(asked)
