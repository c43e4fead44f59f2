"""The shadow run: a drafted tool and the plan in text do the same tasks, and their end states are compared.

``crafting.py`` calls it with two functions, so that any world can be used; ``stored_plays.py`` has a pair for the runs
of a store. A tool is admitted on agreement alone (specs/E168, improvement 3): one end state that differs refuses it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import NamedTuple, TypeVar

from clew.audit.lessons.spent import Cost
from clew.core.errors import ClewError
from clew.core.printable import short

T = TypeVar("T")
SHADOW = 3  # tasks on which tool and text must agree


class End(NamedTuple):
    """Where a task ended. state: whatever names the world's last state, what was answered included. good: whether the
    task was done, where that is known: a task that the text path did wrong says nothing of a tool. cost: of models."""

    state: Hashable
    good: bool | None = None
    cost: Cost = Cost()


class Shadowed(NamedTuple):
    """What a shadow run found. agreed, differed: tasks. declined: tasks that the tool left to the text, with the reason
    of the last. wrong: tasks that the text path did wrong, so that nothing was compared. why: why the tool is not
    admitted, in a sentence; empty where it is. cost: of models that were asked meanwhile."""

    agreed: int
    differed: int
    declined: int
    wrong: int
    why: str
    cost: Cost = Cost()

    def __bool__(self) -> bool:
        return not self.why


async def shadow(
    tasks: Iterable[T],
    by_tool: Callable[[T], Awaitable[End | str]],
    by_text: Callable[[T], Awaitable[End]],
    m: int = SHADOW,
    most: int | None = None,
) -> Shadowed:
    """Compare until ``m`` tasks agree or one differs.

    Args:
        tasks: those to be tried, in order; each is named by its text in a refusal.
        by_tool: does a task with the tool in a world of its own; a text says why the tool left it to the plan.
        by_text: does the task by the plan, or gives how it ended when it was done.
        most: tasks that are tried at most; 4 m where it is not given.
    """
    agreed = declined = wrong = 0
    last, cost = "", Cost()
    for _, task in zip(range(4 * m if most is None else most), tasks, strict=False):
        text = await by_text(task)
        cost = cost.plus(text.cost)
        if text.good is False:
            wrong += 1
            continue
        try:
            tool = await by_tool(task)
        except ClewError as error:
            tool = error.message
        if isinstance(tool, str):
            declined, last = declined + 1, tool
            continue
        cost = cost.plus(tool.cost)
        if tool.state != text.state:
            why = f"on {short(str(task), 80)} it ended in another state than the text path"
            return Shadowed(agreed, 1, declined, wrong, why, cost)
        agreed += 1
        if agreed == m:
            return Shadowed(agreed, 0, declined, wrong, "", cost)
    more = f", it left {declined} to the text{f' ({short(last, 80)})' if last else ''}" if declined else ""
    more += f", {wrong} were done wrong by the text path" if wrong else ""
    return Shadowed(agreed, 0, declined, wrong, f"it agreed on {agreed} of {m} shadow tasks{more}", cost)
