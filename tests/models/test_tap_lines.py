"""A tap in one line: its fields, files of vectors, and what is refused in one sentence."""

from __future__ import annotations

import pickle
import zipfile

import numpy as np
import pytest

from clew.core.errors import BadInput
from clew.models.taps import lines
from clew.models.taps.lines import tap_of
from clew.models.taps.tap import Tap

NORTH = np.arange(4, dtype=np.float32)


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("north.npy", NORTH)
    np.save("double.npy", NORTH.astype(np.float64))
    np.savez("many.npz", north=NORTH, south=-NORTH)
    return tmp_path


def test_a_line_says_what_a_tap_says():
    assert tap_of("layer=1,add=north.npy,times=3") == Tap(1, add=3 * NORTH)
    assert tap_of("layer=2, add=double.npy, part=reply") == Tap(2, add=NORTH, part="reply")
    assert tap_of("layer=0,positions=0+-1,patch=north.npy") == Tap(0, (0, -1), patch=NORTH)
    assert tap_of("layer=1,along=many.npz:north,read=many.npz:south,bias=.5,clamp=2") == Tap(
        1, along=NORTH, read=-NORTH, bias=0.5, clamp=2.0
    )
    assert tap_of("layer=1,along=north.npy,scale=0").scale == 0


def test_vectors_of_safetensors():
    safe = pytest.importorskip("safetensors.numpy", reason="did not run: safetensors is not installed")
    safe.save_file({"north": NORTH}, "v.safetensors")
    assert tap_of("layer=1,add=v.safetensors:north") == Tap(1, add=NORTH)
    with pytest.raises(BadInput, match="holds no south"):
        tap_of("layer=1,add=v.safetensors:south")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "is no field of a tap"),
        ("add=north.npy", "names no layer"),
        ("layer=1,colour=red", "no field of a tap"),
        ("layer=1,add=north.npy,add=north.npy", "stands twice"),
        ("layer=one", "no whole number"),
        ("layer=1,add=north.npy,times=inf", "no finite number"),
        ("layer=1,times=2", "adds nothing"),
        ("layer=1,add=north.npy,part=middle", "part='middle' is none"),
        ("layer=1,add=gone.npy", "gone.npy cannot be read: No such file"),
        ("layer=1,add=many.npz", "holds no vector without a name"),
        ("layer=1,add=many.npz:west", "holds no west"),
        ("layer=1,add=north.npy,clamp=2", "writes add and clamp"),
        ("layer=-1,add=north.npy", "names no layer"),
    ],
)
def test_a_bad_line_is_refused(line, told):
    with pytest.raises(BadInput, match=told):
        tap_of(line)


def test_a_hostile_file_is_refused_and_never_run(files, monkeypatch):
    class Evil:
        def __reduce__(self):
            return (open, (str(files / "ran"), "w"))

    (files / "evil.npy").write_bytes(pickle.dumps(Evil()))
    np.save("objects.npy", np.array([Evil()], dtype=object), allow_pickle=True)
    np.save("text.npy", np.array(["a"]))
    (files / "empty.npy").write_bytes(b"")
    (files / "broken.npz").write_bytes(b"PK\x03\x04 and no more")
    (files / "broken.safetensors").write_bytes(b"\xff" * 20)
    for name in ("evil.npy", "objects.npy", "text.npy", "empty.npy", "broken.npz:a", "broken.safetensors:a"):
        with pytest.raises(BadInput, match="holds no"):
            tap_of(f"layer=1,add={name}")
    assert not (files / "ran").exists()
    with zipfile.ZipFile("bomb.npz", "w", zipfile.ZIP_DEFLATED) as packed, packed.open("a.npy", "w") as file:
        np.lib.format.write_array(file, np.zeros(1 << 20))
    monkeypatch.setattr(lines, "LARGEST", 1 << 20)
    with pytest.raises(BadInput, match="unpacks to over"):
        tap_of("layer=1,add=bomb.npz:a")
