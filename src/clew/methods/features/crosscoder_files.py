"""Crosscoders in folders, laid out as SAELens lays out a sparse autoencoder.

    cfg.json                 what SAELens reads of it, with ``metadata`` that says it is a crosscoder
    sae_weights.safetensors  W_enc [2 * width, latents], W_dec [latents, 2 * width], b_enc, b_dec, and ``threshold``
    crosscoder.safetensors   mean and RMS of the states, masks, steps since each latent was active

The states of A and B side by side, scaled by the mean and RMS in the third file, are what SAELens' autoencoder takes
(``SAE.load_from_disk``). Decoder rows have norm 1, so that its choice by pre-activation is ours: give them that by
``unit_norms`` before ``save``. Nothing that a folder says is run.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clew.core.errors import BadInput
from clew.fit import checkpoint
from clew.methods.features.crosscoder import Crosscoder, Design

CONFIG, WEIGHTS, OURS = "cfg.json", "sae_weights.safetensors", "crosscoder.safetensors"
LONGEST = 1 << 20  # bytes of a configuration
LAYOUT = "6.54.12"  # of SAELens; without it SAELens takes the file for one of before 6.0 and drops the metadata
ARCHITECTURE = {"topk": "topk", "batchtopk": "jumprelu", "l1": "standard"}
BUFFERS = ("mean", "rms", "visible", "idle")


@torch.no_grad()
def unit_norms(module: Crosscoder) -> None:
    """Give every decoder row the norm 1, in place; what the crosscoder computes stays the same."""
    norm = module.decoder.norm(dim=1).clamp(min=1e-12)
    module.decoder.div_(norm[:, None])
    module.encoder.mul_(norm[:, None])
    module.encoder_bias.mul_(norm)


def save(module: Crosscoder, folder: str | Path, about: dict[str, Any]) -> Path:
    """Write a crosscoder; ``about`` says, as JSON, which models and layer it is of."""
    from safetensors.torch import save_file

    design = module.design
    config = {
        "architecture": ARCHITECTURE[design.kind], "d_in": 2 * design.width, "d_sae": design.latents,
        "dtype": "float32", "device": "cpu", "apply_b_dec_to_input": False, "normalize_activations": "none",
        "reshape_activations": "none", "k": design.k,
        "metadata": {
            "sae_lens_version": LAYOUT, "sae_lens_training_version": None, "crosscoder": asdict(design), "about": about,
            "scaling": OURS,
        },
    }  # fmt: skip
    weights: dict[str, Tensor] = {
        "W_enc": module.encoder.t(), "W_dec": module.decoder, "b_enc": module.encoder_bias, "b_dec": module.decoder_bias
    }  # fmt: skip
    if design.kind == "batchtopk":
        weights["threshold"] = module.threshold.expand(design.latents)

    def write(fresh: Path) -> None:
        (fresh / CONFIG).write_text(json.dumps(config, indent=1), encoding="utf-8")
        save_file({n: w.detach().clone().contiguous() for n, w in weights.items()}, fresh / WEIGHTS)
        save_file({name: getattr(module, name).clone() for name in BUFFERS}, fresh / OURS)

    return checkpoint.replace(folder, write)


def load(folder: str | Path) -> tuple[Crosscoder, dict[str, Any]]:
    """A crosscoder, ready for use, and what ``save`` was told of it.

    Raises:
        BadInput: there is none, or its files do not fit each other.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = checkpoint.locate(folder)
    file = folder / CONFIG
    if not file.is_file() or file.stat().st_size > LONGEST:
        raise BadInput(f"{folder} holds no crosscoder ({CONFIG})", remedy="Name a folder that clew audit diff wrote.")
    try:
        told = json.loads(file.read_text(encoding="utf-8"))["metadata"]
        said = dict(told["crosscoder"])
        design = Design(**{**said, "own": tuple(map(int, said["own"]))})
        weights, ours = load_file(folder / WEIGHTS), load_file(folder / OURS)
        state = {"encoder": weights["W_enc"].t(), "decoder": weights["W_dec"], "encoder_bias": weights["b_enc"]}
        state |= {"decoder_bias": weights["b_dec"], **{name: ours[name] for name in BUFFERS}}
        state["threshold"] = weights["threshold"][0] if design.kind == "batchtopk" else torch.zeros(())
        module = Crosscoder(design)
        module.load_state_dict(state)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError, RecursionError) as error:
        told = f"the crosscoder in {folder} cannot be read: {type(error).__name__}"
        raise BadInput(told, remedy="Remove the folder and fit the crosscoder again.") from None
    return module.eval(), dict(told.get("about", {}))
