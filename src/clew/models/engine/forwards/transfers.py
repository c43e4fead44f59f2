"""Numbers on their way between this process and the device of the weights.

Forwards send places and tokens, the batch reads what was drawn. On a GPU what is sent waits for nothing, as it comes
from pinned memory, and what is read comes in one copy, which is the only wait of a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def sent_ids(values: Sequence[int] | npt.NDArray[Any], device: torch.device) -> Tensor:
    """int64 of the same shape, on the device."""
    return sent(np.asarray(values, dtype=np.int64), device)


def sent(values: npt.NDArray[Any], device: torch.device) -> Tensor:
    """The array on the device, which on a CPU shares its memory."""
    found = torch.from_numpy(values)
    return found if device.type == "cpu" else found.pin_memory().to(device, non_blocking=True)


def read(tensors: Sequence[Tensor]) -> list[npt.NDArray[Any]]:
    """Tensors of up to 53 bits as arrays of their own shapes and types."""
    if all(one.device.type == "cpu" for one in tensors):
        return [one.numpy() for one in tensors]
    together = torch.cat([one.reshape(-1).double() for one in tensors]).cpu()
    parts = torch.split(together, [one.numel() for one in tensors])
    return [part.to(one.dtype).numpy().reshape(one.shape) for part, one in zip(parts, tensors, strict=True)]
