"""Crosscoders on states whose features are known, and the verdicts that follow from arms."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="did not run: torch is not installed")

import torch

from clew.core.errors import BadInput
from clew.methods.features import (
    crosscoder_files,
    diff_verdict,
    directions,
    features,
    learning,
    mixture,
    sparse_code,
)
from clew.methods.features.crosscoder import Crosscoder, Design
from clew.methods.features.diff_verdict import Finding, Tried, settle
from clew.methods.features.steered_behaviour import Plan, rebuilt
from clew.methods.features.steering import Cell, Direction, Effect, mcnemar
from clew.models.taps.source import Source
from papers.E175_crosscoder.activations import WIDTH, plant, recovered

SMALL = {"latents": 256, "k": 8, "batch": 256, "steps": 500, "lr": 4e-3, "dead": 60, "seed": 100}


@pytest.fixture(scope="module")
def world():
    return plant(100)


@pytest.fixture(scope="module")
def seated(world):
    module = learning.learn(world.held(100, 1 << 15), WIDTH, learning.Learning(**SMALL, method="reseated"))
    crosscoder_files.unit_norms(module)
    return module.eval()


@pytest.mark.parametrize("kind", ["topk", "batchtopk", "l1"])
def test_the_sparse_products_are_the_dense_ones(kind):
    torch.manual_seed(0)
    module = Crosscoder(Design(width=6, latents=40, k=4, kind=kind, own=(3, 2)), seed=1)
    x = torch.randn(16, 2, 6)
    active = module.active(x)
    sparse = (x - module.decode(active)).square().mean()
    sparse.backward()
    grads = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    code = torch.addmm(module.encoder_bias, x.flatten(1), module.encoder.t()).relu()
    mask = torch.zeros_like(code).index_put((active.rows, active.latents), torch.ones(len(active.rows)))
    dense = (x - (code * mask @ module.decoder + module.decoder_bias).view_as(x)).square().mean()
    dense.backward()
    assert torch.allclose(sparse, dense, atol=1e-6)
    for found, p in zip(grads, module.parameters(), strict=True):
        assert torch.allclose(found, p.grad, atol=1e-6)
    assert float(grads[0].abs().sum()) > 0


def test_what_gathers_little_gives_the_same_as_what_multiplies_all(monkeypatch):
    torch.manual_seed(0)
    rows, latents = torch.arange(8).repeat_interleave(3), torch.randint(0, 50, (24,))
    x, table = torch.randn(8, 5), torch.randn(50, 5)
    whole = sparse_code.dots(rows, latents, x, table)
    monkeypatch.setattr(sparse_code, "DENSE", 0)
    assert torch.allclose(sparse_code.dots(rows, latents, x, table), whole, atol=1e-6)


def test_masks_hold_exactly_through_a_training(world):
    how = learning.Learning(**{**SMALL, "steps": 60}, method="dedicated")
    module = learning.learn(world.held(100, 1 << 12), WIDTH, how)
    assert module.design.own == (12, 12)
    assert module.leak() == 0.0
    assert float(module.encoder[:12, :WIDTH].detach().abs().min()) > 0
    module.active(module.scaled(world.draw(np.random.default_rng(0), 64))).values.sum().backward()
    assert float(module.encoder.grad[:12, WIDTH:].abs().max()) == 0.0


def test_reseating_places_what_one_model_has_and_nothing_else(world, seated):
    a, b = seated.design.own
    assert seated.leak() == 0.0
    vectors = seated.decoder.view(256, 2, -1).detach()
    recall, false = recovered(vectors[:a, 0], world.own(0))
    assert recall >= 0.8
    assert false <= 0.35
    assert recovered(vectors[a : a + b, 1], world.own(1))[0] >= 0.8


def test_where_nothing_is_planted_nothing_is_reseated():
    none = plant(101)
    none.often[120:] = 0
    how = learning.Learning(**{**SMALL, "steps": 300}, method="reseated")
    assert learning.learn(none.held(1, 1 << 14), WIDTH, how).design.own == (0, 0)


def test_states_that_were_scaled_already_are_refused(world, seated):
    states = world.draw(np.random.default_rng(3), 4000)
    x = seated.scaled(states)
    with pytest.raises(BadInput, match="times the RMS"):
        seated.scaled(x)
    with pytest.raises(BadInput, match="times the RMS"):
        seated.scaled(states * 1.3)
    seated.scaled(states * 1.1)
    assert torch.allclose(seated.unscaled(x), states, atol=1e-5)
    assert float(seated.unexplained(x).max()) < 0.2
    patches = rebuilt(seated, states)
    assert torch.allclose(patches["identity"], states, atol=1e-5)
    right, wrong = (float((patches[name] - states).square().mean()) for name in ("normalised", "raw"))
    assert right < wrong / 2  # what is fed without scaling, as the released code does, is another state


@pytest.mark.parametrize("kind", ["topk", "batchtopk"])
def test_a_folder_gives_the_crosscoder_back(tmp_path, world, kind):
    how = learning.Learning(**{**SMALL, "steps": 40}, kind=kind)
    module = learning.learn(world.held(100, 1 << 12), WIDTH, how)
    crosscoder_files.unit_norms(module)
    crosscoder_files.save(module.eval(), tmp_path / "cc", {"layer": 3})
    again, about = crosscoder_files.load(tmp_path / "cc")
    states = world.draw(np.random.default_rng(1), 100)
    assert torch.equal(again.rebuilt(again.scaled(states)), module.rebuilt(module.scaled(states)))
    assert about == {"layer": 3}
    told = json.loads((tmp_path / "cc" / "cfg.json").read_text())
    assert (told["d_in"], told["d_sae"]) == (2 * WIDTH, 256)
    (tmp_path / "cc" / "cfg.json").write_text('{"metadata": {"crosscoder": {"width": 1}}}')
    with pytest.raises(BadInput, match="cannot be read"):
        crosscoder_files.load(tmp_path / "cc")


def test_the_layout_is_that_of_a_sparse_autoencoder_over_both(tmp_path, seated, world):
    """What SAELens documents for a TopK autoencoder, computed from the files alone."""
    from safetensors.torch import load_file

    crosscoder_files.save(seated, tmp_path / "cc", {})
    w = load_file(tmp_path / "cc" / "sae_weights.safetensors")
    x = seated.scaled(world.draw(np.random.default_rng(2), 500))
    found = x.flatten(1) @ w["W_enc"] + w["b_enc"]
    best = found.topk(8, dim=1)
    code = torch.zeros_like(found).scatter(1, best.indices, best.values.relu())
    assert torch.allclose((code @ w["W_dec"] + w["b_dec"]).view_as(x), seated.rebuilt(x), atol=1e-4)


@pytest.mark.parametrize("kind", ["topk", "batchtopk", "l1"])
def test_saelens_itself_reads_the_folder(tmp_path, kind):
    """Encoding and decoding of random states by SAELens' own loader and classes, and the half of each model."""
    sae_lens = pytest.importorskip("sae_lens", reason="did not run: sae_lens is not installed")
    torch.manual_seed(0)
    module = Crosscoder(Design(width=24, latents=200, k=6, kind=kind, own=(3, 2)), seed=1)
    with torch.no_grad():
        for bias in (module.encoder_bias, module.decoder_bias):
            bias.normal_()
        module.encoder_bias -= 3 * (kind == "l1")
    module.threshold.fill_(1.3)
    crosscoder_files.unit_norms(module.eval())
    crosscoder_files.save(module, tmp_path / "cc", {"layer": 3})
    theirs = sae_lens.SAE.load_from_disk(tmp_path / "cc")
    x = torch.randn(300, 2, 24)
    with torch.no_grad():
        code = theirs.encode(x.flatten(1))
        back = theirs.decode(code).view_as(x)
    assert torch.allclose(code, module.code(x), atol=1e-5)
    assert 0 < int((code > 0).sum()) < code.numel()
    assert torch.allclose(back[:, 0], module.rebuilt(x)[:, 0], atol=1e-4)
    assert torch.allclose(back, module.rebuilt(x), atol=1e-4)
    assert theirs.cfg.metadata.crosscoder["own"] == [3, 2]
    theirs.save_model(tmp_path / "again")  # without the scale: SAELens writes what it knows
    with pytest.raises(BadInput, match="cannot be read"):
        crosscoder_files.load(tmp_path / "again")


@pytest.mark.whole
def test_a_fit_that_goes_on_is_the_same_to_the_bit(tmp_path, world):
    how = learning.Learning(**{**SMALL, "steps": 240}, method="reseated")
    draw = world.held(100, 1 << 12)
    whole = learning.learn(draw, WIDTH, how)

    class Enough(Exception):
        pass

    def stop(step) -> None:
        if step.step == 210:
            raise Enough

    with pytest.raises(Enough):
        learning.learn(draw, WIDTH, how, going=tmp_path, on_step=stop)
    seen = []
    again = learning.learn(draw, WIDTH, how, going=tmp_path, on_step=lambda step: seen.append(step.step))
    assert seen[0] == 201
    assert torch.equal(whole.encoder, again.encoder)
    with pytest.raises(BadInput, match="holds another fit"):
        learning.learn(draw, WIDTH, replace(how, lr=1e-3), going=tmp_path)


def test_the_fitted_share_sees_what_a_mask_hides():
    """Of two latents masked to A one is A's side of a shared feature, one a feature that B does not have."""
    module = Crosscoder(Design(width=WIDTH, latents=3, k=1, kind="l1", own=(2, 0)))
    world = plant(103)
    world.often[:] = 0.002
    world.often[[0, 120]] = 0.05
    directions_of = torch.from_numpy(world.directions)
    with torch.no_grad():
        for latent, feature in ((0, 0), (1, 120)):
            module.encoder[latent] = directions_of[:, feature].flatten()
            module.decoder[latent] = directions_of[:, feature].flatten()
        module.encoder_bias.fill_(-2.5)  # only where the feature itself is there
        module.mask()
    states = world.draw(np.random.default_rng(1), 20_000)
    learning.measured(module, states)
    figures = features.latents(module.eval(), states.split(4096))
    assert figures.share[:2].tolist() == [1.0, 1.0]
    assert 0.3 < float(figures.fitted[0]) < 0.7
    assert float(figures.fitted[1]) > 0.9
    assert figures.alone(0).tolist() == [False, True, False]


def test_latents_tell_where_they_are_most_active(world, seated):
    states = world.draw(np.random.default_rng(5), 5000)
    figures = features.latents(seated, states.split(700))
    code = seated.code(seated.scaled(states))
    assert torch.allclose(figures.values[:, 0], code.max(0).values, atol=1e-4)
    active = figures.often > 0
    assert torch.equal(figures.rows[active, 0], code.argmax(0)[active])
    at = int(figures.often.argmax())
    on = code[:, at][code[:, at] > 0]
    assert float(figures.high[at]) == pytest.approx(float(on.quantile(0.95)), rel=0.02)


def test_penalties_count_what_they_name(world):
    """Visible counts shared latents with each model's own (released code), exclusive each model's own alone."""
    module = Crosscoder(Design(width=WIDTH, latents=64, k=8, own=(4, 4)), seed=2)
    x = world.draw(np.random.default_rng(0), 32)
    learning.measured(module, x)
    active = module.active(module.scaled(x))
    f = active.dense(64).detach()
    told = {}
    for penalty in ("visible", "exclusive"):
        how = learning.Learning(latents=64, k=8, penalty=penalty, shared=0.5, exclusive=2.0)
        told[penalty] = float(learning.Losses(module, how, lambda rng, n: x, "", 1)._penalty(active)[0].detach())
    own, both = (f[:, :4].mean() + f[:, 4:8].mean()) / 2, f[:, 8:].mean()
    assert told["exclusive"] == pytest.approx(float(0.5 * both + 2 * own), rel=1e-4)
    a, b = torch.cat([f[:, :4], f[:, 8:]], 1).mean(), f[:, 4:].mean()
    assert told["visible"] == pytest.approx(float(0.5 * both + (a + b)), rel=1e-4)


def test_a_probe_and_a_mean_difference_find_a_planted_direction():
    torch.manual_seed(0)
    direction = torch.nn.functional.normalize(torch.randn(20), dim=0)
    shown = torch.rand(400) < 0.5
    states = torch.randn(400, 20) + shown[:, None] * 3 * direction
    for found in (directions.probe(states, shown), directions.mean_difference(states, shown)):
        assert float(torch.cosine_similarity(found, direction, dim=0)) > 0.8
    assert (
        float(
            torch.cosine_similarity(
                directions.main_difference(states, states * 0.9 - 4 * direction * torch.randn(400, 1)), direction, dim=0
            ).abs()
        )
        > 0.9
    )
    assert float(directions.matched(direction, 5 * torch.ones(20)).norm()) == pytest.approx(5 * 20**0.5)


# ---- verdicts --------------------------------------------------------------------------------------------------------


def tried(part: str, rate: float, n: int = 100, clean: float = 0.1, random: float = 0.12) -> Tried:
    def of(share: float) -> np.ndarray:
        return (np.arange(n) < round(share * n)).astype(np.float32)

    test = Effect("f", of(rate), of(clean))
    drawn = [Effect("r", np.roll(of(random), i), of(clean)) for i in range(50)]
    return Tried(part, Cell(Direction("feature 1", torch.ones(2)), 1.0, test), test, drawn)


@pytest.mark.parametrize(
    ("alone", "shared", "added", "kind"),
    [
        (0.8, 0.7, True, "exclusive"),
        (0.8, None, True, "exclusive"),
        (0.8, 0.8, True, "shared"),  # what A alone has is not needed
        (0.74, 0.7, True, "shared"),  # four prompts of a hundred show no difference
        (0.35, 0.9, True, "shared"),
        (None, 0.8, True, "shared"),
        (0.1, 0.8, True, "shared"),
        (0.1, 0.1, True, "nothing"),
        (0.8, 0.8, False, "nothing"),
        (None, None, True, "cannot tell"),  # no feature was tried: nothing was tested
        (0.2, 0.1, True, "cannot tell"),
    ],
)
def test_the_verdict_follows_from_the_arms(alone, shared, added, kind):
    found = Finding("a call")
    found.tried = {
        name: tried(name, rate) for name, rate in (("exclusive", alone), ("shared", shared)) if rate is not None
    }
    settle(found, added)
    assert found.kind == kind
    assert found.text


def test_what_random_directions_do_as_well_is_no_claim():
    found = Finding("a call", tried={"shared": tried("shared", 0.8, random=0.8)})
    settle(found, True)
    assert found.kind == "cannot tell"
    assert "random directions" in found.text


def test_cannot_tell_says_how_many_prompts_would_do():
    found = Finding("a call", tried={"shared": tried("shared", 0.4, n=20)})
    settle(found, True)
    assert found.kind == "cannot tell"
    assert "prompts would do" in found.text


def test_mcnemar_looks_at_what_differs():
    same = np.ones(50, np.float32)
    assert mcnemar(same, same) == 1.0
    worse = same.copy()
    worse[:10] = 0
    assert mcnemar(same, worse) == pytest.approx(2**-10)
    assert mcnemar(worse, same) == 1.0
    assert diff_verdict.tests({"shared": tried("shared", 0.1)})["shared against nothing"] == 1.0


def test_a_token_is_read_once_of_each_run():
    calls = [
        Source(np.array(ids, np.int32), 2, "r", i) for i, ids in enumerate(([1, 2, 3], [1, 2, 3, 4, 5], [1, 9, 9]))
    ]
    assert [start for _, start in mixture.sources(calls)] == [1, 3, 1]
    assert [start for _, start in mixture.sources([[1, 2, 3], [1, 2, 3]])] == [1, 1]


def test_choices_with_a_typo_are_refused_before_anything_is_fitted():
    with pytest.raises(BadInput, match="method='dedicatd' is not known"):
        learning.Learning(method="dedicatd")
    with pytest.raises(BadInput, match="penalty='visibel' is not known"):
        learning.Learning(penalty="visibel")
    with pytest.raises(BadInput, match="way='rais' is not known"):
        Plan(way="rais")
