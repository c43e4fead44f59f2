"""LoRA adapters in folders that peft reads and writes: taken up into a module, and written from one.

The trainer calls this. A folder may come from anywhere: of its settings only numbers are read, of its weights only
safetensors, and nothing in it is run or matched as a pattern.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clew.core.errors import BadInput
from clew.fit import adapters

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."  # what peft puts before the names of a wrapped model's parameters
LONGEST = 1 << 20  # bytes of a configuration
NUMBERS = {"lora_alpha": (int, float), "lora_dropout": (int, float), "use_rslora": (bool,)}
UNREAD = ("rank_pattern", "alpha_pattern", "modules_to_save", "use_dora", "layer_replication", "fan_in_fan_out")


def begin(module: nn.Module, folder: str | Path) -> nn.Module:
    """Put the adapter of a folder into a module, in place, to be trained on; all else is frozen.

    Raises:
        BadInput: no LoRA adapter there, one with settings that are not served, or one of another base model.
    """
    folder = Path(folder)
    settings, saved = _settings(folder), _weights(folder)
    ranks = {tensor.shape[0 if name.endswith(".lora_A.weight") else 1] for name, tensor in saved.items()}
    if len(ranks) != 1:
        raise _unserved(folder, f"ranks {sorted(ranks)}")
    layers = sorted({name.rpartition(".lora_")[0] for name in saved})
    known = dict(module.named_modules())
    strange = [name for name in layers if name not in known]
    if strange:
        raise _foreign(folder, f"it adapts {strange[0]!r}, which this model does not have")
    for name in layers:
        if not isinstance(known[name], nn.Linear):
            raise _unserved(folder, f"an adapter of {name!r}, a {type(known[name]).__name__}")
        want = getattr(known[name], "weight", torch.empty(0)).shape
        got = (saved[f"{name}.lora_B.weight"].shape[0], saved[f"{name}.lora_A.weight"].shape[1])
        if tuple(want) != got:
            raise _foreign(folder, f"{name!r} is {tuple(want)} here and {got} there")
    adapters.attach(module, {"r": ranks.pop(), "target_modules": layers, **settings})
    mine = dict(module.named_parameters())
    with torch.no_grad():
        for name, tensor in saved.items():
            mine[name.removesuffix("weight") + "default.weight"].copy_(tensor)
    return module


def write(module: nn.Module, folder: str | Path, base: str) -> Path:
    """Write a module's adapters as a folder that ``peft.PeftModel.from_pretrained`` loads.

    Args:
        base: name or folder of the weights under the adapters, which peft loads them over.
    """
    from safetensors.torch import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    held: Any = module
    config = held.peft_config["default"]
    told = {**config.to_dict(), "base_model_name_or_path": base, "task_type": "CAUSAL_LM", "inference_mode": True}
    told = {name: sorted(value) if isinstance(value, set) else value for name, value in told.items()}
    (folder / CONFIG).write_text(json.dumps(told, indent=2, sort_keys=True, default=str) + "\n")
    named = {PREFIX + n.replace(".default.", "."): w.cpu().contiguous() for n, w in adapters.state(module).items()}
    save_file(named, folder / WEIGHTS, metadata={"format": "pt"})
    return folder


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.is_file():
        raise BadInput(f"{folder} holds no adapter ({CONFIG})", remedy="Name a folder that peft or `clew train` saved.")
    if path.stat().st_size > LONGEST:
        raise BadInput(f"{path} has {path.stat().st_size:,} bytes", remedy="A configuration has some hundred.")
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not JSON: {type(error).__name__}", remedy="Save the adapter again.") from error
    if not isinstance(told, Mapping) or told.get("peft_type") != "LORA":
        kind = told.get("peft_type") if isinstance(told, Mapping) else type(told).__name__
        raise BadInput(f"{folder} is an adapter of kind {kind!r}", remedy="Only LoRA adapters can be trained on here.")
    if told.get("bias", "none") != "none":
        raise _unserved(folder, f"bias={told['bias']!r}")
    if used := [name for name in UNREAD if told.get(name)]:
        raise _unserved(folder, " and ".join(used))
    out = {name: told[name] for name in NUMBERS if told.get(name) is not None}
    if wrong := [name for name, value in out.items() if not isinstance(value, NUMBERS[name])]:
        raise BadInput(f"{path}: {wrong[0]} is {out[wrong[0]]!r}", remedy="Save the adapter again.")
    return out


def _weights(folder: Path) -> dict[str, Tensor]:
    """The tensors by the module's own names; every adapted layer has its two matrices."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = folder / WEIGHTS
    if not path.is_file():
        old = " (adapter_model.bin is a pickle, which can run code)" if (folder / "adapter_model.bin").exists() else ""
        raise BadInput(f"{folder} holds no {WEIGHTS}{old}", remedy="Save it with peft's save_pretrained.")
    try:
        saved = {name.removeprefix(PREFIX): tensor for name, tensor in load_file(path).items()}
    except (SafetensorError, OSError) as error:
        raise BadInput(f"{path} cannot be read: {error}", remedy="Save the adapter again.") from error
    ends = (".lora_A.weight", ".lora_B.weight")
    layers = {name.removesuffix(end) for name in saved for end in ends if name.endswith(end)}
    whole = {layer + end for layer in layers for end in ends}
    if not layers or set(saved) != whole or any(tensor.ndim != 2 for tensor in saved.values()):
        odd = sorted(set(saved) ^ whole)[:1] or ["matrices of another form"]
        raise _unserved(folder, odd[0])
    return saved


def _unserved(folder: Path, what: str) -> BadInput:
    return BadInput(f"the adapter in {folder} has {what}, which is not served", remedy="Merge it into its base first.")


def _foreign(folder: Path, why: str) -> BadInput:
    told = f"the adapter in {folder} is of another base model: {why}"
    return BadInput(told, remedy=f"Name the model it was trained on; {folder / CONFIG} says which.")
