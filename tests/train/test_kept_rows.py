"""Rows sampled under top-p, top-k and a grammar train on the law that these left: gradients equal a direct computation.

Everything here is computed in float64, and the direct computation reads no record of what was left: it cuts the
module's own logits again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="did not run: torch is not installed (pip install 'clew[local]')")
pytest.importorskip("llguidance", reason="did not run: llguidance is not installed (pip install 'clew[local]')")

import torch
import transformers

from clew.core.errors import BadInput
from clew.fit.trainer import Trainer
from clew.harness import Runner
from clew.harness.agents import player
from clew.models.engine.speculation.lengths import Fixed
from clew.models.kept import pack, unpack
from clew.models.local import Local
from clew.models.rendering import ChatTemplateRenderer
from clew.store.sqlite.store import SQLiteStore
from clew.train import losses
from clew.train.dump import dump, load
from clew.train.rows import reference, rows
from tests.engine.drafters import Twin
from tests.engine.test_rendering import PLAIN, tokenizer

CUTS = {
    "top_p": {"top_p": 0.9},
    "top_k": {"top_k": 20},
    "both": {"top_p": 0.9, "top_k": 20},
    "min_p": {"min_p": 0.05, "top_p": 0.9, "min_tokens": 3},
    "temperature": {"top_p": 0.9, "top_k": 20, "temperature": 0.7},
    "grammar": {"top_p": 0.9, "top_k": 20, "temperature": 1.3, "grammar": "regex:[a-z ]{3,12}"},
}


@pytest.fixture
def lead():
    """Makes untrained models of bytes in float64 whose laws are neither flat nor sharp."""
    made = []
    yield lambda seed=0, steady=True: made.append(_lead(seed, steady)) or made[-1]
    for model in made:
        model.close()


def _lead(seed, steady):
    torch.manual_seed(seed)
    config = transformers.Qwen3Config(
        vocab_size=262, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, max_position_embeddings=2048, tie_word_embeddings=False,
    )  # fmt: skip
    module = transformers.Qwen3ForCausalLM(config).double()
    torch.nn.init.normal_(module.lm_head.weight, std=0.4)
    return Local(module, renderer=ChatTemplateRenderer(tokenizer(PLAIN)), ref="lead", steady=steady)


def collected(model, house, store=":memory:", **sampling):
    runner = Runner(player, house, model, sampling={"max_tokens": 6, **sampling}, store=store)
    groups = runner.collect(house.sample(1), n=3, seed=1)
    asks = [(run, call) for run in groups.runs for call in run.calls if call.kind == "ask"]
    return groups, {(call.run, call.seq): float(i % 3) - 0.9 for i, (_, call) in enumerate(asks)}


def law(logits, sampling, banned=None):
    """The law in force of one place, by the definition: temperature, grammar, top-k, then the least set of top-p."""
    logits = logits / sampling["temperature"]
    if banned is not None:
        logits = logits.masked_fill(torch.from_numpy(banned), -torch.inf)
    order = sorted(range(len(logits)), key=lambda i: (-float(logits[i].detach()), i))
    least = float(logits.detach().max()) + np.log(max(sampling["min_p"], 1e-300))
    order = [i for i in order if torch.isfinite(logits[i]) and logits[i] >= least][: sampling["top_k"] or None]
    p, some, total = logits[order].softmax(0).tolist(), [], 0.0
    for i, share in zip(order, p, strict=True):
        some.append(i)
        total += share
        if total >= sampling["top_p"]:
            break
    return some, logits[some].log_softmax(0)


def directly(model, made, sampling, ref=None):
    """The loss of rows, token by token: policy gradient, entropy and a penalty towards a reference."""
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "grammar": "", "min_p": 0.0, "min_tokens": 0} | sampling
    total, count, chosen_of = 0.0, 0, []
    for row in made:
        ids = torch.from_numpy(row.ids.astype(np.int64))
        logits = model.module(input_ids=ids[None], use_cache=False).logits[0]
        with torch.no_grad():
            other = None if ref is None else ref.module(input_ids=ids[None], use_cache=False).logits[0]
        for first, stop, _ in row.kept:
            guide = model.guide(sampling["grammar"]) if sampling["grammar"] else None
            for place in range(first, stop):
                banned = guide.banned() if guide else None
                if place - first < sampling["min_tokens"]:
                    banned = np.isin(np.arange(logits.shape[1]), sorted(model.renderer.stop))
                some, logp = law(logits[place - 1], sampling, banned)
                mine = logp[some.index(int(ids[place]))]
                chosen_of.append(float(mine.detach()))
                total = total - float(row.weights["pg"][place]) * mine
                total = total + 0.02 * (logp.exp() * logp).sum()
                if other is not None:
                    renormalised = (other[place - 1][some] / sampling["temperature"]).log_softmax(0)
                    gap = renormalised[some.index(int(ids[place]))] - mine
                    total = total + 0.1 * (gap.exp() - gap - 1)
                count += 1
                if guide:
                    guide.take([int(ids[place])])
    return total / count, np.array(chosen_of)


def plain(t):
    """A loss without clipping: its gradient is the policy gradient."""
    return -(t.weights * t.logp * t.mask).sum(), t.mask.sum()


def gradients(model, loss):
    model.module.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.module.named_parameters()}


def stepped(model, made):
    """Gradients of a Trainer's step whose rate is 0."""
    chosen = {"pg": plain, "entropy": losses.entropy, "kl": losses.kl}
    report = Trainer(model, lr=0.0, losses=chosen, clip=None).step(made)
    return {name: p.grad.clone() for name, p in model.module.named_parameters()}, report


@pytest.mark.parametrize("cut", CUTS)
def test_gradients_are_those_of_the_law_that_was_left(cut, house, lead):
    model, ref = lead(), lead(seed=1)
    groups, values = collected(model, house, **CUTS[cut])
    made = rows(groups, values, also={"entropy": 0.02, "kl": 0.1})
    made = reference(made, ref)
    assert all(row.kept and not row.held for row in made)
    loss, old = directly(model, made, CUTS[cut], ref)
    np.testing.assert_allclose(np.concatenate([row.old[row.sampled] for row in made]), old, atol=1e-6)
    want = gradients(model, loss)
    got, report = stepped(model, made)
    assert report.mismatch < 1e-6
    assert {name for name in want if want[name].abs().max() > 1e-4} >= {"model.embed_tokens.weight", "lm_head.weight"}
    for name, value in want.items():
        torch.testing.assert_close(got[name], value, atol=1e-6, rtol=1e-6)


def test_what_was_left_comes_back_from_a_store_and_a_file(house, lead, tmp_path):
    groups, values = collected(lead(), house, tmp_path / "store.db", **CUTS["both"])
    made = rows(groups, values)
    again = SQLiteStore(tmp_path / "store.db")
    calls = [call for run in groups.runs for call in again.calls(run.id) if call.kind == "ask"]
    assert [call.kept for call in calls] == [ids for row in made for _, _, ids in row.kept]
    assert again.verify() == []
    for call in calls:
        assert [1 <= len(ids) <= 20 for ids in unpack(call.kept)] == [True] * len(call.logprobs)
    back = load(dump(made, tmp_path / "rows.npz"))
    assert [row.kept for row in back] == [row.kept for row in made]
    again.close()


def test_sampling_that_cuts_nothing_notes_nothing(house, lead):
    model = lead()
    groups, values = collected(model, house)
    assert all(not row.kept for row in rows(groups, values))
    groups, values = collected(model, house, top_k=262)
    made = rows(groups, values)
    assert all(len(ids) == 0 for row in made for _, _, sets in row.kept for ids in unpack(sets))
    assert Trainer(model).step(made).mismatch < 1e-6


@pytest.mark.parametrize("cut", ["both", "temperature"])
def test_drafts_leave_the_same_record(cut, house, lead):
    """Several tokens a round, verified by the target: what is noted of each is its own law."""
    model = lead(steady=False)
    model.engine._batch.attach(Twin(model.module, context=2048), Fixed(3))
    groups, values = collected(model, house, **CUTS[cut])
    assert sum(model.engine._batch.drafts.counts.accepted) > 0
    made = rows(groups, values)
    _, old = directly(model, made, CUTS[cut])
    np.testing.assert_allclose(np.concatenate([row.old[row.sampled] for row in made]), old, atol=1e-6)
    assert Trainer(model).step(made).mismatch < 1e-6


def test_records_that_do_not_fit_are_refused(house, lead):
    model = lead()
    groups, values = collected(model, house, **CUTS["both"])
    first, *_ = rows(groups, values)
    (start, stop, ids), *more = first.kept

    def with_sets(sets):
        return [replace(first, kept=[(start, stop, pack(sets)), *more])]

    sets = unpack(ids)
    other = np.setdiff1d(np.arange(262), [first.ids[start]])[:20]
    with pytest.raises(BadInput, match="is none of the 20 that truncation left"):
        Trainer(model).step(with_sets([other, *sets[1:]]))
    with pytest.raises(BadInput, match="of a vocabulary of 262"):
        Trainer(model).step(with_sets([np.append(sets[0], 300), *sets[1:]]))
    with pytest.raises(BadInput, match="damaged"):
        Trainer(model).step(with_sets(sets[1:]))
    with pytest.raises(BadInput, match="sampler and trainer disagree"):  # against the free law every ratio is wrong
        Trainer(model).step([replace(first, kept=[])])
    with pytest.raises(BadInput, match="cannot score what top_p and top_k left"):
        reference([first], OnlyScores())


class OnlyScores:
    """A reference at an endpoint: it scores the free law alone."""

    def score(self, ids, temperature=1.0):
        return [np.zeros(len(row) - 1, np.float32) for row in ids]


def test_penalties_are_recorded_and_do_not_train(house, lead, tmp_path):
    groups, values = collected(lead(), house, store=tmp_path / "kept.db", presence_penalty=1.5, logit_bias={"70": 2})
    run = groups.runs[0]
    with SQLiteStore(tmp_path / "kept.db") as store:
        asks = [call for call in store.run(run.id).calls if call.kind == "ask"]
        assert {call.setup.asked.shape for call in asks} == {'{"logit_bias": {"70": 2}, "presence_penalty": 1.5}'}
        assert list(store.verify()) == []
    assert Runner(player, house, None, store=tmp_path / "kept.db").replay(run.id).calls == len(run.calls)
    with pytest.raises(BadInput, match="bends the model's law: a trainer cannot compute it again"):
        rows(groups, values)
