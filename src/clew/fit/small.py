"""One loop that fits a small module: crosscoders, drafters, and whatever else brings its own loss.

The callers hold the data and the loss; this loop holds the optimiser, the warm-up and decay of its rate, the clip, the
checkpoint from which an interrupted fit goes on bit for bit, and the curve on held-out data. It must never know what a
module is for, nor print: a caller moves its own progress bar as it takes the steps.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clew.core.errors import BadInput
from clew.fit import checkpoint, optim

STATE = "state.pt"
Loss = Callable[[int], tuple[Tensor, dict[str, float]]]  # of the step's number: the loss, and terms to be told


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How a module is fitted.

    ``steps`` steps at the rate ``lr``, which rises in a line over the share ``warmup`` of them; with ``decay`` "cosine"
    it then falls to 0 along half a cosine, with a share it falls to 0 in a line over that last share of the steps.
    Gradients are clipped to the norm ``clip``; a checkpoint is written every ``save_every`` steps, and held-out data
    are measured every ``measure_every`` (0: never).
    """

    steps: int
    lr: float
    warmup: float = 0.05
    decay: float | Literal["cosine"] = 0.2
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float = 1.0
    save_every: int = 200
    measure_every: int = 0

    def rate(self, step: int) -> float:
        """Share of ``lr`` at a step; steps count from 0."""
        warm = max(1.0, self.warmup * self.steps)
        if step < warm:
            return min(1.0, (step + 1) / warm)
        if self.decay == "cosine":
            return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1.0, self.steps - warm)))
        return min(1.0, (self.steps - step) / max(1.0, self.decay * self.steps))


@dataclass(slots=True)
class Step:
    """What a step did: its number (from 1), the terms of its loss, the norm of its gradient before the clip,
    CPU-seconds since the fit began, and what the held-out data said where they were measured."""

    step: int
    loss: dict[str, float] = field(default_factory=dict)
    grad_norm: float = 0.0
    cpu_s: float = 0.0
    held_out: dict[str, float] = field(default_factory=dict)


def fit(
    module: nn.Module,
    loss: Loss,
    how: Course,
    *,
    about: Mapping[str, Any] | None = None,
    going: str | Path | None = None,
    mend: Callable[[int], None] = lambda step: None,
    measure: Callable[[], dict[str, float]] | None = None,
) -> Iterator[Step]:
    """Fit a module in place, one step at a time.

    What a step needs beside weights (counters, thresholds) must lie in the module's buffers, and what it draws at
    random must come from the step's number: then a fit that goes on equals one that never stopped.

    Args:
        loss: gives the loss of a step and its terms as numbers.
        about: what the fit is of, as JSON; a checkpoint of something else is refused.
        going: folder of the checkpoint that a later call goes on from.
        mend: called after each step's update, as to put a mask on the weights again.
        measure: the terms of the held-out curve.

    Raises:
        BadInput: ``going`` holds another fit, or the loss is no number.
    """
    optimiser = optim.build(module, "adamw", how.lr, how.betas)
    said = json.dumps({"how": asdict(how), **(about or {})}, sort_keys=True)
    first, spent = _resume(module, optimiser, going, said) if going else (0, 0.0)
    trained = [p for p in module.parameters() if p.requires_grad]
    module.train()
    began = time.process_time()
    for step in range(first, how.steps):
        value, terms = loss(step)
        if not math.isfinite(float(value.detach())):
            raise BadInput(f"the loss is {float(value.detach())} at step {step}", remedy="Lower the learning rate.")
        optimiser.zero_grad()
        torch.autograd.backward(value)
        norm = float(torch.nn.utils.clip_grad_norm_(trained, how.clip))
        optimiser.step(how.rate(step))
        mend(step)
        told = Step(step + 1, terms, norm, spent + time.process_time() - began)
        last = step + 1 == how.steps
        if measure is not None and how.measure_every and ((step + 1) % how.measure_every == 0 or last):
            told.held_out = measure()
        if going and ((step + 1) % how.save_every == 0 or last):
            _save(module, optimiser, going, said, told)
        yield told
    module.eval()


def _save(module: nn.Module, optimiser: optim.Optimiser, going: str | Path, about: str, told: Step) -> None:
    frozen = {name for name, p in module.named_parameters(remove_duplicate=False) if not p.requires_grad}
    own = {name: value for name, value in module.state_dict().items() if name not in frozen}
    state = {"module": own, "optimizer": optimiser.state_dict(), "step": told.step, "cpu_s": told.cpu_s}
    checkpoint.replace(going, lambda fresh: torch.save(state | {"about": about}, fresh / STATE))


def _resume(module: nn.Module, optimiser: optim.Optimiser, going: str | Path, about: str) -> tuple[int, float]:
    if not checkpoint.exists(going):
        return 0, 0.0
    state = _state(going)
    if state["about"] != about:
        raise BadInput(
            f"{going} holds another fit: {state['about']}, not {about}",
            remedy="Give the settings it was begun with, or another folder.",
        )
    module.load_state_dict(state["module"], strict=False)
    optimiser.load_state_dict(state["optimizer"])
    return int(state["step"]), float(state["cpu_s"])


def taken_up(module: nn.Module, going: str | Path) -> float:
    """Weights as a fit left them, into the module; returns the CPU-seconds that the fit took."""
    state = _state(going)
    module.load_state_dict(state["module"], strict=False)
    module.eval()
    return float(state["cpu_s"])


def _state(going: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(checkpoint.locate(going) / STATE, map_location="cpu", weights_only=True)
    return found
