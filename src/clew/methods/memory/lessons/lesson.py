"""What reflection hands around: a lesson, who finds lessons in a run, who decides whether a memory takes one.

``learn`` puts them together; symbolic reflectors and screens of experiments implement the two protocols. A lesson is a
candidate and no item: it comes from a model that read a hostile transcript, and nothing here trusts it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from clew.harness.memory import Item
from clew.methods.memory.lessons.run_view import Moment, RunView
from clew.methods.memory.lessons.spent import Spent

What = Literal["add", "merge", "replace", "drop"]


class Lesson(NamedTuple):
    """A candidate item, as a reflector gives it.

    kind: plan, fact or pitfall; tools are not learnt from runs. body: its fields (``docs/memory.md``). scope: the apps
    or things it holds for; none: all. provenance: the places that show it, ``run@call``. why: in the reflector's words.
    revealed: what a judge or the environment told the reflector's own code about the run, after it; the screen trusts
    it as it does the task. A model's lesson has none. seen: what the reflector did in copies of the run's world, and
    what was answered: claims like the answers of the run.
    """

    kind: str
    body: Mapping[str, str]
    scope: tuple[str, ...] = ()
    provenance: tuple[str, ...] = ()
    why: str = ""
    revealed: str = ""
    seen: tuple[Moment, ...] = ()


class Reflection(NamedTuple):
    """What a reflector found in one run, what it took, and a sentence for each candidate that it had to leave out."""

    lessons: tuple[Lesson, ...] = ()
    spent: Spent = Spent()
    notes: tuple[str, ...] = ()


class Reflector(Protocol):
    """Finds lessons in a run. ``name`` tells it from others: a run is not given to the same one twice."""

    @property
    def name(self) -> str: ...

    async def reflect(self, run: RunView) -> Reflection:
        """Whatever it raises costs this run its lessons, and nothing else."""
        ...


class Ruling(NamedTuple):
    """What is to become of a lesson. item: the id that it is merged into or that it replaces. sources: places
    (``run@call``) where what it says comes from, which are kept with the item. spent: what deciding took."""

    what: What
    item: str = ""
    why: str = ""
    sources: tuple[str, ...] = ()
    spent: Spent = Spent()


class Screen(Protocol):
    """Decides whether a memory takes a lesson."""

    async def judge(self, lesson: Lesson, neighbours: Sequence[Item], run: RunView) -> Ruling:
        """neighbours: items in use of the same kind, those likest to the lesson first. run: the one it comes from."""
        ...


class Ruled(NamedTuple):
    """A lesson, what became of it, and the id of the item that it is or was taken into; empty where it was dropped."""

    run: str
    lesson: Lesson
    ruling: Ruling
    item: str = ""


class Learnt(NamedTuple):
    """What ``learn`` did. reflected: runs that it took lessons from; passed: runs that were reflected before. notes:
    what went wrong, a sentence each. spent: by this call. failed: runs on which the reflector failed."""

    ruled: tuple[Ruled, ...] = ()
    reflected: int = 0
    passed: int = 0
    notes: tuple[str, ...] = ()
    spent: Spent = Spent()
    failed: int = 0
