"""Where a model computes, in which type, how much memory is free there, and how much of it its cache may take.

``Local`` and the loading of weights ask. Nothing that the user says is overruled here.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from clew.core.errors import BadInput

LARGE = 20_000_000  # parameters; a smaller model answers sooner on a CPU, as a step on a GPU costs its launches
CPU_CACHE = 2 << 30  # bytes
GROUP = Path("/sys/fs/cgroup")  # where a container is told how much memory it may have
SHARE = 2  # the cache may take this part of what is free on a GPU: a trainer beside it needs the rest


def device_for(module: nn.Module, asked: str | None) -> str:
    """Name of a device: the one asked for; "auto" is cuda where there is one, None also asks for a large model."""
    if asked not in (None, "auto"):
        return str(asked)
    if not torch.cuda.is_available():
        return "cpu"
    return "cuda" if asked == "auto" or sum(p.numel() for p in module.parameters()) >= LARGE else "cpu"


def placed(module: nn.Module, dtype: torch.dtype | str | None, device: str | None) -> nn.Module:
    """The module on its device and in its type; "auto" is the type it came in on a GPU, and float32 on a CPU.

    Raises:
        BadInput: no such type or device, here.
    """
    where = device_for(module, device)
    own = torch.float32 if where == "cpu" else None
    try:
        torch.empty(0, device=where)
    except (RuntimeError, AssertionError) as error:
        raise BadInput(f"there is no device {where!r} here", remedy="Give cpu, cuda, cuda:1 or auto.") from error
    return module.to(device=where, dtype=own if dtype == "auto" else type_of(dtype))


def type_of(dtype: torch.dtype | str | None) -> torch.dtype | None:
    """The type of a name that torch knows.

    Raises:
        BadInput: it knows none of this name, or it is no type of weights.
    """
    found: torch.dtype | None = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if dtype is not None and not (isinstance(found, torch.dtype) and found.is_floating_point):
        raise BadInput(f"{dtype!r} is no type of weights", remedy="Give float32, bfloat16, float16 or auto.")
    return found


def cache_bytes(device: torch.device) -> int:
    """Memory for cached keys and values on this device, once the weights are there."""
    if device.type != "cuda":
        return CPU_CACHE
    free, _ = torch.cuda.mem_get_info(device)
    return int(free) // SHARE


def free_bytes(device: torch.device) -> int | None:
    """Memory that is free on a device, in a container what it may still take; None where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        told = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(told["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return None
    try:
        most, used = ((GROUP / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        pages = dict(line.split() for line in (GROUP / "memory.stat").read_text().splitlines())
        return min(free, int(most) - int(used) + int(pages["inactive_file"]))
    except (OSError, KeyError, ValueError):  # no such group, or one without a limit
        return free
