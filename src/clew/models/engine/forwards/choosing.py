"""Which forward computes a module: the engine, its profile and small drafters ask here."""

from __future__ import annotations

from torch import nn

from clew.models.engine.forwards import batched
from clew.models.engine.forwards.batched import Batched
from clew.models.engine.forwards.fast import Fast
from clew.models.engine.forwards.generic import Generic
from clew.models.engine.forwards.weights import shape_of


def forward_of(module: nn.Module, context: int, steady: bool = False, fast: bool | None = None) -> Fast | Generic:
    """``Fast`` for the families that it knows, ``Batched`` where attention can be replaced, else ``Generic``.

    Args:
        context: most positions of a row.
        steady: a token's numbers have the same bits whatever is computed beside it, which ``Batched`` cannot promise.
        fast: False takes the module's own forward, row by row.
    """
    if fast is False:
        return Generic(module, context, steady)
    if (shape := shape_of(module)) is not None:
        return Fast(module, shape, context, steady)
    return (
        Generic(module, context, steady) if steady or batched.objection(module, context) else Batched(module, context)
    )
