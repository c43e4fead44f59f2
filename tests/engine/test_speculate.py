"""Rejection sampling of ragged blocks: the law emitted is the target's for any drafter; noise is used once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from clew.core.values import Sampling
from clew.models.engine.speculation.verification import Drafted, Uniforms, judge, uniforms
from clew.models.sampling import Laws, draw, in_force

SETTINGS = [Sampling(), Sampling(temperature=0.7), Sampling(top_k=3), Sampling(top_p=0.7), Sampling(temperature=0.0)]


def chain(seed: int, words: int = 5) -> torch.Tensor:
    """Logits by the token before, [words, words]."""
    return torch.from_numpy(np.random.default_rng(seed).normal(0, 1.5, (words, words)))


def rounds(n: int, lengths: np.ndarray, laws: Laws, target: torch.Tensor, drafter: torch.Tensor) -> np.ndarray:
    """First and second token [n, 2] of one round each, completed by the target where the round gave one alone."""
    k = int(lengths.max())
    u = uniforms(np.arange(n, dtype=np.uint64), np.full(n, 4, np.uint64), k)
    last, tokens, logq = torch.zeros(n, dtype=torch.long), [], []
    for j in range(k):
        logits = drafter[last]
        last = draw(logits, laws, torch.from_numpy(u.draft[:, j : j + 1].copy()))[0][:, 0]
        tokens.append(last)
        logq.append(in_force(logits, laws))
    proposed = torch.stack(tokens, 1)
    before = torch.cat((torch.zeros(n, 1, dtype=torch.long), proposed), 1)
    row = np.repeat(np.arange(n), lengths + 1)
    place = np.arange(len(row)) - (np.cumsum(lengths + 1) - lengths - 1)[row]
    logp = in_force(target[before[row, place]], laws.take(row))
    verdict = judge(logp, proposed, torch.stack(logq, 1), lengths, u)
    assert (verdict.accepted <= lengths).all()
    out = verdict.tokens[:, :2].copy()
    out = np.pad(out, ((0, 0), (0, 2 - out.shape[1])))
    short = verdict.accepted == 0
    v = torch.from_numpy(np.random.default_rng(1).random((n, 1)))
    out[short, 1] = draw(target[torch.from_numpy(out[:, 0])], laws, v)[0][:, 0].numpy()[short]
    return out


@pytest.mark.parametrize("asked", SETTINGS[:4])
@pytest.mark.parametrize("other", [1, 2])
def test_the_law_emitted_is_the_targets(asked: Sampling, other: int) -> None:
    """Two tokens' joint law, chi-square, for lengths 0 to 3 side by side; seed 1 drafts from the target's own law."""
    n, target = 24_000, chain(1)
    laws = Laws.of([asked] * n)
    pairs = rounds(n, np.arange(n) % 4, laws, target, chain(other))
    one = Laws.of([asked])
    first = in_force(target[:1], one).exp()[0]
    law = (first[:, None] * in_force(target, Laws.of([asked] * 5)).exp()).numpy().ravel()
    counts = np.bincount(pairs[:, 0] * 5 + pairs[:, 1], minlength=25)
    assert not counts[law == 0].any()
    likely = law * n > 5
    seen, due = np.append(counts[likely], counts[~likely].sum()), np.append(law[likely], law[~likely].sum()) * n
    assert stats.chisquare(seen[due > 0], due[due > 0]).pvalue > 1e-3


def test_greedy_is_a_point_mass_whatever_is_drafted() -> None:
    n, target = 60, chain(3)
    laws = Laws.of([Sampling(temperature=0.0)] * n)
    pairs = rounds(n, np.arange(n) % 4, laws, target, chain(4))
    best = int(target[0].argmax())
    assert (pairs[:, 0] == best).all()
    assert (pairs[:, 1] == int(target[best].argmax())).all()


def test_what_is_recorded_is_the_targets_law_as_plain_decoding_records_it() -> None:
    target, laws = chain(5), Laws.of([Sampling(temperature=0.8, top_k=4)] * 2)
    one = int(target[0].argmax())
    two = int(target[one].argmax())
    proposed, lengths = torch.tensor([[one, two], [3, 0]]), np.array([2, 0])
    logq = in_force(target[[0, one, 0, 3]], laws.take(np.array([0, 0, 1, 1]))).view(2, 2, 5)
    u = uniforms(np.array([7, 8], np.uint64), np.zeros(2, np.uint64), 2)
    logp = in_force(target[[0, one, two, 0]], laws.take(np.array([0, 0, 0, 1])))
    verdict = judge(logp, proposed, logq, lengths, u)
    assert verdict.accepted.tolist() == [2, 0]  # drafted from the target's law
    for row, first in ((0, 0), (1, 3)):
        for place in range(verdict.accepted[row] + 1):
            law = logp[first + place]
            assert verdict.logprobs[row, place] == pytest.approx(float(law[verdict.tokens[row, place]]), abs=1e-6)
            p = law[law > -torch.inf]
            assert verdict.negentropies[row, place] == pytest.approx(float((p.exp() * p).sum()), abs=1e-6)


def test_noise_depends_on_seed_index_and_purpose_and_is_new_in_every_round() -> None:
    seeds = np.array([5, 9], np.uint64)
    alone, both = uniforms(seeds[:1], np.array([3], np.uint64), 4), uniforms(seeds, np.array([3, 3], np.uint64), 4)
    assert all((a[0] == b[0]).all() for a, b in zip(alone, both, strict=True))
    later = uniforms(seeds[:1], np.array([4], np.uint64), 4)
    assert (later.accept[0, :3] == alone.accept[0, 1:]).all()  # of the token index
    assert (later.final[0, :3] == alone.final[0, 1:4]).all()
    assert not np.isin(later.draft, alone.draft).any()  # the same tokens, drafted anew
    many = uniforms(np.arange(4000, dtype=np.uint64), np.zeros(4000, np.uint64), 3)
    every = np.hstack(many)
    assert stats.kstest(every.ravel(), "uniform").pvalue > 1e-3
    assert np.abs(np.corrcoef(every.T) - np.eye(every.shape[1])).max() < 0.08


def test_what_the_law_rules_out_is_never_drawn() -> None:
    """At both ends of [0, 1), of a law itself and of what a refused draft leaves of it."""
    p, q = torch.tensor([[0.0, 0.5, 0.5, 0.0]] * 4).log(), torch.tensor([[[0.0, 0.0, 1.0, 0.0]]] * 2).log()
    low, high = 0.0, np.nextafter(1.0, 0.0)
    final = np.array([[low, low], [high, high]])
    u = Uniforms(final[:, :1], np.full((2, 1), 0.75), final)
    plain = judge(p[:2], torch.zeros(2, 0, dtype=torch.int64), q[:, :0], np.array([0, 0]), u)
    assert (plain.accepted.tolist(), plain.tokens.tolist()) == ([0, 0], [[1], [2]])
    refused = judge(p, torch.tensor([[2], [2]]), q, np.array([1, 1]), u)
    assert (refused.accepted.tolist(), refused.tokens[:, 0].tolist()) == ([0, 0], [1, 1])


def test_counts_by_position() -> None:
    counts = Drafted(3)
    chance = np.array([[0.5, 0.4, 0.3], [0.9, 0.8, 0.7], [0.6, 0.6, 0.6], [0.2, 0.2, 0.2]])
    counts.note(np.array([3, 2, 0, 1]), np.array([1, 2, 0, 1]), np.array([2, 3, 1, 2]), chance)
    assert (counts.rounds, counts.emitted, counts.bonus, counts.recovered) == (4, 8, 2, 1)
    assert counts.proposed.tolist() == [3, 2, 1]
    assert counts.accepted.tolist() == [3, 1, 0]
    assert counts.reached.tolist() == [3, 2, 0]
    assert counts.told.tolist() == pytest.approx([1.6, 1.2, 0.0])
