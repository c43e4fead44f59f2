"""What a search may spend, by name: outcomes, proposals, tokens, dollars. A budget binds: at its end the search stops.

The engine asks before it begins anything, so that a budget is passed by no more than the calls then in flight.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from clew.core.errors import BadInput


class Budget:
    """Caps by name, and what is spent. A name without a cap is counted and bounds nothing.

    Raises:
        BadInput: no cap on ``outcomes``, or a cap that is no positive number.
    """

    def __init__(self, caps: Mapping[str, float]) -> None:
        if "outcomes" not in caps:
            raise BadInput("the budget bounds no outcomes", remedy="Give outcomes, a whole number from 1 on.")
        for name, cap in caps.items():
            if not math.isfinite(cap) or cap <= 0:
                raise BadInput(f"a budget of {cap} {name}", remedy="Give a positive number.")
        self.caps, self.spent = dict(caps), Counter[str]()

    def left(self, name: str = "outcomes") -> float:
        """What may still be spent; infinite where there is no cap."""
        return self.caps.get(name, math.inf) - self.spent[name]

    def add(self, cost: Mapping[str, float]) -> None:
        """Count what was spent.

        Raises:
            BadInput: a cost below 0, which would give a budget back, or one that is no number.
        """
        for name, amount in cost.items():
            if not 0 <= amount < math.inf:
                raise BadInput(f"a cost of {amount} {name}", remedy="Report what was spent, 0 or more.")
            self.spent[name] += amount  # type: ignore[assignment]  # dollars are no whole numbers

    @property
    def ended(self) -> str:
        """The first name whose cap is reached; "" while there is something left of each."""
        return next((name for name in self.caps if self.left(name) <= 0), "")
