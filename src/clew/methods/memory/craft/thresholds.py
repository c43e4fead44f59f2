"""When a plan has earned a tool: how often it recurs, and a threshold, fixed or by ski rental. Pure functions.

``due`` goes through the plans of a memory; ``clew memory craft`` prints what it says. Recurrence is counted on
selection, in the ledger of the item, not on success (arXiv 2606.24151, section 3.3).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, get_args

from clew.core.errors import BadInput
from clew.harness.memory.item_kinds import Item
from clew.methods.memory.craft.query_shapes import plain, shapes

Of = Literal["shapes", "queries"]
NEVER = 10**9  # a count that no ledger reaches
PRIOR = 0.5  # of a text run's tokens that a tool saves, before any was used: the mean of a law that is even from 0 to 1


class Recurrence(NamedTuple):
    """How often a plan was selected. uses: runs. queries: different in their words. shapes: different when what varies
    is masked (see ``query_shapes``)."""

    uses: int
    queries: int
    shapes: int


class Need(NamedTuple):
    """What a threshold wants. have of what counts; theta of it are needed. why: one sentence with the figures."""

    have: int
    theta: int
    why: str


class Threshold(Protocol):
    """Says how often a plan must recur."""

    def need(self, seen: Recurrence, under_way: int = 0) -> Need:
        """What is there and what is needed.

        Args:
            under_way: uses that are counted and not yet paid for: 1 where it is asked between selection and execution.
        """
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """``theta`` structurally different queries; ``of="queries"``: queries that differ in any word.

    Raises:
        BadInput: theta below 1.
    """

    theta: int = 3
    of: Of = "shapes"

    def __post_init__(self) -> None:
        _check(self.theta, self.of)

    def need(self, seen: Recurrence, under_way: int = 0) -> Need:
        have = getattr(seen, self.of)
        return Need(have, self.theta, f"{have} different {self.of} of {self.theta}")


@dataclass(frozen=True, slots=True)
class SkiRental:
    """As many uses as would have paid for the build: theta* = ceil(build / saving) (specs/E168, 8.1).

    The tool is built before the use that reaches theta*, so that what was spent is below twice the cost of who knew the
    stream beforehand (Karlin, Manasse, Rudolph and Sleator 1988, 10.1007/BF01762111). ``floor`` different queries are
    wanted beside it, so that one repeated query earns nothing.

    Args:
        build: what a tool costs to build and check, in tokens.
        saving: tokens that one use of it saves; where it is not above 0 a tool is never built.
        floor: different shapes (or queries, see ``of``) that are needed in any case.

    Raises:
        BadInput: a cost below 0 or not finite, a floor below 1.
    """

    build: float
    saving: float
    floor: int = 2
    of: Of = "shapes"

    def __post_init__(self) -> None:
        _check(self.floor, self.of)
        if not (0 <= self.build < math.inf) or not math.isfinite(self.saving):
            raise BadInput(f"a build of {self.build} tokens that saves {self.saving}", remedy="Give finite costs.")

    @property
    def theta(self) -> int:
        """Uses that pay for a build."""
        return max(1, min(NEVER, math.ceil(self.build / self.saving))) if self.saving > 0 else NEVER

    def need(self, seen: Recurrence, under_way: int = 0) -> Need:
        next_use = seen.uses - under_way + 1
        pays = "never pays" if self.theta >= NEVER else f"pays for itself in {self.theta} uses"
        costs = f"a build of {self.build:,.0f} tokens that saves {self.saving:,.0f} a use"
        why = f"{costs} {pays}; the next is use {next_use}"
        have = getattr(seen, self.of)
        if have < self.floor:
            return Need(min(next_use, self.theta - 1), self.theta, f"{why}; {have} different {self.of} of {self.floor}")
        return Need(next_use, self.theta, why)


def measured(
    builds: Sequence[float],
    text: Sequence[float],
    saved: Sequence[float],
    guess: float,
    floor: int = 2,
    of: Of = "shapes",
    prior: float = PRIOR,
) -> SkiRental:
    """Ski rental with what was measured so far.

    What a tool of this plan would save is learnt from the tools that the memory has: their mean, and with them the
    prior, which counts as one tool more. If it is off by a factor of r either way, the plan is built too early or too
    late, and the cost is at most 1 + r times that of who knew.

    Args:
        builds: tokens of each build until now, refused ones too.
        text: tokens of each run that followed the plan.
        saved: of each tool that was used, the share of tokens that its runs saved against those of its plan.
        guess: tokens of a build, until one was measured.
        prior: the share before any tool was used.
    """
    build = sum(builds) / len(builds) if builds else guess
    mean = sum(text) / len(text) if text else 0.0
    share = (prior + sum(saved)) / (1 + len(saved))
    return SkiRental(build, share * mean, floor, of)


class Due(NamedTuple):
    """A plan and whether it has earned a tool. tried: builds of it that were refused or returned to text."""

    plan: Item
    seen: Recurrence
    need: Need
    tried: int
    ready: bool
    why: str


def recurrence(plan: Item) -> Recurrence:
    """How often a plan was selected, by its ledger."""
    asked = [given.query for given in plan.given]
    return Recurrence(len(asked), len({*map(plain, asked)}), len(shapes(asked)))


def due(
    items: Iterable[Item], threshold: Threshold, under_way: int = 0, tries: Mapping[str, Sequence[int]] | None = None
) -> list[Due]:
    """The plans of a memory that have no tool, the readiest first.

    A plan whose tool was refused, or returned to text, waits for as many more as it needed the first time.

    Args:
        items: all of a memory, in every state.
        under_way: see ``Threshold.need``.
        tries: of plans by id, the counts at which builds were refused.
    """
    everything = list(items)
    found = list[Due]()
    for plan in everything:
        mine = [one for one in everything if one.kind == "tool" and one.body.get("from_plan") == plan.id]
        standing = any(one.state in ("active", "promoted") for one in mine)
        if plan.kind != "plan" or plan.state in ("superseded", "retired") or standing:
            continue
        seen = recurrence(plan)
        need = threshold.need(seen, under_way)
        tried = [*(tried_at(one) for one in mine), *(tries or {}).get(plan.id, ())]
        wanted = need.theta + max(tried, default=0)
        again = f"; {len(tried)} tried before, the last at {max(tried)}, so {wanted} are needed" if tried else ""
        found.append(Due(plan, seen, need, len(tried), need.have >= wanted, f"{need.why}{again}"))
    return sorted(found, key=lambda one: (not one.ready, one.need.theta - one.need.have, one.plan.made))


def tried_at(tool: Item) -> int:
    """The count at which a tool was built, as its checks have it; 0 where they say nothing."""
    try:
        told = json.loads(tool.body.get("checks", ""))
    except (ValueError, RecursionError):
        return 0
    at = told.get("count") if isinstance(told, dict) else 0
    return at if isinstance(at, int) and 0 <= at < NEVER else 0


def _check(count: int, of: str) -> None:
    if not 1 <= count <= NEVER:
        raise BadInput(f"a threshold of {count}", remedy="A plan recurs at least once.")
    if of not in get_args(Of):
        raise BadInput(f"a threshold counts no {of[:40]!r}", remedy=f"It counts {' or '.join(get_args(Of))}.")
