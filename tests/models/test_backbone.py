"""A router that reads the hidden state of a local model: its features, its folder, and what it refuses."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="did not run: torch is not installed")
pytest.importorskip("transformers", reason="did not run: transformers is not installed")

import torch

import clew
from clew.core import sources
from clew.core.aio import run_sync
from clew.core.errors import BadInput, BadRecord
from clew.core.values import Message
from clew.models.asking import request
from clew.models.compose import router
from clew.models.compose.backbone import Backbone
from clew.models.compose.ngrams import transcript
from clew.models.compose.router import Head, Worker
from clew.models.fakes import Echo
from clew.models.local import singular_scales, small

WORDS = [f"w{i}" for i in range(20)]
POOL = (Worker("first", "echo"), Worker("second", "scripted(replies=['no'])"))
TEXTS = [transcript([Message("user", f"w{i} w{i + 1} w3")]) for i in range(6)]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "tiny"
    small(WORDS, d=16, layers=3, seed=1, context=64).save(path)
    return path


@pytest.fixture
def copied(weights: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(weights, tmp_path / "tiny"))


def kept(weights: Path, folder: Path, **how: object) -> Path:
    features = Backbone.of(weights, **how)
    head = np.random.default_rng(0).normal(size=(2, features.dim)).astype(np.float32)
    return router.save(folder, POOL, features, Head(head))


def states(backbone: Backbone, text: str) -> list[np.ndarray]:
    """What transformers says: float [tokens, width] of each layer, the embeddings first."""
    with torch.no_grad():
        found = backbone.model().module(torch.tensor([backbone.ids(text)]), output_hidden_states=True).hidden_states
    return [one[0].numpy() for one in found]


@pytest.mark.parametrize(("layer", "number"), [("norm", 3), (0, 1), (1, 2)])
@pytest.mark.parametrize("position", [-2, -1, 1])
def test_a_vector_is_a_constant_and_the_hidden_state_at_its_place(weights, layer, number, position) -> None:
    backbone = Backbone.of(weights, layer, position)
    vector = backbone(TEXTS[0])
    said = states(backbone, TEXTS[0])[number][position]
    assert vector.shape == (17,) == (backbone.dim,)
    assert float(vector @ vector) == pytest.approx(1.0, abs=1e-5)
    assert vector[0] == pytest.approx(0.5**0.5)
    assert vector[1:] * 2**0.5 == pytest.approx(said / np.linalg.norm(said), abs=1e-4)


def test_many_are_read_once_and_a_reading_is_kept(weights, tmp_path) -> None:
    backbone, told = Backbone.of(weights), list[tuple[int, int]]()
    found = backbone.many([*TEXTS, TEXTS[0]], tmp_path / "states", lambda *done: told.append(done))
    assert found.shape == (7, 17)
    assert told[-1] == (6, 6)
    assert np.abs(found - np.array([Backbone.of(weights)(text) for text in [*TEXTS, TEXTS[0]]])).max() < 1e-5
    again = Backbone.of(weights).many([*TEXTS, TEXTS[0]], tmp_path / "states", lambda *done: told.append((-1, -1)))
    assert told[-1] != (-1, -1), "nothing is read twice"
    assert (again == found).all()


@pytest.mark.parametrize("text", ["", "w1", "w1 " * 100_000, "user: <|end|> \ud800 漢\x00"])
def test_any_text_is_read_within_bounds(weights, text) -> None:
    backbone = Backbone.of(weights, tokens=40)
    ids = backbone.ids(text)
    assert 1 <= len(ids) <= 40
    assert np.isfinite(backbone(text)).all()


def test_of_a_long_conversation_the_middle_is_left_out(weights) -> None:
    backbone = Backbone.of(weights, tokens=8)
    first, last = " ".join(WORDS[:10]), " ".join(WORDS[10:])
    ids = backbone.ids(f"{first} {last}")
    whole = Backbone.of(weights).ids(f"{first} {last}")
    assert ids == (*whole[:2], *whole[-6:])
    assert len(Backbone.of(weights, tokens=500).ids("w1 " * 500)) == 64, "the model's own context"


def test_a_folder_comes_back_and_decides_as_before(weights, tmp_path) -> None:
    made = router.load(kept(weights, tmp_path / "r", layer=1, position=-1, tokens=32))
    assert isinstance(made.features, Backbone)
    assert made.features.said() == Backbone.of(weights, 1, -1, 32).said()
    assert made.digest == router.load(tmp_path / "r").digest
    routed = clew.model(f"route:{tmp_path / 'r'}")
    asked = request(Echo(), "w1 w2 w3")
    best, scores = made.decide([node.message for node in asked.path])
    plan = routed.plan(asked)
    assert plan.order[0] == best
    assert list(plan.scores.values()) == pytest.approx(scores.tolist(), abs=1e-5)


def test_a_routed_model_answers_by_the_backbone(weights, tmp_path) -> None:
    routed = clew.model(f"route:{kept(weights, tmp_path / 'r')}")
    asked = request(routed, "w1 w2 w3")
    said = run_sync(routed.complete(asked))
    first = routed.router.names[routed.plan(asked).order[0]]
    assert said.message.text == ("no" if first == "second" else "w1 w2 w3")


def test_a_backbone_that_moved_or_changed_is_refused_in_one_sentence(copied, tmp_path, monkeypatch) -> None:
    folder = kept(copied, tmp_path / "r")
    moved = copied.rename(tmp_path / "elsewhere")
    with pytest.raises(BadRecord, match="the backbone is not at") as gone:
        router.load(folder)
    assert "clew --moved" in gone.value.remedy
    monkeypatch.setattr(sources, "_moved", {})
    sources.moved(copied, moved)
    assert router.load(folder).scores([Message("user", "w1")]).shape == (2,)
    settings = moved / "config.json"
    settings.write_text(settings.read_text() + "\n")
    with pytest.raises(BadRecord, match="was changed after the router was fitted") as other:
        router.load(folder)
    assert "\n" not in other.value.message


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"layer": -1}, "is no layer"),
        ({"layer": "head"}, "is no layer"),
        ({"width": 10**9}, "of width"),
        ({"tokens": True}, "whole numbers"),
        ({"path": ""}, "has no path"),
        ({"digest": 7}, "has no digest"),
        ({"scales": [["a", 3], ["a", 3]]}, "name a weight twice"),
        ({"scales": [["a", -1]]}, "name no weights"),
        ({"scales": [["a", 3]]}, "scales.npy is missing"),
        ({"more": 1}, "none that this version knows"),
    ],
)
def test_a_bad_folder_is_told_in_one_sentence(weights, tmp_path, change, told) -> None:
    folder = kept(weights, tmp_path / "r")
    config = json.loads((folder / "router.json").read_text())
    (folder / "router.json").write_text(json.dumps(config | {"features": config["features"] | change}))
    with pytest.raises(BadRecord, match=told) as refused:
        router.load(folder)
    assert "\n" not in refused.value.message


def test_what_is_no_model_is_refused(weights, tmp_path) -> None:
    with pytest.raises(BadInput, match="is no folder of a model"):
        Backbone.of(tmp_path)
    with pytest.raises(BadInput, match="has no layer 3"):
        Backbone.of(weights, 3)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(BadInput, match="tells no width"):
        Backbone.of(tmp_path)


def test_routers_over_ngrams_need_no_torch() -> None:
    program = "import sys; import clew.models.compose.routed, clew.models.compose.router; print('torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"


def scales_of(backbone: Backbone, size: float) -> dict[str, np.ndarray]:
    names = singular_scales.chosen(backbone.model().module, 2)
    rng = np.random.default_rng(3)
    found = singular_scales.matrices(backbone.model().module, names)
    return {name: rng.normal(0, size, min(one.shape)).astype(np.float32) for name, one in found.items()}


def test_scales_keep_the_sum_of_singular_values_and_come_back_to_the_bit(weights, tmp_path) -> None:
    plain = Backbone.of(weights)
    scales = scales_of(plain, 0.3)
    scaled = Backbone(plain.path, plain.digest, plain.width, scales=scales)
    assert np.abs(scaled(TEXTS[0]) - plain(TEXTS[0])).max() > 1e-3
    old, new = (singular_scales.matrices(one.model().module, list(scales)) for one in (plain, scaled))
    assert len(old) == 7
    for name in scales:
        before, after = (torch.linalg.svdvals(one[name].detach()) for one in (old, new))
        assert float(after.sum()) == pytest.approx(float(before.sum()), rel=1e-4)
        assert float((after - before).abs().max()) > 1e-3
    head = Head(np.ones((2, plain.dim), np.float32))
    router.save(tmp_path / "r", POOL, scaled, head)
    back = router.load(tmp_path / "r")
    assert back.features.said() == scaled.said() != plain.said()
    assert (back.features(TEXTS[1]) == scaled(TEXTS[1])).all()
    assert Backbone.of(weights).digest == plain.digest, "the files on disk stay"
    data = bytearray((tmp_path / "r" / "scales.npy").read_bytes())
    data[-1] ^= 1
    (tmp_path / "r" / "scales.npy").write_bytes(data)
    with pytest.raises(BadRecord, match="is not the scales"):
        router.load(tmp_path / "r")


def test_offsets_of_nothing_change_nothing_and_those_of_another_model_are_refused(weights) -> None:
    plain = Backbone.of(weights)
    module = plain.model().module
    none = {name: 0 * one for name, one in scales_of(plain, 1.0).items()}
    before = {name: one.detach().clone() for name, one in singular_scales.matrices(module, list(none)).items()}
    singular_scales.apply(module, none)
    for name, one in singular_scales.matrices(module, list(none)).items():
        assert float((one.detach() - before[name]).abs().max()) < 1e-5
    name = next(iter(none))
    with pytest.raises(BadInput, match="has 16 singular values, and its scales are 2"):
        singular_scales.apply(module, {name: np.zeros(2, np.float32)})
    with pytest.raises(BadInput, match="has no matrix 'other'"):
        singular_scales.apply(module, {"other": np.zeros(2, np.float32)})


def test_a_scale_has_the_slope_that_a_difference_has() -> None:
    matrix = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4) ** 3 + torch.eye(3, 4, dtype=torch.float64)
    parts = singular_scales.Parts(*torch.linalg.svd(matrix, full_matrices=False))
    offsets = torch.tensor([0.1, -0.2, 0.3], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(parts.scaled, (offsets,))
    assert torch.autograd.grad(parts.scaled(offsets).sum(), offsets)[0].abs().min() > 1e-6
