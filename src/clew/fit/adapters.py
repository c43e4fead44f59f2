"""Low-rank adapters through peft, and weights in and out of a module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clew.core.errors import BadInput, MissingExtra
from clew.fit.sharding.shards import put
from clew.models.local.fetching import SAFE


def attach(module: nn.Module, settings: Mapping[str, Any]) -> nn.Module:
    """Put LoRA adapters (arXiv 2106.09685) into a module, in place, and freeze all else.

    ``settings`` are those of peft.LoraConfig; without ``target_modules`` every linear layer but the head gets one.

    Raises:
        MissingExtra: peft is not installed. BadInput: peft refuses the settings.
    """
    try:
        import peft
    except ImportError as error:
        raise MissingExtra("peft is not installed", remedy="pip install 'clew[local]'") from error
    try:
        config = peft.LoraConfig(**{"target_modules": "all-linear", **settings})
        peft.inject_adapter_in_model(config, module)
    except (TypeError, ValueError) as error:
        raise BadInput(f"lora={dict(settings)!r}: {error}", remedy="See the arguments of peft.LoraConfig.") from error
    return module


def _layers(module: nn.Module) -> list[tuple[nn.Module, str, Any]]:
    from peft.tuners.lora import LoraLayer

    return [
        (parent, name, child)
        for parent in module.modules()
        for name, child in parent.named_children()
        if isinstance(child, LoraLayer)
    ]


@contextmanager
def merged(module: nn.Module) -> Iterator[None]:
    """Inside, the module is a plain one with the adapters added to its weights; afterwards as before, to the bit."""
    layers = _layers(module)
    kept = []
    config = module.__dict__.pop("peft_config", None)
    with torch.no_grad():
        for parent, name, layer in layers:
            base = layer.get_base_layer()
            kept.append(base.weight.data)
            base.weight.data = base.weight.data + sum(layer.get_delta_weight(a) for a in layer.active_adapters)
            setattr(parent, name, base)
    try:
        yield
    finally:
        if config is not None:
            module.peft_config = config
        for (parent, name, layer), weight in zip(layers, kept, strict=True):
            layer.get_base_layer().weight.data = weight
            setattr(parent, name, layer)


def state(module: nn.Module) -> dict[str, Tensor]:
    """The trainable parameters by name."""
    return {name: p.detach().clone() for name, p in module.named_parameters() if p.requires_grad}


def restore(module: nn.Module, saved: Mapping[str, Tensor] | None) -> None:
    """Raises BadInput if the names are not those of the module's adapters."""
    mine = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if saved is None or set(saved) != set(mine):
        remedy = "Build it with the same lora settings."
        raise BadInput("the checkpoint's adapters are not this trainer's", remedy=remedy)
    with torch.no_grad():
        for name, parameter in mine.items():
            put(parameter, saved[name])


def load_weights(module: nn.Module, folder: Path) -> None:
    """Copy the weights of a model folder into a module of the same shape, which may be cut among ranks.

    Raises:
        BadInput: they do not fit.
    """
    maker: Any = type(module)
    dtype = next(module.parameters()).dtype
    try:
        with quiet():
            saved = maker.from_pretrained(folder, **SAFE, dtype=dtype).state_dict()
        mine = dict(module.named_parameters())
        if any(hasattr(parameter, "device_mesh") for parameter in mine.values()):
            for name, parameter in mine.items():
                put(parameter, saved[name])
        else:
            module.load_state_dict(saved)
    except (RuntimeError, OSError, KeyError) as error:
        raise BadInput(f"{folder} holds no weights for this model: {error}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars of transformers: a library does not print."""
    from transformers.utils import logging as quieted

    logging: Any = quieted
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
