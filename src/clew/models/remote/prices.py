"""What a million tokens cost. The table has its source and date in ``prices.json``; prices change, so give your own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from clew.core.values import Usage


class Price(NamedTuple):
    """US dollars per million tokens."""

    prompt: float
    completion: float
    cached: float | None = None  # None: as the rest of the prompt

    def cost(self, usage: Usage) -> float:
        """US dollars of one call."""
        cached = self.prompt if self.cached is None else self.cached
        fresh = usage.prompt - usage.cached
        return (fresh * self.prompt + usage.cached * cached + usage.completion * self.completion) / 1e6


def price_of(model: str, table: Mapping[str, Price] | None = None) -> Price | None:
    """The price of a model by name, or None where the table has none.

    A vendor's prefix (``openai/``) and a dated or ``latest`` ending are left out of account.
    """
    table = bundled() if table is None else table
    name = model.rpartition("/")[2]
    short = re.sub(r"[-@:](\d{4}-?\d{2}-?\d{2}.*|latest)$", "", name)
    return table.get(model) or table.get(name) or table.get(short)


@lru_cache(maxsize=1)
def bundled() -> dict[str, Price]:
    data = json.loads(files("clew.models.remote").joinpath("prices.json").read_text(encoding="utf-8"))
    return {name: Price(*row) for name, row in data["prices"].items()}
