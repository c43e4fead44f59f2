"""What memory a training takes, counted from the tensors of its trainer before the first step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import Tensor, nn

from clew.core.protocols import Scores
from clew.fit.trainer import Trainer
from clew.models.local import devices


class Memory(NamedTuple):
    """Bytes in this process. Activations are not among them: they depend on the rows of a step."""

    loaded: int  # weights that are there already: trained, the engine's copy, float32 masters, a reference model
    gradients: int
    optimiser: int
    copy: int  # of the weights, which the engine gets after each step
    cache: int  # of keys and values, when it is full; 0 where this process samples nothing
    free: int | None  # on the device now; None where the system does not say

    @property
    def least(self) -> int:
        """What comes beside the weights that are loaded, with an empty cache."""
        return self.gradients + self.optimiser + self.copy

    @property
    def most(self) -> int:
        return self.least + self.cache


def needed(trainer: Trainer, *, samples: bool, reference: Scores | None = None) -> Memory:
    """The memory of a training; ``samples``: its model also samples the runs. Of several ranks: that of this one."""
    trained = [p for p in trainer.module.parameters() if p.requires_grad]
    engine: Any = getattr(trainer.model, "engine", None)
    copy = 0 if engine is None else _bytes(_tensors(trainer.serving.served))
    loaded = copy + _bytes({id(t): t for m in (trainer.serving.served, trainer.module) for t in _tensors(m)}.values())
    if isinstance(module := getattr(reference, "module", None), nn.Module):
        loaded += 2 * _bytes(_tensors(module))  # with the copy of its engine
    cache = engine.cache_bytes if samples and engine is not None else 0
    gradients, states, free = _bytes(trained), trainer.optimizer.state_bytes(), devices.free_bytes(trainer.device)
    return Memory(loaded, gradients, states, copy, cache, free)


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


def _bytes(tensors: Iterable[Any]) -> int:
    """Of a tensor that is cut among ranks: the rows of this one."""
    here = (t.to_local() if hasattr(t, "to_local") else t for t in tensors)
    return sum(t.numel() * t.element_size() for t in here)
