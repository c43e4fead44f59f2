"""Rows over their trie give the losses and gradients of rows one by one, and each shared token passes once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers

from clew.core.errors import BadInput
from clew.core.records import LossRow
from clew.fit.prefixes import trie
from clew.fit.trainer import Trainer
from clew.train import losses

from .helpers import VOCABULARY, Served, logprobs, module


def forks(net, n=16, prefix=40, ends=20, seed=0, temperature=1.0):
    """Rows of a group: forks at two depths behind one prefix, of unequal length, a row that begins another, and one
    that begins like none."""
    rng = np.random.default_rng(seed)

    def some(length):
        return rng.integers(3, VOCABULARY, length).astype(np.int32)

    begin, middle = some(prefix), [some(7), some(5)]
    every = [np.concatenate([begin, middle[i % 2], some(int(rng.integers(3, ends)))]) for i in range(n - 2)]
    every += [every[0][:-2], some(9)]
    out = []
    for i, ids in enumerate(every):
        sampled = np.arange(len(ids)) >= (prefix if i else 5)  # the first row trains the shared part
        old = np.where(sampled, logprobs(net, ids, temperature), np.nan).astype(np.float32)
        weights = {"pg": (sampled * rng.normal()).astype(np.float32), "entropy": (sampled * 0.02).astype(np.float32)}
        ref = np.where(sampled, old + 0.1, 0).astype(np.float32)
        weights["kl"] = (sampled * 0.1).astype(np.float32)
        out.append(LossRow(ids, sampled, weights, old, ref, temperature=temperature))
    return out


def stepped(dtype, rows, mode, **settings):
    """The report of a step whose rate is 0, its gradients, and how many tokens passed the model."""
    served = Served(dtype=dtype)
    served.module = sharp(dtype)
    trainer = Trainer(served, lr=0.0, losses={"kl": losses.kl}, clip=None, shared_prefixes=mode, **settings)
    passed = []
    served.module.get_input_embeddings().register_forward_pre_hook(lambda _, given: passed.append(given[0].numel()))
    report = trainer.step(rows)
    return report, {name: p.grad.clone() for name, p in served.module.named_parameters()}, sum(passed)


def sharp(dtype=torch.float32):
    """A module whose attention tells tokens apart: at usual first weights its gradients are near 0."""
    made = module(dtype=dtype)
    with torch.no_grad():
        for weight in made.parameters():
            weight.mul_(8 if weight.ndim > 1 else 1)
    return made


def test_a_trie_holds_each_shared_token_once():
    rows = [np.array(r) for r in ([1, 2, 3, 4], [1, 2, 5], [1, 2, 3], [7, 8], [1, 2, 3, 4], [1, 2, 5, 6])]
    made = trie.lay(rows)
    assert sorted(made.ids.tolist()) == [1, 2, 3, 4, 5, 6, 7, 8]
    for row, where in zip(rows, made.where, strict=True):
        assert made.ids[where].tolist() == row.tolist()
        assert made.depth[where].tolist() == list(range(len(row)))
    assert [stop for _, stop, _ in made.runs] == [start for start, _, _ in made.runs[1:]] + [8]
    nested = trie.lay([np.array(r) for r in ([1, 2, 3], [1, 4, 5], [1, 4, 6])])
    assert nested.runs[-1].before == ((0, 1), (3, 4)), "a fork of a fork sees two ranges"


SETTINGS = [{}, {"batch_tokens": 80}, {"weight_by": "row"}, {"chunk": 7 * VOCABULARY}]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_losses_and_gradients_are_those_of_row_by_row(dtype, settings):
    rows = forks(sharp(dtype), temperature=0.8)
    alone, want, every = stepped(dtype, rows, "off", **settings)
    made, got, once = stepped(dtype, rows, "on", **settings)
    assert made.mismatch < 1e-5
    assert made.trained == alone.trained
    assert once < 0.6 * every
    for name, loss in alone.loss.items():
        assert made.loss[name] == pytest.approx(loss, abs=1e-6), name
    for name, value in want.items():
        assert value.abs().max() > 1e-3, name
        torch.testing.assert_close(got[name], value, atol=1e-6 * max(1.0, float(value.abs().max())), rtol=0)


def test_auto_takes_the_trie_where_it_pays():
    rows = forks(sharp())
    assert trie.size_of(rows) < 0.6 * sum(len(row.ids) for row in rows)
    _, _, every = stepped(torch.float32, rows, "off")
    _, _, once = stepped(torch.float32, rows, "auto")
    assert once < 0.7 * every
    apart = unlike(forks(sharp(), ends=4)[:-2])  # nearly of one length
    assert stepped(torch.float32, apart, "auto")[2] == stepped(torch.float32, apart, "off")[2]
    assert trie.plan(apart, 10_000) == [list(range(len(apart)))]


def unlike(rows):
    """These rows with first tokens of their own, so that no two begin alike."""
    out = [replace(row, ids=row.ids.copy()) for row in rows]
    for i, row in enumerate(out):
        row.ids[0] = 3 + i
        row.old[row.sampled] = logprobs(sharp(), row.ids)[row.sampled]
    return out


def test_rows_of_unequal_length_are_packed_where_padding_would_cost_more():
    rows = unlike(forks(sharp(), n=9, prefix=6, ends=12) + forks(sharp(), n=4, prefix=45, ends=20, seed=1)[:-1])
    lengths = [len(row.ids) for row in rows]
    assert sum(lengths) < 0.7 * len(rows) * max(lengths)
    alone, want, every = stepped(torch.float32, rows, "off")
    made, got, packed = stepped(torch.float32, rows, "auto")
    assert every == len(rows) * max(lengths)
    assert packed <= sum(lengths) + 30, "and the short rows by which the trainer finds out that the model can"
    assert made.mismatch < 1e-5
    assert made.loss == pytest.approx(alone.loss, abs=1e-6)
    for name, value in want.items():
        torch.testing.assert_close(got[name], value, atol=1e-6 * max(1.0, float(value.abs().max())), rtol=0)


def served(config, make=transformers.AutoModelForCausalLM.from_config):
    out = Served()
    torch.manual_seed(0)
    out.module = make(config)
    return out


SIZES = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
GQA = {**SIZES, "intermediate_size": 32, "num_key_value_heads": 1}
CANNOT = {
    "sliding_window": transformers.MistralConfig(**GQA, sliding_window=8),
    "see a whole row": transformers.Qwen2Config(**GQA, use_sliding_window=True, sliding_window=8, max_window_layers=0),
    "trains with dropout": transformers.LlamaConfig(**GQA, attention_dropout=0.1),
    "linear_attention": transformers.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, state_size=4
    ),
    "ask for more than plain attention": transformers.Gemma2Config(
        **GQA, head_dim=8, layer_types=["full_attention"] * 2
    ),
}


@pytest.mark.parametrize("why", CANNOT)
def test_a_model_that_cannot_is_refused_in_a_sentence_or_trained_row_by_row(why):
    made = served(CANNOT[why])
    rows = forks(made.module.eval())
    passed = []
    made.module.get_input_embeddings().register_forward_pre_hook(lambda _, given: passed.append(given[0].numel()))
    with pytest.raises(BadInput, match=f"cannot compute shared prefixes once: it.*{why}"):
        Trainer(made, shared_prefixes="on").step(rows)
    passed.clear()
    Trainer(made, lr=0.0, losses={"kl": losses.kl}, tolerance=10).step(rows)
    assert sum(passed) >= sum(len(row.ids) for row in rows)


@pytest.mark.parametrize("config", [transformers.LlamaConfig(**GQA), transformers.Qwen2Config(**GQA)])
@pytest.mark.parametrize("settings", [{}, {"lora": {"r": 2, "target_modules": ["q_proj", "v_proj"]}}])
def test_other_models_and_adapters(config, settings):
    found = []
    for mode in ("off", "on"):
        made = served(config)
        trainer = Trainer(made, lr=0.0, losses={"kl": losses.kl}, clip=None, shared_prefixes=mode, seed=0, **settings)
        for name, weight in trainer.module.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(1))
        trainer.step(forks(made.module))
        found.append({name: p.grad.clone() for name, p in trainer.module.named_parameters() if p.grad is not None})
        assert made.module.config._attn_implementation == "sdpa", "the model has its own attention back"
    assert found[0].keys() == found[1].keys()
    assert len(found[0]) >= 8
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, atol=1e-6 * max(1.0, float(value.abs().max())), rtol=0)


def test_an_unknown_mode_is_refused():
    with pytest.raises(BadInput, match="shared_prefixes='always'"):
        Trainer(Served(), shared_prefixes="always")
