"""EAGLE-3 drafters (2503.01840) as their authors and ``speculators`` publish them, read into Clew's ``Eagle``.

``load`` comes here for folders that `clew draft train` did not write. They do not name the weights of their target, so
that sizes and taps are all that is checked: a drafter of another target proposes badly, and replies stay exact. Folders
come from strangers: tensors alone are read, never code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clew.core.errors import BadInput, need
from clew.models.drafters.eagle import Eagle
from clew.models.drafters.folder import LONGEST
from clew.models.drafters.layers import Design
from clew.models.engine.forwards.weights import matrices, text_config

BLOCK = 5  # tokens proposed where the folder does not say
FORM = "fc.weight, norm.weight, lm_head.weight, and midlayer.* or layers.0.*"
SHARED = {"t2d", "verifier_norm.weight", "verifier_lm_head.weight"}  # tensors that say nothing new


def is_published(folder: str | Path) -> bool:
    """Whether a folder holds an EAGLE-3 drafter that Clew did not write."""
    config = _config(Path(folder))
    named = [config.get("speculators_model_type"), *(config.get("architectures") or ())]
    return "clew" not in config and any("eagle3" in str(name).lower() for name in named)


def read(folder: str | Path, target: nn.Module) -> Eagle:
    """The drafter's trained module, for this target.

    Raises:
        BadInput: its tensors are missing or of other sizes than its configuration or the target ask for.
    """
    config, tensors = _config(Path(folder)), _tensors(Path(folder))
    design, (embed, head) = _design(config, tensors, target, folder), matrices(target)
    known = _known(tensors.pop("d2t", None), tensors.get("lm_head.weight"), design, folder)
    module = Eagle(design, embed, head, known)
    if known is not None:
        module.lm_head = nn.Linear(design.width, len(known), bias=False)
    have = module.state_dict()
    own = {_renamed(name): value.float() for name, value in tensors.items() if name not in SHARED}
    own = {"embed_tokens.weight": have["embed_tokens.weight"], "lm_head.weight": have["lm_head.weight"], **own}
    for name in have.keys() | own.keys():
        wanted, got = (tuple(d[name].shape) if name in d else None for d in (have, own))
        if wanted != got:
            told = f"the drafter in {folder} has {name} of shape {got}, and {wanted} is asked for"
            raise BadInput(told, remedy="Give the EAGLE-3 drafter of this target.")
    module.load_state_dict(own)
    return module.to(embed.device, torch.float32).requires_grad_(False).eval()


def _config(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder; the authors wrote pytorch_model.bin, of which tensors alone are read."""
    safetensors = need("safetensors.torch", "local")
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= safetensors.load_file(file)
    if not found and (folder / "pytorch_model.bin").exists():
        loaded = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
        found = {name: value for name, value in loaded.items() if isinstance(value, Tensor)}
    if "fc.weight" not in found:
        raise BadInput(f"{folder} holds no tensors of an EAGLE-3 drafter", remedy=f"They are {FORM}.")
    return found


def _renamed(name: str) -> str:
    """A tensor's name in ``Eagle``, whose layer is called as that of ``speculators``."""
    return name.replace("midlayer.", "layers.0.", 1) if name.startswith("midlayer.") else name


def _design(config: dict[str, Any], tensors: dict[str, Tensor], target: nn.Module, folder: str | Path) -> Design:
    layer = config.get("transformer_layer_config") or config
    about, own = text_config(target), config.get("eagle_config") or {}
    methods = (config.get("speculators_config") or {}).get("proposal_methods") or [{}]
    width, count = int(about.hidden_size), int(about.num_hidden_layers)
    ids = config.get("eagle_aux_hidden_state_layer_ids") or own.get("eagle_aux_hidden_state_layer_ids")
    taps = tuple(int(i) - 1 for i in ids or (2, count // 2, count - 3))  # an output of layer i is state i + 1
    if list(taps) != sorted({*taps}) or not taps or taps[0] < 0 or taps[-1] >= count - 1:
        told = f"the drafter in {folder} reads states {[t + 1 for t in taps]} of a target of {count} layers"
        raise BadInput(told, remedy="Give the EAGLE-3 drafter of this target.")
    rope = layer.get("rope_parameters") or {}
    if layer.get("rope_scaling") or rope.get("rope_type", "default") != "default":
        told = f"the drafter in {folder} scales its rotary positions, which is not done here"
        raise BadInput(told, remedy="Use another drafter, or train one with `clew draft train`.")
    try:
        heads = int(layer["num_attention_heads"])
        return Design(
            kind="eagle3",
            block=int(methods[0].get("speculative_tokens") or BLOCK),
            taps=taps,
            width=width,
            vocabulary=int(about.vocab_size),
            layers=1,
            heads=heads,
            kv=int(layer.get("num_key_value_heads") or heads),
            dim=int(layer.get("head_dim") or int(layer["hidden_size"]) // heads),
            feed=int(layer["intermediate_size"]),
            context=min(int(about.max_position_embeddings), LONGEST),
            theta=float(rope.get("rope_theta") or layer.get("rope_theta") or 10_000.0),
            eps=float(layer.get("rms_norm_eps") or 1e-6),
            head_norm=any(name.endswith("self_attn.q_norm.weight") for name in tensors),
            norm_first=bool(config.get("norm_before_residual", False)),
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        told = f"config.json of the drafter in {folder} does not say its sizes: {error!r}"
        raise BadInput(told, remedy="It names num_attention_heads, hidden_size and intermediate_size.") from None


def _known(shift: Tensor | None, head: Tensor | None, design: Design, folder: str | Path) -> Tensor | None:
    """The target's ids of the drafter's own, smaller vocabulary: ``d2t`` holds how far each lies behind its row."""
    rows = design.vocabulary if head is None else len(head)
    if shift is None:
        return None
    known = torch.arange(len(shift)) + shift.long()
    if len(shift) != rows or known.min() < 0 or known.max() >= design.vocabulary or len({*known.tolist()}) < rows:
        told = f"d2t of the drafter in {folder} names no {rows} tokens of a vocabulary of {design.vocabulary}"
        raise BadInput(told, remedy="Give the EAGLE-3 drafter of this target.")
    return known
