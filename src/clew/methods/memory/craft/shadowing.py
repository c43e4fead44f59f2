"""The shadow run: a drafted tool and the plan in text do the same tasks, and how they end is compared.

``crafting.py`` calls it with two functions, so that any world can be used; ``stored_plays.py`` has a pair for the runs
of a store. A tool is admitted on agreement alone (specs/E168, improvement 3): one end that differs refuses it. It must
never be admitted where a tool that always says the same would have agreed as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import NamedTuple, TypeVar

from clew.core.comparisons import Comparisons
from clew.core.errors import ClewError
from clew.core.printable import short
from clew.methods.memory.lessons.spent import Cost

T = TypeVar("T")
SHADOW = 3  # tasks on which tool and text must agree


class End(NamedTuple):
    """Where a task ended. Two ends agree where their states are equal, and either their answers or both are good.

    state: whatever names the world's last state. good: whether the task was done, where that is known: a task that the
    text path did wrong says nothing of a tool. cost: of models. answer: what was answered; None where the state holds
    it. moved: whether the work itself changed the world, so that a tool that only answers could not end there.
    untested: why this end can be compared with none; empty where it can.
    """

    state: Hashable
    good: bool | None = None
    cost: Cost = Cost()
    answer: str | None = None
    moved: bool = False
    untested: str = ""


class Shadowed(NamedTuple):
    """What a shadow run found. agreed, differed: tasks. declined: tasks that the tool left to the text, with the reason
    of the last. wrong: tasks that the text path did wrong, so that nothing was compared. why: why the tool is not
    admitted, in a sentence; empty where it is. cost: of models that were asked meanwhile. checks: what could have told
    the tool from the text path; empty where nothing was compared."""

    agreed: int
    differed: int
    declined: int
    wrong: int
    why: str
    cost: Cost = Cost()
    checks: Comparisons = Comparisons("ends of the tool and of the text path", 0, 0)

    def __bool__(self) -> bool:
        return not self.why


async def shadow(
    tasks: Iterable[T],
    by_tool: Callable[[T], Awaitable[End | str]],
    by_text: Callable[[T], Awaitable[End]],
    m: int = SHADOW,
    most: int | None = None,
) -> Shadowed:
    """Compare until ``m`` tasks agree, whose ends are not all the same, or one differs.

    Args:
        tasks: those to be tried, in order; each is named by its text in a refusal.
        by_tool: does a task with the tool in a world of its own; a text says why the tool left it to the plan.
        by_text: does the task by the plan, or gives how it ended when it was done.
        most: tasks that are tried at most; 4 m where it is not given.
    """
    found = _Tally(m)
    for _, task in zip(range(4 * m if most is None else most), tasks, strict=False):
        text = await by_text(task)
        found.cost = found.cost.plus(text.cost)
        if text.good is False:
            found.wrong += 1
            continue
        if text.untested:
            found.untested.append(text.untested)
            continue
        try:
            tool = await by_tool(task)
        except ClewError as error:
            tool = error.message
        if isinstance(tool, str):
            found.declined.append(tool)
            continue
        found.cost = found.cost.plus(tool.cost)
        if why := _differ(tool, text):
            return found.told(f"on {short(str(task), 80)} {why}", differed=1)
        if tool.untested:
            found.untested.append(tool.untested)
            continue
        found.agreed += 1
        found.ends.add(text.state if text.answer is None else text.answer)
        found.moved |= text.moved
        if found.agreed >= m and found.vary:
            return found.told("")
    return found.told(found.lacking())


def _differ(tool: End, text: End) -> str:
    """How two ends differ, in words; empty where they agree, or where it cannot be told."""
    if tool.state != text.state:
        return "it ended in another state than the text path"
    if tool.answer == text.answer or tool.untested or (tool.good and text.good):
        return ""
    said = f"it answered {short(repr(tool.answer), 40)}, and the text path {short(repr(text.answer), 80)}"
    if tool.good is False:
        return f"{said}; the judge finds the tool's answer wrong"
    return f"{said}; no judge says that both are right"


class _Tally:
    """What a shadow run has found so far."""

    def __init__(self, m: int) -> None:
        self.m, self.agreed, self.wrong, self.cost, self.moved = m, 0, 0, Cost(), False
        self.declined, self.untested, self.ends = list[str](), list[str](), set[Hashable]()

    @property
    def vary(self) -> bool:
        """Whether a tool that always ends the same would have been told from the text path."""
        return self.moved or len(self.ends) > 1

    def lacking(self) -> str:
        """Why that is not enough."""
        if self.agreed >= self.m:
            return self._checks(0).verdict("")
        more = ""
        if self.declined:
            more = f", it left {len(self.declined)} to the text{_last(self.declined)}"
        more += f", {self.wrong} were done wrong by the text path" if self.wrong else ""
        more += f", {len(self.untested)} could not be compared{_last(self.untested)}" if self.untested else ""
        return f"it agreed on {self.agreed} of {self.m} shadow tasks{more}"

    def told(self, why: str, differed: int = 0) -> Shadowed:
        checks = self._checks(differed)
        return Shadowed(self.agreed, differed, len(self.declined), self.wrong, why, self.cost, checks)

    def _checks(self, differed: int) -> Comparisons:
        could = self.agreed if self.vary else 0
        why = self.untested[-1] if self.untested else ""
        if self.agreed and not could:
            end = short(repr(next(iter(self.ends))), 40)
            why = f"on all {self.agreed} shadow tasks the text path ended the same ({end})"
            why += ": a tool that always ends so passes"
        made = self.agreed + differed + len(self.untested)
        return Comparisons("ends of the tool and of the text path", made, could + differed, why_not=why)


def _last(reasons: list[str]) -> str:
    return f" ({short(reasons[-1], 160)})" if reasons[-1] else ""
