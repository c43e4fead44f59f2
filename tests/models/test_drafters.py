"""Drafters: what the engine's form of each proposes is what its module says, and a folder comes back as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clew.core.errors import BadInput, UnknownName
from clew.core.values import Sampling
from clew.models.drafters import calibration, folder, load, ready
from clew.models.drafters.plain import Lookup
from clew.models.engine.forwards.weights import weights_digest
from clew.models.sampling import Laws

transformers = pytest.importorskip("transformers")

KINDS: dict[str, dict[str, Any]] = {
    "dflash": {"kind": "dflash"},
    "dspark": {"kind": "dspark", "rank": 8, "confidence": True},
    "gated": {"kind": "dspark", "rank": 8, "confidence": True, "head": "gated"},
    "rnn": {"kind": "dspark", "rank": 8, "confidence": True, "head": "rnn"},
    "eagle3": {"kind": "eagle3"},
    "independent": {"kind": "independent"},
}
VOCABULARY, BLOCK, LENGTH = 24, 4, 20


def tiny(seed: int = 0, vocabulary: int = VOCABULARY, width: int = 32) -> Any:
    torch.manual_seed(seed)
    config = transformers.Qwen3Config(
        vocab_size=vocabulary, hidden_size=width, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1,
        head_dim=16, intermediate_size=48, max_position_embeddings=64, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    return transformers.Qwen3ForCausalLM(config).eval()


def made(name: str, target: Any, seed: int = 1) -> Any:
    """A drafter whose weights are all random: none is left at the zero where training begins."""
    module = folder.fresh(folder.design_for(target, mask=1, block=BLOCK, **KINDS[name]), target)
    generator = torch.Generator().manual_seed(seed)
    for key, p in module.named_parameters():
        if p.requires_grad and not key.endswith("norm.weight"):
            p.data = torch.randn(p.shape, generator=generator) * 0.3
    return module.double().eval()


def taps(target: Any, ids: torch.Tensor, layers: tuple[int, ...]) -> torch.Tensor:
    with torch.no_grad():
        states = target.model(input_ids=ids, output_hidden_states=True).hidden_states
    return torch.cat([states[t + 1] for t in layers] or [states[0][..., :0]], -1)


@pytest.mark.parametrize("name", KINDS)
def test_proposes_what_its_module_says(name: str) -> None:
    """Rows of other lengths, fed in pieces, one of them rewound: laws as the module's own, tokens drawn from them."""
    target = tiny().double()
    module, rng = made(name, target), np.random.default_rng(0)
    ids = torch.from_numpy(rng.integers(2, VOCABULARY, (3, LENGTH)))
    hidden = taps(target, ids, module.design.taps)
    drafter = ready(module)
    drafter.resize(2, 16)
    drafter.resize(5, LENGTH)
    rows, positions = np.array([3, 0, 2]), np.array([11, 20, 6])
    for row, where, n in zip(rows, range(3), positions, strict=True):
        for start, end in ((0, 4), (2, 5), (5, int(n))):
            part = [ids[where, start:end].tolist()]
            drafter.extend(np.array([row]), part, np.array([start]), hidden[where, start:end])
    drafter.move([2], [4], 6)
    rows = np.array([3, 0, 4])
    anchors, u = np.array([5, 6, 7]), rng.random((3, BLOCK))
    together = drafter.propose(rows, anchors, positions, Laws(), u)
    for i in range(3):
        one = drafter.propose(rows[i : i + 1], anchors[i : i + 1], positions[i : i + 1], Laws(), u[i : i + 1])
        torch.testing.assert_close(one.logq[0], together.logq[i])
        assert one.tokens.tolist()[0] == together.tokens.tolist()[i]
        torch.testing.assert_close(one.chance[0], together.chance[i])
        n = int(positions[i])
        whole = torch.cat((ids[i, :n], torch.tensor([anchors[i]]), one.tokens[0], torch.zeros(1, dtype=torch.long)))
        known = torch.nn.functional.pad(hidden[i, :n], (0, 0, 0, 1))[None]
        with torch.no_grad():
            logits, confidence = module(known, whole[None], torch.tensor([[n]]))
        law = logits[0, 0].log_softmax(-1)
        torch.testing.assert_close(one.logq[0], law, rtol=1e-5, atol=1e-5)  # transformers' rotary tables are float32
        if confidence is not None:
            torch.testing.assert_close(one.chance[0], confidence[0, 0].sigmoid().float())
        cdf = one.logq[0].exp().cumsum(-1)
        for k, token in enumerate(one.tokens[0].tolist()):
            assert (cdf[k, token - 1] if token else 0.0) - 1e-9 <= u[i, k] <= cdf[k, token] + 1e-9


@pytest.mark.parametrize("name", ["dflash", "dspark", "rnn", "eagle3", "independent"])
@pytest.mark.parametrize("asked", [Sampling(temperature=0.0), Sampling(temperature=0.7), Sampling(top_k=3, top_p=0.9)])
def test_laws_are_those_of_the_sampling_asked(name: str, asked: Sampling) -> None:
    target = tiny().double()
    module, rng = made(name, target), np.random.default_rng(0)
    ids = torch.from_numpy(rng.integers(2, VOCABULARY, (1, 9)))
    hidden = taps(target, ids, module.design.taps)[0]
    drafter, plain = ready(module), Laws.of([asked])
    drafter.resize(3, 16)
    for row in (0, 2):
        drafter.extend(np.array([row]), ids.tolist(), np.array([0]), hidden)
    u = rng.random((1, BLOCK))
    one = drafter.propose(np.array([0]), np.array([5]), np.array([9]), plain, u)
    two = drafter.propose(
        np.array([0, 2]), np.array([5, 5]), np.array([9, 9]), Laws.of([asked] * 2), np.repeat(u, 2, 0)
    )
    assert one.tokens.tolist()[0] == two.tokens.tolist()[0] == two.tokens.tolist()[1]
    torch.testing.assert_close(one.logq[0], two.logq[1])
    assert torch.isfinite(one.logq.gather(-1, one.tokens[..., None])).all()
    torch.testing.assert_close(one.logq.exp().sum(-1), torch.ones(1, BLOCK, dtype=torch.float64))
    if asked.top_k:
        assert int((one.logq[0] > float("-inf")).sum(-1).max()) <= 3


def test_confidence_does_not_see_the_token_it_judges() -> None:
    """Two draws that first differ at place k have equal chances up to k: what makes cutting by them lossless."""
    target = tiny().double()
    module = made("dspark", target)
    ids = torch.arange(2, 10)[None]
    drafter = ready(module)
    drafter.resize(1, 16)
    drafter.extend(np.array([0]), ids.tolist(), np.array([0]), taps(target, ids, module.design.taps)[0])
    u = np.full((1, BLOCK), 0.5)
    other = u.copy()
    other[0, 1] = 0.999
    a, b = (drafter.propose(np.array([0]), np.array([3]), np.array([8]), Laws(), x) for x in (u, other))
    assert a.tokens[0, 0] == b.tokens[0, 0]
    assert a.tokens[0, 1] != b.tokens[0, 1]
    assert a.chance[0, :2].tolist() == b.chance[0, :2].tolist()
    assert a.chance[0, 2] != b.chance[0, 2]


def test_lookup_goes_on_as_the_text_did_before() -> None:
    drafter = Lookup(VOCABULARY, block=4, longest=3)
    drafter.resize(2, 16)
    drafter.extend(np.array([0, 1]), [[5, 6, 7, 8, 9, 5, 6], [2, 3, 4]], np.array([0, 0]), torch.zeros(10, 0))
    found = drafter.propose(np.array([0, 1]), np.array([7, 9]), np.array([7, 3]), Laws(), np.zeros((2, 4)))
    assert found.tokens.tolist() == [[8, 9, 5, 6], [9, 9, 9, 9]]
    assert found.chance[:, 0].tolist() == [pytest.approx(0.7), 0.0]
    assert found.logq.exp().sum(-1).tolist() == [[1.0] * 4] * 2
    drafter.move([0], [1], 7)
    assert drafter.propose(np.array([1]), np.array([7]), np.array([7]), Laws(), np.zeros((1, 4))).tokens.tolist() == [
        [8, 9, 5, 6]
    ]


def write(module: Any, where: Path, target: Any, tokenizer: Any = None) -> Path:
    where.mkdir()
    folder.write(module, where, folder.target_of(target, tokenizer, "tiny"))
    return where


@pytest.mark.parametrize("name", KINDS)
def test_a_folder_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    target = tiny()
    module = made(name, target).float()
    kept = write(module, tmp_path / "d", target)
    again = folder.read(kept, target)
    assert again.design == module.design
    for (key, a), (_, b) in zip(module.state_dict().items(), again.state_dict().items(), strict=True):
        assert torch.equal(a, b), key
    config = json.loads((kept / "config.json").read_text())
    if name != "independent":
        ids = config.get("aux_hidden_state_layer_ids") or config["eagle_aux_hidden_state_layer_ids"]
        assert ids == [t + 1 for t in module.design.taps]
        assert config["speculators_config"]["proposal_methods"][0]["speculative_tokens"] == BLOCK


def test_a_drafter_of_another_target_is_refused(tmp_path: Path) -> None:
    target = tiny()
    kept = write(made("dspark", target).float(), tmp_path / "d", target)
    assert load(kept, target).block == BLOCK
    for other, what in ((tiny(seed=5), "weights"), (tiny(vocabulary=30), "vocabulary"), (tiny(width=64), "width")):
        with pytest.raises(BadInput, match=f"made for {what} .* this target has {what}"):
            load(kept, other)
    with pytest.raises(UnknownName, match="no drafter at"):
        load(tmp_path / "nowhere", target)
    target.save_pretrained(tmp_path / "lm")
    with pytest.raises(BadInput, match="does not say which target"):
        load(tmp_path / "lm", target)


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    class Reader:
        def __init__(self, words: str) -> None:
            self.words = words

        def get_vocab(self) -> dict[str, int]:
            return {w: i for i, w in enumerate(self.words)}

    target = tiny()
    kept = write(made("dspark", target).float(), tmp_path / "d", target, Reader("abc"))
    assert load(kept, target, Reader("abc")).block == BLOCK
    with pytest.raises(BadInput, match="made for tokenizer"):
        load(kept, target, Reader("abd"))


def test_a_stale_calibration_is_refused(tmp_path: Path) -> None:
    target = tiny()
    module = made("dspark", target).float()
    kept = write(module, tmp_path / "d", target)
    assert load(kept, target, temperature=1.0).block == BLOCK  # never calibrated: nothing to be stale
    heat = (2.0, 1.0, 1.0, 0.5)
    table = calibration.Table(
        drafter=weights_digest(module), block=BLOCK, temperature=1.0, temperatures=heat, rounds=10
    )  # fmt: skip
    calibration.keep(kept, table)
    drafter, plain = load(kept, target, temperature=1.0), load(kept, target)
    ids = torch.arange(2, 10)[None]
    chances = []
    for d in (drafter, plain):
        d.resize(1, 16)
        d.extend(np.array([0]), ids.tolist(), np.array([0]), taps(target, ids, module.design.taps)[0])
        found = d.propose(np.array([0]), np.array([3]), np.array([8]), Laws(), np.full((1, BLOCK), 0.5))
        chances.append(torch.logit(found.chance[0].double()))
    torch.testing.assert_close(chances[0] * torch.tensor(heat).double(), chances[1], rtol=1e-4, atol=1e-4)
    with pytest.raises(BadInput, match=r"fitted for temperature 1, not 0\.5"):
        load(kept, target, temperature=0.5)
    write(made("dspark", target, seed=9).float(), tmp_path / "e", target)
    (tmp_path / "e" / calibration.FILE).write_bytes((kept / calibration.FILE).read_bytes())
    with pytest.raises(BadInput, match="fitted for drafter"):
        load(tmp_path / "e", target, temperature=1.0)
