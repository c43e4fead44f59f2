"""What a decode step would wait for on a GPU: of a step, nothing comes back to the host but one read of what was drawn.

No GPU is needed: every way from a tensor to Python numbers is watched, and so are the operations whose result's shape
depends on numbers, which torch waits for as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from clew.models.engine import live_batch
from clew.models.engine.state import Result, Waiting
from clew.models.local import Local
from tests.engine.helpers import WORDS, Talk

Make = Callable[..., Local]
WAYS = ("cpu", "numpy", "tolist", "item", "__bool__", "__int__", "__float__", "__array__", "__index__")
WAITING = {"_local_scalar_dense", "nonzero", "equal", "is_nonzero", "masked_select", "unique_consecutive", "_unique2"}


class Watch(TorchDispatchMode):
    """Notes the operations that a GPU would be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        masks = name in ("index", "index_put", "index_put_") and any(
            one is not None and one.dtype == torch.bool for one in args[1]
        )
        if name in WAITING or masks:
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("family", ["qwen", "gemma"])
@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.0}, {"top_p": 0.9, "top_k": 20}])
def test_a_decode_step_waits_for_the_device_once(
    make: Make, monkeypatch: pytest.MonkeyPatch, family: str, sampling: dict[str, Any]
) -> None:
    model = make()
    if family == "gemma":
        how = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = Gemma3TextConfig(vocab_size=model.vocabulary, num_key_value_heads=1, head_dim=16, **how)
        model = Local(Gemma3ForCausalLM(config), renderer=model.renderer, ref="gemma")
    batch, results = model.engine._batch, list[Result]()
    batch._stops[:] = False
    for n, length in enumerate((3, 90, 20)):  # rows of several lengths, as a cache in blocks has them
        said = " ".join((WORDS * 5)[:length])
        request = Talk(model, str(n)).say(said).request(n, max_tokens=60, **sampling)
        batch.admit([Waiting(request, 0, lambda _: None, 0.0)], results)
    for _ in range(8):
        batch.step(results)
    reads, read, reading = 0, live_batch.read, False

    def counted(tensors: Any) -> Any:
        nonlocal reads, reading
        reads, reading = reads + 1, True
        try:
            return read(tensors)
        finally:
            reading = False

    def watched(name: str) -> Callable[..., Any]:
        way = getattr(torch.Tensor, name)

        def go(self: torch.Tensor, *given: Any, **named: Any) -> Any:
            assert reading, f"a step reads a tensor by {name}"
            return way(self, *given, **named)

        return go

    monkeypatch.setattr(live_batch, "read", counted)
    if sampling.get("top_p"):  # the tokens that truncation left are recorded, which is a read of its own
        monkeypatch.setattr(live_batch, "note_kept", lambda *_: None)
    with monkeypatch.context() as patch, Watch() as watch:
        for name in WAYS:
            patch.setattr(torch.Tensor, name, watched(name))
        for _ in range(5):
            batch.step(results)
    assert (reads, watch.seen) == (5, [])


def test_what_would_be_waited_for_is_seen() -> None:
    numbers = torch.tensor([1.0, 0.0])
    with Watch() as watch:
        numbers.nonzero()
        numbers[numbers > 0]
        float(numbers[0])
    assert watch.seen == ["nonzero", "index", "_local_scalar_dense"]
