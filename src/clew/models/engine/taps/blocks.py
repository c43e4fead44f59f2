"""The blocks of any Hugging Face decoder, found by their names in the module, and what passes through them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from clew.core.errors import BadInput
from clew.models.engine.forwards.weights import text_config, unwrap
from clew.models.engine.taps.placing import Target

Seen = Callable[[int, Tensor], Tensor]  # layer and its output; gives what takes its place
STORED = (torch.int8, torch.uint8, torch.int32)


def blocks_of(module: nn.Module) -> tuple[str, nn.ModuleList]:
    """The list of a decoder's blocks, and its name in the module: ``model.layers``, ``transformer.h`` and the like.

    Raises:
        BadInput: the module has no list of as many modules as its configuration says it has layers.
    """
    count, inner = text_config(module).num_hidden_layers, unwrap(module)
    lists = [(name, m) for name, m in inner.named_modules() if isinstance(m, nn.ModuleList) and len(m) == count]
    wide = [(name, m) for name, m in lists if any(len(list(block.children())) > 1 for block in m)]
    if not wide:
        raise BadInput(
            f"{type(inner).__name__} has no list of {count} blocks, so that its hidden states cannot be named by layer",
            remedy="Use a decoder whose blocks are one ModuleList, as those of transformers are.",
        )
    return min(wide, key=lambda found: found[0].count("."))


def quantised(module: nn.Module) -> str:
    """How a module's weights are stored where they are quantised, else nothing."""
    inner: Any = unwrap(module)
    told = getattr(getattr(inner, "config", None), "quantization_config", None)
    if told is not None:
        method = told.get("quant_method", "") if isinstance(told, dict) else getattr(told, "quant_method", "")
        return str(getattr(method, "value", method)) or type(told).__name__
    for part in inner.modules():
        if "quantized" in type(part).__module__:
            return f"torch {type(part).__name__}"
    packed = next((p.dtype for p in inner.parameters() if p.dtype in STORED or p.dtype.itemsize < 2), None)
    return "" if packed is None else str(packed).removeprefix("torch.")


def target_of(module: nn.Module, layers: int, width: int, context: int) -> Target:
    """What writes into a module are checked against."""
    return Target(layers, width, context, quantised(module))


@contextmanager
def watched(module: nn.Module, layers: Iterable[int], seen: Seen) -> Iterator[None]:
    """While this is open, in this thread, ``seen`` gets the output of these layers; -1 is what enters the first."""
    _, blocks = blocks_of(module)
    here = threading.get_ident()

    def behind(number: int) -> Callable[..., Any]:
        def hook(_: nn.Module, given: object, out: Any) -> Any:
            if threading.get_ident() != here:
                return None
            whole = isinstance(out, Tensor)
            changed = seen(number, out if whole else out[0])
            return changed if whole else (changed, *out[1:])

        return hook

    def before(_: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        if threading.get_ident() == here:
            seen(-1, args[0] if args else named["hidden_states"])

    with ExitStack() as stack:
        for number in layers:
            if number < 0:
                stack.enter_context(_Handle(blocks[0].register_forward_pre_hook(before, with_kwargs=True)))
            else:
                stack.enter_context(_Handle(blocks[number].register_forward_hook(behind(number))))
        yield


class _Handle:
    """A hook that goes when the context ends."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._handle.remove()
