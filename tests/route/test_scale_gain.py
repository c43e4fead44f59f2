"""Scales of singular values: they learn what the frozen state does not say, and leave the backbone as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="did not run: scikit-learn is not installed")
pytest.importorskip("torch", reason="did not run: torch is not installed")
pytest.importorskip("transformers", reason="did not run: transformers is not installed")

import torch

from clew.core.errors import BadInput
from clew.fit.scaled_head import Rates, Tail
from clew.methods.routing import soft_targets
from clew.methods.routing.question_space import Space, vectors
from clew.methods.routing.reward_matrix import Matrix
from clew.methods.routing.scale_gain import Scaling
from clew.models.compose.backbone import Backbone
from clew.models.local import small

FILL = [f"w{i}" for i in range(6)]
RATES = Rates(160, 32, scales=0.03)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "tiny"
    small(["red", "blue", "up", "down", "end", *FILL], d=32, layers=2, seed=1, context=64).save(path)
    return path


def together(questions: int) -> Matrix:
    """Which of two workers is right hangs on a colour and a direction together (exclusive or)."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, (2, questions))
    texts = tuple(
        f"user: {rng.choice(FILL)} {('red', 'blue')[i]} {rng.choice(FILL)} {('up', 'down')[j]} {rng.choice(FILL)} end\n"
        for i, j in zip(a, b, strict=True)
    )
    rewards = np.stack([a ^ b, 1 - (a ^ b)], 1)[:, :, None].astype(float)
    return Matrix(texts, texts, ("",) * questions, ("one", "two"), rewards, np.full(rewards.shape, np.nan))


def earned(found: Matrix, x: np.ndarray, learn: np.ndarray, rest: np.ndarray) -> float:
    space = Space.of(x[learn], centred=True)
    head = soft_targets.fit(space(x[learn]), found.means[learn])
    return float(found.means[rest][np.arange(len(rest)), head.scores(space(x[rest])).argmax(1)].mean())


@pytest.mark.whole
def test_what_the_frozen_state_does_not_say_is_learnt_kept_and_served(weights, tmp_path) -> None:
    found, backbone = together(400), Backbone.of(weights)
    learn, rest, steps = np.arange(250), np.arange(250, 400), list[None]()
    h = vectors(found.texts, backbone)
    scaling = Scaling(found, backbone, h, tmp_path, rates=RATES, told=lambda: steps.append(None))
    before = [p.detach().clone() for p in backbone.model().module.parameters()]
    x = scaling.by(learn)
    assert 20 <= len(steps) <= 160
    frozen, scaled = earned(found, h, learn, rest), earned(found, x, learn, rest)
    assert frozen < 0.75
    assert scaled > frozen + 0.1
    after = list(backbone.model().module.parameters())
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    done = len(steps)
    scales = scaling.scales(learn)
    assert len(steps) == done, "a training that ended is not made again"
    made = Backbone(backbone.path, backbone.digest, backbone.width, scales=scales)
    served = vectors(found.texts[:20], made)
    assert np.abs(served - x[:20]).max() < 1e-4, "a served router reads what was trained"


@pytest.mark.whole
def test_a_training_that_was_cut_goes_on(weights, tmp_path) -> None:
    found, backbone = together(80), Backbone.of(weights)
    h, rates = vectors(found.texts, backbone), Rates(40, 16, scales=0.03, every=10)

    def cut() -> None:
        count.append(None)
        if len(count) == 25:
            raise KeyboardInterrupt

    count = list[None]()
    with pytest.raises(KeyboardInterrupt):
        Scaling(found, backbone, h, tmp_path / "cut", rates=rates, told=cut).scales(np.arange(80))
    more = list[None]()
    part = Scaling(found, backbone, h, tmp_path / "cut", rates=rates, told=lambda: more.append(None))
    whole = Scaling(found, backbone, h, tmp_path / "whole", rates=rates)
    one, other = part.scales(np.arange(80)), whole.scales(np.arange(80))
    assert len(more) == 20, "from the checkpoint of step 20 on"
    assert set(one) == set(other)
    assert all(np.allclose(one[name], other[name], atol=1e-4) for name in one)


@pytest.mark.parametrize("layer", [0, 1, "norm"])
def test_a_block_alone_says_what_the_whole_model_does(weights, tmp_path, layer) -> None:
    texts, backbone = together(9).texts, Backbone.of(weights, layer, -1)
    tail = Tail(backbone, texts, tmp_path / str(layer))
    assert not tail.whole
    assert np.abs(tail.features({}) - vectors(texts, backbone)).max() < 1e-4
    tail.whole = True  # as for a model whose blocks cannot be passed alone
    assert np.abs(tail.features({}) - vectors(texts, backbone)).max() < 1e-4


def test_there_must_be_a_block_to_scale(weights, tmp_path) -> None:
    with pytest.raises(BadInput, match="there is no block to scale"):
        Tail(Backbone.of(weights, "embed"), together(3).texts, tmp_path)
