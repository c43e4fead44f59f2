"""What a million tokens cost. The table has its source and date in ``prices.json``; prices change, so give your own."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from clew.core.records import Request
from clew.core.values import Completion, Usage

CHARACTERS = 3.0  # of a text for each of its tokens, on the careful side


class Price(NamedTuple):
    """US dollars per million tokens."""

    prompt: float
    completion: float
    cached: float | None = None  # None: as the rest of the prompt

    def cost(self, usage: Usage) -> float:
        """US dollars of one call."""
        price = self.prompt if self.cached is None else self.cached
        cached = min(usage.cached, usage.prompt)
        fresh = usage.prompt - cached
        return (fresh * self.prompt + cached * price + usage.completion * self.completion) / 1e6


def sent(request: Request) -> int:
    """Tokens of a prompt before they are counted, on the careful side: by its ids, else by its characters."""
    said = 0.0
    for node in request.path:
        m = node.message
        calls = sum(len(call.name) + len(call.arguments) for call in m.calls)
        said += len(node.ids or ()) or (len(m.text) + len(m.reasoning) + calls) / CHARACTERS
    said += sum(len(t.name) + len(t.description) + len(json.dumps(dict(t.schema))) for t in request.tools) / CHARACTERS
    return int(said) + 16


def received(completion: Completion) -> int:
    """Tokens of a reply that nobody counted: by its ids, else by its characters."""
    if completion.tokens is not None:
        return len(completion.tokens)
    m = completion.message
    said = len(m.text) + len(m.reasoning) + sum(len(call.name) + len(call.arguments) for call in m.calls)
    return math.ceil(said / CHARACTERS)


def charged(usage: Usage, prompt: int, completion: int) -> Usage:
    """The tokens that are paid for: those that the endpoint counted, and estimates of what it did not count."""
    return Usage(usage.prompt or prompt, usage.completion or completion, usage.cached)


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
