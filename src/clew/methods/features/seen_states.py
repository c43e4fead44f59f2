"""What is kept of hidden states once a crosscoder is fitted: figures of its latents, a sample, the tokens of the rows.

``comparison`` writes it beside the crosscoder, in ``seen.safetensors``, and removes the states. With it the same
question is answered again, and another behaviour asked, without reading a model anew. Nothing that a file says is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from clew.core.errors import BadInput
from clew.fit import checkpoint
from clew.methods.features.features import Latents

FILE = "seen.safetensors"
FIGURES = ("share", "fitted", "often", "high", "rows", "values")


@dataclass(frozen=True, slots=True)
class Seen:
    """Of the states that a crosscoder was fitted to.

    latents: figures over some rows. places: int32 [rows, 3], of each of these rows the number of its source, the
    position in it, and the place in the reply. sample: states [n, 2, width] as they left the models. unexplained: of
    A and B, the fraction of variance of held-out rows that the crosscoder leaves, [2].
    """

    latents: Latents
    places: Tensor
    sample: Tensor
    unexplained: Tensor


def save(seen: Seen, folder: Path) -> None:
    """Write it durably, or not at all."""
    from safetensors.torch import save_file

    tensors = {name: getattr(seen.latents, name) for name in FIGURES}
    tensors |= {"places": seen.places, "sample": seen.sample, "unexplained": seen.unexplained}

    def write(fresh: Path) -> None:
        save_file({name: x.detach().contiguous().clone() for name, x in tensors.items()}, fresh / FILE)

    checkpoint.replace(folder, write)


def load(folder: Path, latents: int) -> Seen | None:
    """What a folder holds of a crosscoder of so many latents; None where nothing is there.

    Raises:
        BadInput: it was altered.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not checkpoint.exists(folder):
        return None
    try:
        found = load_file(checkpoint.locate(folder) / FILE)
        figures = Latents(*(found[name] for name in FIGURES))
        made = Seen(figures, found["places"], found["sample"], found["unexplained"])
        fits = len(figures.share) == latents and made.places.shape[1:] == (3,) and made.sample.ndim == 3
        if not fits or (figures.rows.numel() and int(figures.rows.max()) >= len(made.places)):
            raise ValueError
    except (OSError, ValueError, KeyError, SafetensorError):
        told = f"{folder} holds figures of latents that cannot be read"
        raise BadInput(told, remedy="Remove the folder; the states are then read again.") from None
    return made


def places_of(index: object) -> Tensor:
    """The rows of an index of ``clew.models.taps`` as numbers, int32 [rows, 3]."""
    import numpy as np

    given = np.asarray(index)
    return torch.from_numpy(np.stack([given[name].astype(np.int32) for name in ("source", "position", "token")], 1))
