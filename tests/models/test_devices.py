"""Where weights go and in which type if the user does not say; a GPU is one that torch is made to speak of."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from clew.core.errors import BadInput
from clew.models.local import Local, devices, small

SMALL, LARGE = nn.Linear(8, 8), nn.Linear(5000, 5000, device="meta")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch says that there is a GPU with 10 GB free."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (10_000_000_000, 20_000_000_000))


def test_without_a_gpu_everything_is_on_the_cpu_in_float32() -> None:
    if torch.cuda.is_available():
        pytest.skip("did not run: this machine has a GPU")
    assert [devices.device_for(LARGE, asked) for asked in (None, "auto", "cpu")] == ["cpu"] * 3
    half = nn.Linear(8, 8).bfloat16()
    assert devices.placed(half, "auto", None).weight.dtype == torch.float32
    assert devices.cache_bytes(torch.device("cpu")) == 2 << 30


def test_a_gpu_takes_large_models_and_those_that_are_sent_there(gpu: None) -> None:
    assert devices.device_for(LARGE, None) == devices.device_for(SMALL, "auto") == "cuda"
    assert devices.device_for(SMALL, None) == devices.device_for(LARGE, "cpu") == "cpu"
    assert devices.device_for(LARGE, "cuda:1") == "cuda:1"
    assert devices.cache_bytes(torch.device("cuda")) == 5_000_000_000
    assert devices.placed(LARGE.bfloat16(), "auto", "meta").weight.dtype == torch.bfloat16


def test_a_module_stays_where_and_what_it_is() -> None:
    words = small(["a", "b"], d=32, context=64)
    module = words.module.double()
    model = Local(module, renderer=words.renderer, ref="tiny")
    assert model.module is module
    assert next(module.parameters()).dtype == torch.float64


def test_a_type_or_device_that_is_none_is_refused_in_a_sentence() -> None:
    for dtype in ("nonsense", "int8"):
        with pytest.raises(BadInput, match=f"'{dtype}' is no type of weights"):
            devices.placed(nn.Linear(2, 2), dtype, None)
    with pytest.raises(BadInput, match="there is no device 'nonsense' here"):
        devices.placed(nn.Linear(2, 2), "float32", "nonsense")
