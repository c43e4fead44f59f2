"""A router's folder, its features and its decision."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from clew.core.errors import BadInput, BadRecord
from clew.core.values import Message, ToolCall
from clew.models.compose import router
from clew.models.compose.ngrams import Ngrams, transcript
from clew.models.compose.router import Head, Router, Worker

POOL = (Worker("small", "echo"), Worker("large", "openai:x@http://127.0.0.1:8001/v1", 1.0, 2.0, clearance=("health",)))
GOLDEN = "Hello wörld 42, HELLO\n"
PROGRAM = """
from hashlib import sha256
from clew.models.compose.ngrams import Ngrams
print(sha256(Ngrams(64)(GOLDEN).astype("<f4").tobytes()).hexdigest()[:16])
""".replace("GOLDEN", repr(GOLDEN))


def made(folder: Path, dim: int = 64) -> Router:
    weights = np.random.default_rng(0).normal(size=(2, dim)).astype(np.float32)
    router.save(folder, POOL, Ngrams(dim), Head(weights), {"fitted": "by hand"})
    return router.load(folder)


def test_features_are_the_same_in_every_process_and_version() -> None:
    """A folder's head was fitted on these numbers: a later version must give the same ones."""
    lines = []
    for seed in ("1", "2"):
        told = subprocess.run(
            [sys.executable, "-c", PROGRAM], env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        lines.append(told.stdout.strip())
    assert lines == ["524aabc092d2b0f0"] * 2


@pytest.mark.parametrize("text", ["", "a", "ab", "x" * 50_000, "\ud800 lone", "user: 漢字\x00"])
def test_features_of_any_text(text: str) -> None:
    vector = Ngrams()(text)
    assert vector.shape == (2048,)
    assert vector.dtype == np.float32
    assert float(vector @ vector) == pytest.approx(1.0, abs=1e-5)


def test_features_tell_texts_apart_and_numbers_of_words_not() -> None:
    h = Ngrams()
    first, like, other = h("user: add 17 and 25\n"), h("user: add 38 and 41\n"), h("user: name the capital of Peru\n")
    assert float(first @ like) > float(first @ other) + 0.1


def test_transcript_is_plain_lines() -> None:
    call = ToolCall("1", "look", '{"x": 1}')
    messages = [Message("user", "hi"), Message("assistant", "", calls=(call,)), Message("tool", "", call_id="1")]
    assert transcript(messages) == 'user: hi\nassistant: look {"x": 1}\ntool: \n'


def test_a_folder_comes_back(tmp_path: Path) -> None:
    saved = made(tmp_path)
    assert saved.workers == POOL
    assert saved.about == {"fitted": "by hand"}
    assert saved.names == ("small", "large")
    assert saved.digest == router.load(tmp_path).digest
    best, scores = saved.decide([Message("user", "hi")])
    assert best == int(np.argmax(scores))
    assert saved.decide([Message("user", "hi")], [best != 0, best != 1])[0] == 1 - best
    with pytest.raises(BadInput, match="no worker is allowed"):
        saved.decide([Message("user", "hi")], [False, False])


def test_equal_scores_go_to_the_first() -> None:
    assert router.ranking(np.array([1, 2, 2, 0], np.float32)) == [1, 2, 0, 3]


def bad(**changes: object) -> dict[str, object]:
    return {"name": "w", "ref": "echo", **changes}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"workers": []}, "the pool is empty"),
        ({"workers": [bad(), bad()]}, "names of their own"),
        ({"workers": [bad(name="a b")]}, "no name of a worker"),
        ({"workers": [bad(ref="mine.py:Model")]}, "a file of Python"),
        ({"workers": [bad(ref="route:other")]}, "a router"),
        ({"workers": [bad(price_in=-1)]}, "price_in is -1"),
        ({"workers": [bad(clearance="health")]}, "no class of data"),
        ({"workers": [bad(forbidden=True)]}, "a field 'forbidden'"),
        ({"workers": {}}, "no list"),
        ({"version": 2}, "of version 2"),
        ({"format": "other"}, "is not a router's"),
        ({"features": {"kind": "ngrams", "dim": 10**9, "chars": 8000}}, "n-grams of dim"),
        ({"features": {"kind": "weights"}}, "none that this version knows"),
        ({"head": "0" * 64}, "is not the head"),
    ],
)
def test_a_bad_folder_is_told_in_one_sentence(tmp_path: Path, change: dict[str, object], told: str) -> None:
    made(tmp_path)
    config = json.loads((tmp_path / "router.json").read_text())
    (tmp_path / "router.json").write_text(json.dumps(config | change))
    with pytest.raises(BadRecord, match=told) as refused:
        router.load(tmp_path)
    assert refused.value.remedy
    assert "\n" not in refused.value.message


def test_damaged_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(BadRecord, match="holds no router"):
        router.load(tmp_path)
    made(tmp_path)
    whole = (tmp_path / "head.npy").read_bytes()
    for data in (b"", whole[:100], whole[:-4], b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535, np.zeros(3).tobytes()):
        (tmp_path / "head.npy").write_bytes(data)
        with pytest.raises(BadRecord, match=r"head\.npy"):
            router.load(tmp_path)
    np.save(tmp_path / "head.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(BadRecord, match="no array that numpy saved"):
        router.load(tmp_path)
    (tmp_path / "router.json").write_bytes(b"[" * 100_000)
    with pytest.raises(BadRecord, match="is not JSON"):
        router.load(tmp_path)


def test_a_head_that_does_not_fit_is_refused() -> None:
    with pytest.raises(BadInput, match="the head is"):
        Router(POOL, Ngrams(64), Head(np.zeros((2, 32), np.float32)))
    with pytest.raises(BadInput, match="not finite"):
        Head(np.full((2, 64), np.nan, np.float32))
