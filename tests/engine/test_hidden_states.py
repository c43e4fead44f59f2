"""Hidden states that Local reads are those of a plain transformers forward, in every family, batch and split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from clew.core.errors import BadInput
from clew.models.engine.forwards.fast import CHUNK, Fast
from clew.models.engine.forwards.generic import Generic
from clew.models.engine.taps.blocks import blocks_of, quantised
from clew.models.local import Local
from clew.models.rendering import WordRenderer
from clew.models.taps.tap import Tap
from tests.engine.helpers import WORDS, sharpen

transformers = pytest.importorskip("transformers", reason="did not run: transformers is not installed")
Make = Callable[..., Local]

COMMON = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
COMMON |= {"num_key_value_heads": 2, "max_position_embeddings": 1024, "head_dim": 8, "pad_token_id": 0}
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": COMMON,
    "Qwen2": COMMON,
    "Qwen3": COMMON,
    "Mistral": COMMON | {"sliding_window": None},
    "Gemma": COMMON,
    "Gemma2": COMMON | {"sliding_window": 16, "query_pre_attn_scalar": 8},
    "GPTNeoX": {k: v for k, v in COMMON.items() if k not in ("num_key_value_heads", "head_dim")},
    "GPT2": {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 1024},
}
FAST = ("Llama", "Qwen2", "Qwen3", "Mistral")
LAYERS = ("embed", 0, 1, 2, "norm")


def built(family: str, **options: Any) -> Local:
    """A tiny random model of a family, with logits that differ."""
    renderer = WordRenderer(WORDS)
    head = "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    config = getattr(transformers, f"{family}Config")(vocab_size=len(renderer.words), **FAMILIES[family])
    torch.manual_seed(0)
    module = getattr(transformers, head)(config)
    sharpen(module, by=0.1)
    return Local(module, renderer=renderer, ref=family, **options)


def rows(vocabulary: int, lengths: list[int], seed: int = 0, shared: int = 0) -> list[list[int]]:
    generator = np.random.default_rng(seed)
    start = generator.integers(0, vocabulary, shared).tolist()
    return [[*start, *generator.integers(0, vocabulary, n).tolist()] for n in lengths]


def plain(module: Any, ids: list[int]) -> np.ndarray:
    """[tokens, layers + 2, width]: embeddings, the blocks before any norm, and what the head reads."""
    _, blocks = blocks_of(module)
    kept: dict[int, torch.Tensor] = {}
    handles = [
        block.register_forward_hook(
            lambda _, __, out, i=i: kept.__setitem__(i, (out if isinstance(out, torch.Tensor) else out[0])[0])
        )
        for i, block in enumerate(blocks)
    ]
    with torch.no_grad():
        out = module(torch.tensor([ids]), use_cache=False, output_hidden_states=True)
    for handle in handles:
        handle.remove()
    for i in range(len(blocks) - 1):
        torch.testing.assert_close(kept[i], out.hidden_states[i + 1][0], rtol=0, atol=1e-6)
    return torch.stack([out.hidden_states[0][0], *kept.values(), out.hidden_states[-1][0]], 1).numpy()


def test_the_families_take_the_way_that_is_meant() -> None:
    for family in FAMILIES:
        forward = built(family).engine.reader()
        assert isinstance(forward, Fast if family in FAST else Generic), family


@pytest.mark.parametrize("batch", [1, 8, 64])
@pytest.mark.parametrize("family", FAMILIES)
def test_states_equal_a_plain_forward(family: str, batch: int) -> None:
    model = built(family)
    lengths = np.random.default_rng(batch).integers(1, 40, batch).tolist()
    ids = rows(len(WORDS), lengths)
    for row, states in zip(ids, model.states(ids, LAYERS), strict=True):
        assert states.shape == (len(row), 5, 32)
        assert states.dtype == np.float32
        np.testing.assert_allclose(states, plain(model.module, row), rtol=0, atol=1e-5)
    model.close()


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3", "Mistral", "Gemma2"])
def test_a_prefix_that_rows_share_passes_once_and_changes_nothing(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = built(family)
    ids = rows(len(WORDS), [3, 40, 1, 17], shared=300) + rows(len(WORDS), [5, 60], seed=2)
    passed: list[int] = []
    if family in FAST:
        packed = Fast._packed
        monkeypatch.setattr(
            Fast,
            "_packed",
            lambda self, s, i, *a, **k: (passed.append(sum(map(len, i))), packed(self, s, i, *a, **k))[1],
        )
    positions = [[0, 299, 300, len(row) - 1] if len(row) > 301 else [len(row) - 1] for row in ids]
    positions[2] = [299, 300]
    found = model.states(ids, [2, 0], positions)
    for row, at, states in zip(ids, positions, found, strict=True):
        np.testing.assert_allclose(states, plain(model.module, row)[at][:, [3, 1]], rtol=0, atol=1e-5)
    if family in FAST:
        assert sum(passed) == 300 + 3 + 40 + 1 + 17 + 5 + 60
    model.close()


def test_rows_longer_than_a_piece_and_no_deeper_than_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    model = built("Qwen3")
    ids = rows(len(WORDS), [CHUNK + 70, 9, CHUNK])
    ran: list[int] = []
    rest = Fast._rest
    monkeypatch.setattr(Fast, "_rest", lambda self, *given: (ran.append(1), rest(self, *given))[1])
    at = [[0, CHUNK - 1, CHUNK, CHUNK + 60], [], [CHUNK - 1]]
    found = model.states(ids, [1], at)
    whole = plain(model.module, ids[0])
    np.testing.assert_allclose(found[0][:, 0], whole[at[0], 2], rtol=0, atol=1e-5)
    assert found[1].shape == (0, 1, 32)
    np.testing.assert_allclose(found[2][0, 0], plain(model.module, ids[2])[-1, 2], rtol=0, atol=1e-5)
    assert len(ran) % 2 == 0
    assert len(ran) < 3 * 3, "layer 2 was not needed"
    model.close()


def test_states_are_of_the_weights_that_are_served_next(make: Make) -> None:
    model = make()
    ids = rows(40, [12])
    before = model.states(ids, [1])[0]
    sharpen(model.module, seed=9, by=0.05)
    np.testing.assert_array_equal(model.states(ids, [1])[0], before)
    model.publish()
    np.testing.assert_allclose(model.states(ids, [1])[0][:, 0], plain(model.module, ids[0])[:, 2], rtol=0, atol=1e-5)
    model.close()


@pytest.mark.parametrize("family", ["Qwen3", "Gemma2"])
def test_what_cannot_be_read_is_said(family: str) -> None:
    model = built(family)
    for layers in ([3], [-1], ["top"], [0.5], [True], [0, 0], []):
        with pytest.raises(BadInput, match=r"no layer|name none, or one twice") as caught:
            model.states([[1, 2]], layers)
        assert caught.value.remedy
    for wanted in ([2], [1, 0], [-1]):
        with pytest.raises(BadInput, match="do not rise"):
            model.states([[1, 2]], [0], [wanted])
    with pytest.raises(BadInput, match="width 3"):
        model.states([[1, 2]], [0], taps=[[Tap(1, add=(1.0, 0.0, 0.0))]])
    with pytest.raises(BadInput, match="no layer 7"):
        model.states([[1, 2]], [0], taps=[[Tap(7, add=(1.0,) * 32)]])
    model.close()


def test_quantised_weights_are_refused() -> None:
    model = built("Qwen3", fast=False)
    assert quantised(model.module) == ""
    model.module.model.layers[0].mlp.down_proj.weight = torch.nn.Parameter(
        torch.zeros(32, 64, dtype=torch.int8), requires_grad=False
    )
    other = Local(model.module, renderer=model.renderer, ref="packed", fast=False)
    with pytest.raises(BadInput, match=r"quantised \(int8\)"):
        other.states([[1, 2]], [0])


def test_of_a_long_row_the_last_token_alone_can_be_read():
    """The first stretch of it is passed, and none of its tokens is kept."""
    model = built("Qwen3")
    row = rows(model.vocabulary, [CHUNK + 40])[0]
    every = model.states([row], [1, "norm"])[0]
    (last,) = model.states([row], [1, "norm"], [[len(row) - 2]])
    assert np.abs(last[0] - every[-2]).max() < 1e-4
