"""Drafters for the engine: parallel (DFlash, DSpark), autoregressive (Eagle), independent, and prompt lookup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clew.models.engine.speculation.proposal import Drafter


def load(folder: str | Path, target: Any, tokenizer: Any = None, *, temperature: float | None = None) -> Drafter:
    """A saved drafter, ready for the engine of this target.

    Args:
        folder: what ``clew draft train`` wrote, or "lookup" for prompt lookup, which needs no training.
        target: the Hugging Face causal LM it drafts for. tokenizer: the target's; None leaves it unchecked.
        temperature: of sampling, for which the table of ``clew draft calibrate`` is then used; None uses none.

    Raises:
        UnknownName: no drafter there. BadInput: made for another tokenizer, vocabulary, width or weights; or its
            calibration was fitted for another drafter or block, or not for this temperature.
    """
    from clew.models.drafters import calibration
    from clew.models.drafters import folder as folders
    from clew.models.drafters.plain import Lookup

    if str(folder) == "lookup":
        return Lookup(target.config.get_text_config().vocab_size)
    module = folders.read(folder, target, tokenizer)
    table = None if temperature is None else calibration.find(folder, module, temperature)
    return ready(module, table.temperatures if table else None)


def ready(module: Any, temperatures: Any = None) -> Drafter:
    """A trained module as the engine runs it; its weights are read now."""
    from clew.models.drafters.plain import Independent
    from clew.models.drafters.proposers import Autoregressive, Parallel

    kind = module.design.kind
    if kind == "independent":
        return Independent(module.inner, module.design.block, module.design.context)
    if kind == "eagle3":
        return Autoregressive(module)
    return Parallel(module, temperatures)
