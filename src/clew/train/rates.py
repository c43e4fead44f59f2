"""Learning rates that suit a model's size: a rule of thumb, for a default and for a warning; never a limit."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import nn

# Two anchors, and a line between them in the logarithms of size and rate. RL of models of 0.5 to 32 billion weights is
# run at about 1e-6: DeepSeekMath (arXiv 2402.03300, section 4.2: 1e-6, 7B), DAPO (2503.14476, section 4.1: 1e-6, 32B),
# TRL's GRPOConfig (1e-6). The bundled worlds' models of about 0.1 million weights learn at 7e-4 (`clew quickstart`).
# That smaller models bear larger rates is the finding of GPT-3's table 2.1 (2005.14165: 6e-4 at 125M, 2e-4 at 1.3B).
SMALL, LARGE = (1e6, 7e-4), (1e9, 1e-6)
WIDTH = 10.0  # factor by which a rate may lie below or above before it is worth a word
ADAPTERS = 10.0  # LoRA's best rate by that of all weights (Schulman et al. 2025, thinkingmachines.ai/blog/lora)


class Range(NamedTuple):
    """Learning rates of AdamW in RL: the usual one, and the bounds outside which one should look twice."""

    low: float
    usual: float
    high: float


def suits(parameters: int, adapters: bool = False) -> Range:
    """The rates that suit a model of so many weights; ``adapters``: only LoRA adapters of it are trained."""
    (few, fast), (many, slow) = SMALL, LARGE
    share = (math.log(max(parameters, 1)) - math.log(few)) / (math.log(many) - math.log(few))
    usual = fast * (slow / fast) ** min(max(share, 0.0), 1.0)
    usual *= ADAPTERS if adapters and parameters > few else 1.0
    usual = float(f"{usual:.1g}")
    return Range(usual / WIDTH, usual, usual * WIDTH)


def warning(lr: float, module: nn.Module, adapters: bool = False, least: float = 0.0) -> str:
    """One sentence where a rate does not suit a module's size; empty where it does.

    ``least``: a rate that is usual for models of any size, as of supervised training.
    """
    parameters = size(module)
    found = suits(parameters, adapters)
    usual = max(found.usual, least * (ADAPTERS if adapters else 1))
    found = found._replace(usual=usual, high=max(found.high, usual * WIDTH))
    if found.low <= lr <= found.high:
        return ""
    how, what = ("small", "may learn nothing") if lr < found.low else ("large", "may forget what the model knows")
    trained = "LoRA adapters of a model" if adapters else "a model"
    return (
        f"lr {lr:g} is {how} for {trained} of {parameters:,} weights and {what}: "
        f"{found.low:.0e} to {found.high:.0e} is usual (--lr {found.usual:g})."
    )


def size(module: nn.Module) -> int:
    """Weights of a module, those of LoRA adapters left out."""
    return sum(p.numel() for name, p in module.named_parameters() if "lora_" not in name)
