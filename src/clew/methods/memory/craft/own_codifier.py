"""A codifier of the user's own, by reference: ``file.py:function`` or ``module:function``.

``clew memory craft`` loads it. The user named the file, so it is run; what it writes is a draft like any other.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import cast

from clew.core.errors import BadInput
from clew.core.values import ToolSpec
from clew.harness.loading import found_in, load_module
from clew.harness.memory.item_kinds import Item
from clew.methods.memory.craft.drafting import Codifier, Draft
from clew.methods.memory.craft.model_codifier import read_draft

Writes = Callable[[Item, Sequence[str], Sequence[ToolSpec]], object]


class FunctionCodifier:
    """A function of a plan, its queries and what may be called; it gives a Draft or a mapping of its fields, or None,
    and may be async."""

    def __init__(self, function: Writes, name: str) -> None:
        self.function, self.name = function, name

    async def codify(self, plan: Item, queries: Sequence[str], api: Sequence[ToolSpec]) -> Draft:
        """As ``Codifier``.

        Raises:
            BadInput: the function gives something else. Whatever it raises.
        """
        found = self.function(plan, queries, api)
        if inspect.isawaitable(found):
            found = await cast(Awaitable[object], found)
        if found is None:
            return Draft("", "", "", "", why=f"{self.name} wrote no tool")
        return found if isinstance(found, Draft) else read_draft(dict(found) if isinstance(found, Mapping) else found)


def load_codifier(ref: str) -> Codifier:
    """The codifier of ``file.py:function``: a function, or an object that has ``codify``.

    Raises:
        BadInput: there is none.
    """
    place, _, name = ref.rpartition(":")
    try:
        found = found_in(load_module(place), name)
        if inspect.isclass(found):
            found = found()
    except Exception as error:  # what a file raises that is run here, of whatever kind
        told = f"{type(error).__name__}: {error}"
        raise BadInput(f"{ref} cannot be loaded: {told}", remedy="Write file.py:function.") from error
    if hasattr(found, "codify"):
        return cast(Codifier, found)
    if not callable(found):
        raise BadInput(f"{ref} is no function", remedy="Write: def codify(plan, queries, api): return Draft(...)")
    return FunctionCodifier(cast(Writes, found), name)
