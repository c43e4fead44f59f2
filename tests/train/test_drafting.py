"""Training of drafters: its losses by hand, its anchors, resume to the bit; what a loop accepts; calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clew.core.errors import BadInput
from clew.core.stats import auroc
from clew.models.drafters import folder, ready
from clew.models.drafters.layers import Design
from clew.train.drafters import acceptance, drafter_losses, temperature_scaling

transformers = pytest.importorskip("transformers")
VOCABULARY = 16


@pytest.fixture(scope="module")
def target() -> Any:
    """A model of three-state habits: sharp enough that a drafter can learn it in seconds."""
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
        head_dim=16, intermediate_size=48, max_position_embeddings=64, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    model = transformers.Qwen3ForCausalLM(config).eval()
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(12)  # tied: sharper laws
    return model


def texts(target: Any, n: int, length: int, seed: int = 0) -> np.ndarray:
    torch.manual_seed(seed)
    ids = torch.randint(2, VOCABULARY, (n, 3))
    with torch.no_grad():
        for _ in range(length - 3):
            law = target(input_ids=ids, use_cache=False).logits[:, -1].softmax(-1)
            ids = torch.cat((ids, torch.multinomial(law, 1)), 1)
    return ids.numpy()


@pytest.fixture(scope="module")
def data(target: Any, tmp_path_factory: pytest.TempPathFactory) -> drafter_losses.Taps:
    rows = [row[: 18 + i % 7].tolist() for i, row in enumerate(texts(target, 48, 24))]
    where = tmp_path_factory.mktemp("taps") / "t"
    told: list[int] = []
    found = drafter_losses.tap(
        target, rows, [3] * len(rows), (0, 1), where, ["a", "b"] * 24, batch=5, advance=told.append
    )
    assert sum(told) == 48
    return found


def shape(target: Any, kind: str = "dspark", **asked: Any) -> Design:
    return folder.design_for(target, kind=kind, mask=1, block=4, feed=32, layers=1, **asked)


def test_losses_by_hand() -> None:
    weight = drafter_losses.position_weights(3, 4.0)
    assert weight.tolist() == pytest.approx([1.0, np.exp(-0.25), np.exp(-0.5)])
    p, q = torch.tensor([[0.7, 0.3], [0.5, 0.5], [0.0, 1.0]]), torch.tensor([[0.5, 0.5], [0.5, 0.5], [1.0, 0.0]])
    total, count = drafter_losses.tv_loss(q, p, weight)
    assert float(total / count) == pytest.approx((0.4 + 0 + 2 * np.exp(-0.5)) / float(weight.sum()))
    assert drafter_losses.accepted_chance(q, p).tolist() == pytest.approx([0.8, 1.0, 0.0])
    total, count = drafter_losses.ce_loss(q.log(), torch.tensor([0, 1, 0]), torch.tensor([1.0, 1.0, 0.0]))
    assert float(total / count) == pytest.approx(np.log(2))
    logits = torch.zeros(3, requires_grad=True)
    total, count = drafter_losses.confidence_loss(logits, torch.tensor([0.8, 0.5, 0.1]), torch.ones(3))
    assert float((total / count).detach()) == pytest.approx(np.log(2))
    total.backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad.tolist() == pytest.approx([-0.3, 0.0, 0.4])


def test_confidence_label_moves_nothing_but_the_head(target: Any, data: drafter_losses.Taps) -> None:
    """The analytic label is detached: without other losses the laws themselves get no gradient through it."""
    torch.manual_seed(1)
    module = folder.fresh(shape(target, rank=4, confidence=True), target)
    how = drafter_losses.Schooling(ce=0.0, tv=0.0, confidence=1.0)
    batch = data.batch(np.arange(4), 5)
    anchors, valid = drafter_losses.draw_anchors(data.first[:4], batch[3].numpy(), 3, np.random.default_rng(0))
    loss, terms, _ = drafter_losses.losses_of(module, batch, torch.from_numpy(anchors), torch.from_numpy(valid), how)
    loss.backward()  # type: ignore[no-untyped-call]
    assert list(terms) == ["confidence"]
    assert module.markov_head.markov_w2.weight.grad is None  # it moves laws only
    assert float(module.confidence_head.proj.weight.grad.abs().sum()) > 0


def test_anchors_are_in_the_rows_own_part_with_a_token_behind(data: drafter_losses.Taps) -> None:
    rng, first, lengths = np.random.default_rng(0), np.array([3, 9, 16]), np.array([20, 12, 18])
    seen: dict[int, set[int]] = {0: set(), 1: set(), 2: set()}
    for _ in range(200):
        anchors, valid = drafter_losses.draw_anchors(first, lengths, 4, rng)
        for i in range(3):
            kept = anchors[i][valid[i]]
            assert len(set(kept)) == len(kept)
            seen[i] |= set(kept.tolist())
    assert seen == {0: set(range(3, 19)), 1: {9, 10}, 2: {16}}


def test_a_block_past_the_end_of_its_row_is_not_learnt_from(target: Any, data: drafter_losses.Taps) -> None:
    """What stands behind a row's end, padding or another row's longer text, changes no loss."""
    torch.manual_seed(2)
    module, how = folder.fresh(shape(target, rank=4, confidence=True), target), drafter_losses.Schooling()
    ids, taps, last, lengths = data.batch(np.array([0, 6]), 5)  # 18 and 24 tokens
    anchors, valid = torch.tensor([[5, 15], [5, 15]]), torch.ones(2, 2, dtype=torch.bool)
    before = drafter_losses.losses_of(module, (ids, taps, last, lengths), anchors, valid, how)[1]
    other = ids.clone()
    other[0, 18:] = 7
    taps[0, 18:], last[0, 18:] = 3.0, -3.0
    after = drafter_losses.losses_of(module, (other, taps, last, lengths), anchors, valid, how)[1]
    assert before == pytest.approx(after, abs=1e-6)


@pytest.mark.whole
@pytest.mark.parametrize("kind", ["dspark", "dflash", "eagle3", "independent"])
def test_training_raises_acceptance_and_resumes_to_the_bit(
    kind: str, target: Any, data: drafter_losses.Taps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafter_losses, "SAVED", 10)
    how = drafter_losses.Schooling(steps=40, batch=8, anchors=6, lr=5e-3, seed=3)
    if kind in ("eagle3", "independent"):
        how = drafter_losses.Schooling(steps=40, batch=8, anchors=6, lr=5e-3, seed=3, ce=1.0, tv=0.0, confidence=0.0)

    def begun() -> Any:
        torch.manual_seed(4)
        return folder.fresh(shape(target, kind), target)

    whole, parts = begun(), begun()
    steps = list(drafter_losses.train(whole, data, how))
    assert np.mean(steps[-1].chance) > np.mean(steps[0].chance) + 0.05
    for step in drafter_losses.train(parts, data, how, tmp_path / "going"):
        if step.step == 24:
            break  # killed between two checkpoints
    again = begun()
    rest = list(drafter_losses.train(again, data, how, tmp_path / "going"))
    assert rest[0].step == 21
    for (name, a), (_, b) in zip(whole.state_dict().items(), again.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    other = drafter_losses.Schooling(steps=50)
    with pytest.raises(BadInput, match="holds another fit"):
        next(drafter_losses.train(begun(), data, other, tmp_path / "going"))


def test_any_causal_lm_can_be_a_target(tmp_path: Path) -> None:
    """GPT-2 has other names and absolute positions; Granite divides its logits, which a drafter would not know."""
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 0}
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_embd=32, n_layer=3, n_head=2, n_positions=32, **sizes)
    ).eval()
    rows = np.random.default_rng(0).integers(2, VOCABULARY, (8, 12)).tolist()
    module = folder.fresh(folder.design_for(model, mask=1, block=3), model)
    data = drafter_losses.tap(model, rows, [2] * 8, module.design.taps, tmp_path / "taps")
    steps = list(drafter_losses.train(module, data, drafter_losses.Schooling(steps=3, batch=4, anchors=4)))
    assert len(steps) == 3
    assert all(np.isfinite(list(s.loss.values())).all() for s in steps)
    granite = transformers.GraniteForCausalLM(transformers.GraniteConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, intermediate_size=32,
        logits_scaling=8.0, **sizes,
    )).eval()  # fmt: skip
    granite.get_output_embeddings().weight.data.mul_(50)
    with pytest.raises(BadInput, match="are not its output matrix times its last state"):
        drafter_losses.tap(granite, rows, [2] * 8, (0,), tmp_path / "other")


def test_walk_by_hand() -> None:
    """Two anchors' worth of text, blocks of two: every path of the loop summed by hand."""
    a = np.array([[0.5, 0.4], [0.8, 0.9], [1.0, 1.0]])
    # From anchor 0: none (0.5) to 1, one (0.3) to 2, two (0.2) to 3. From 1: none (0.2) to 2.
    visits = np.array([1.0, 0.5, 0.3 + 0.5 * 0.2])
    n, reached = acceptance.walk(a)
    assert n == pytest.approx(visits.sum())
    assert reached[0] == pytest.approx(n)
    assert reached[1] == pytest.approx(visits @ [0.5, 0.8, 1.0])
    assert reached[2] == pytest.approx(visits @ [0.2, 0.72, 1.0])


def test_expected_acceptance_is_that_of_rounds_really_drafted(target: Any, data: drafter_losses.Taps) -> None:
    """Along the target's text, min(1, q / p) is 1 - TV in the mean, and rounds accept their first token as often."""
    torch.manual_seed(5)
    module = folder.fresh(shape(target, rank=4, confidence=True), target)
    for _ in drafter_losses.train(module, data, drafter_losses.Schooling(steps=30, lr=5e-3)):
        pass
    module.eval()
    rows = np.arange(len(data))
    found = list(acceptance.acceptances(module, data, rows))
    along, overlap = (np.concatenate([f[i] for f in found]) for i in (1, 2))
    gap = along[:, 0] - overlap[:, 0]
    assert abs(gap.mean()) < 4 * gap.std() / len(gap) ** 0.5
    drafted = acceptance.rounds(target, ready(module), data, rows, each=20, seed=1)
    share = drafted.mask[:, 0]
    spread = (0.25 / len(share)) ** 0.5
    assert len(share) > 600
    assert abs(share.mean() - overlap[:, 0].mean()) < 4 * spread + 0.01
    assert (np.diff(drafted.mask.mean(0)) <= 0).all()


def test_calibration_repairs_a_head_scaled_by_two_and_a_half() -> None:
    rng = np.random.default_rng(0)
    true = rng.normal(1.0, 1.5, (20_000, 4))
    accepted = (rng.random(true.shape) < temperature_scaling.sigmoid(true)).cumprod(1).astype(bool)
    heat = temperature_scaling.scale(2.5 * true, accepted)
    assert heat == pytest.approx(np.full(4, 2.5), rel=0.25)
    kept, wrong = (temperature_scaling.survival(2.5 * true, t) for t in (heat, 1.0))
    for k in range(4):
        floor = temperature_scaling.noise_floor(kept[:, k])
        assert (
            temperature_scaling.ece(kept[:, k], accepted[:, k])
            < floor + 0.01
            < temperature_scaling.ece(wrong[:, k], accepted[:, k])
        )
        assert auroc(kept[:, k], accepted[:, k]) > 0.75
    assert temperature_scaling.scale(true, accepted) == pytest.approx(np.ones(4), rel=0.25)
    with pytest.raises(BadInput, match="cannot calibrate"):
        temperature_scaling.scale(np.full((3, 4), np.nan), accepted[:3])


def test_auroc_counts_ties_half() -> None:
    score, happened = np.array([0.1, 0.5, 0.5, 0.9]), np.array([False, False, True, True])
    assert auroc(score, happened) == pytest.approx(3.5 / 4)
    assert np.isnan(auroc(score, np.ones(4, bool)))
