"""``Spent``: the whole cost of a memory, executor and all that the memory took, and after how many tasks it is back.

Published figures of memories count the tokens of the agent alone (arXiv 2606.24151 leaves 11.8 M tokens of reflection
out of a saving of 3.9 M). Whoever prints a saving prints ``Spent.beside`` next to it. The figures are read from the
store: those of agents from their runs, all other from lines of the memory that ``spend`` writes. Nothing is estimated.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, get_args

from clew.core.records import Call, Report
from clew.store.base import Keeper
from clew.store.entries import Entry, content_of, entry
from clew.store.names import new_id
from clew.store.run import sampled

Part = Literal["reflection", "building", "checking", "retrieval"]
PARTS: tuple[str, ...] = get_args(Part)


class Cost(NamedTuple):
    """Tokens that models read and wrote, how often they were asked, US dollars, and acts in copies of worlds."""

    read: int = 0
    written: int = 0
    calls: int = 0
    dollars: float = 0.0
    acts: int = 0

    @property
    def tokens(self) -> int:
        """Read and written."""
        return self.read + self.written

    def plus(self, other: Cost) -> Cost:
        """Both together; a tuple's own ``+`` would join them end to end."""
        read, written, calls = self.read + other.read, self.written + other.written, self.calls + other.calls
        return Cost(read, written, calls, self.dollars + other.dollars, self.acts + other.acts)


class Back(NamedTuple):
    """Tasks after which what was spent is back, with the limits of it. ``low`` and ``tasks`` are None where it is never
    back, ``high`` where it may never be. ``text`` says it in words."""

    tasks: float | None
    low: float | None
    high: float | None
    text: str


class Spent(NamedTuple):
    """What a memory cost. executor: the agents of runs that were given an item. reflection: lessons, and screening
    them. building: tools from plans. checking: trying tools before they are admitted. retrieval: recalls; with BM25 no
    model is asked, and what a recall puts into a conversation is read by the executor and counted there."""

    executor: Cost = Cost()
    reflection: Cost = Cost()
    building: Cost = Cost()
    checking: Cost = Cost()
    retrieval: Cost = Cost()

    def plus(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(*(mine.plus(theirs) for mine, theirs in zip(self, other, strict=True)))

    @property
    def overhead(self) -> Cost:
        """All but the executor."""
        total = Cost()
        for part in self[1:]:
            total = total.plus(part)
        return total

    def back(self, saved: Report) -> Back:
        """After how many tasks the overhead is back.

        Args:
            saved: executor tokens that the memory saves in a task, with its interval. Tokens of all models count alike.
        """
        tokens = self.overhead.tokens
        if not tokens:
            return Back(0.0, 0.0, 0.0, "nothing was spent beside the executor")
        tasks, low, high = (tokens / x if x > 0 else None for x in (saved.estimate, saved.high, saved.low))
        if saved.high <= 0:
            return Back(None, None, None, f"never: {tokens:,} tokens were spent and none are saved")
        if tasks is None or high is None:
            least = f", at least {math.ceil(low):,} tasks" if low is not None else ""
            return Back(tasks, low, None, f"not known: the saving's interval reaches 0{least}")
        text = f"{math.ceil(tasks):,} tasks [{math.ceil(low or 0):,}, {math.ceil(high):,}]"
        return Back(tasks, low, high, text)

    def beside(self, saved: Report | None = None) -> list[str]:
        """Lines to print next to a saving: each part that cost something, and after how many tasks it is back."""
        parts = [f"{name} {_shown(cost)}" for name, cost in self._asdict().items() if cost.calls or cost.tokens]
        lines = [f"cost in tokens: {'; '.join(parts) or 'none recorded'}"]
        if saved is None:
            return [*lines, f"break-even: not known, no saving was measured; {self.overhead.tokens:,} tokens to earn"]
        return [*lines, f"break-even: {self.back(saved).text}"]


def _shown(cost: Cost) -> str:
    dollars = f", ${cost.dollars:.4f}" if cost.dollars else ""
    acts = f", {cost.acts:,} act{'s' * (cost.acts != 1)} in copies of worlds" if cost.acts else ""
    return f"{cost.tokens:,} ({cost.calls:,} call{'s' * (cost.calls != 1)}{acts}{dollars})"


def spend(memory: str, part: Part, cost: Cost, at: float | None = None, **about: object) -> Entry:
    """A line of the ledger, to be put into the store together with what it paid for (``Keeper.put_entries``), so that
    both are there or neither.

    Args:
        about: what else is said of it: ids, names, sentences of ours; never an item's text, which could not be deleted.
    """
    told = {**about, "part": part, **cost._asdict()}
    return entry(memory, new_id(), time.time() if at is None else at, "spent", told)


def lines_of(store: Keeper, memory: str, part: Part | None = None) -> list[Mapping[str, object]]:
    """What the ledger of a memory says, oldest first."""
    told = [content_of(one) for _, one in store.entries(memory) if one.what == "spent"]
    return [one for one in told if one.get("part") in (PARTS if part is None else (part,))]


def ledger(store: Keeper, memory: str) -> Spent:
    """What a memory cost up to now. Forks count for nothing, as in the ledger of recurrence."""
    entries = [one for _, one in store.entries(memory)]
    totals = dict.fromkeys(PARTS, Cost())
    for told in (content_of(one) for one in entries if one.what == "spent"):
        part = str(told.get("part"))
        if part in totals:
            totals[part] = totals[part].plus(_cost(told))
    places = {str(content_of(one).get("place", "")) for one in entries if one.what == "selected"} - {""}
    totals["retrieval"] = totals["retrieval"].plus(Cost(calls=len(places)))
    held = set(store.run_ids())
    runs = {place.partition("@")[0] for place in places} & held
    return Spent(executor=executed(call for run in runs for call in store.calls(run)), **totals)


def executed(calls: Iterable[Call]) -> Cost:
    """What the models of some runs took: one ask each, its prompt as read, what it sampled as written."""
    asks = [call for call in calls if call.kind == "ask" and call.done >= 0]
    read, written = sum(ask.usage.prompt for ask in asks), sum(sampled(ask) for ask in asks)
    return Cost(read, written, len(asks), sum(ask.cost for ask in asks))


def _cost(told: Mapping[str, object]) -> Cost:
    """The figures of a line; what is no number counts 0."""
    read, written, calls, dollars, acts = (_number(told.get(name)) for name in Cost._fields)
    return Cost(int(read), int(written), int(calls), dollars, int(acts))


def _number(value: object) -> float:
    good = isinstance(value, (int, float)) and math.isfinite(value) and value > 0
    return float(value) if good else 0.0  # type: ignore[arg-type]
