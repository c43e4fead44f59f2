"""Drafters for the engine: parallel (DFlash, DSpark), autoregressive (Eagle), independent, and prompt lookup."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from clew.models.engine.forwards.weights import text_config
from clew.models.engine.speculation.proposal import Drafter

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from clew.models.drafters.layers import Trained


def load(
    folder: str | Path,
    target: nn.Module,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    temperature: float | None = None,
) -> Drafter:
    """A saved drafter, ready for the engine of this target.

    Args:
        folder: what ``clew draft train`` wrote, an EAGLE-3 drafter as others publish it, or "lookup" for prompt
            lookup, which needs no training.
        target: the Hugging Face causal LM it drafts for. tokenizer: the target's; None leaves it unchecked.
        temperature: of sampling, for which the table of ``clew draft calibrate`` is then used; None uses none.

    Raises:
        UnknownName: no drafter there. BadInput: made for another tokenizer, vocabulary, width or weights; or its
            calibration was fitted for another drafter or block, or not for this temperature.
    """
    from clew.models.drafters import calibration, published
    from clew.models.drafters import folder as folders
    from clew.models.drafters.plain import Lookup

    if str(folder) == "lookup":
        return Lookup(text_config(target).vocab_size)
    if published.is_published(folder):
        return ready(published.read(folder, target))
    module = folders.read(folder, target, tokenizer)
    table = None if temperature is None else calibration.find(folder, module, temperature)
    return ready(module, table.temperatures if table else None)


def ready(module: Trained, temperatures: Sequence[float] | None = None) -> Drafter:
    """A trained module as the engine runs it; its weights are read now."""
    from clew.models.drafters import independent, plain
    from clew.models.drafters.eagle import Eagle
    from clew.models.drafters.parallel import DSpark
    from clew.models.drafters.proposers import Autoregressive, Parallel

    if isinstance(module, independent.Independent):
        return plain.Independent(module.inner, module.design.block, module.design.context)
    if isinstance(module, Eagle):
        return Autoregressive(module)
    assert isinstance(module, DSpark)
    return Parallel(module, temperatures)
