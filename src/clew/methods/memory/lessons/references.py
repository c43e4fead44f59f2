"""Reflectors and screens of the user's own, by reference: ``file.py:function`` or ``module:function``.

``clew memory learn`` loads them. The user named the file, so it is run; nothing that a run or a model says leads here.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import cast

from clew.core.errors import BadInput
from clew.core.keys import value_digest
from clew.core.sources import digests
from clew.harness.loading import found_in, load_module, source_digest
from clew.harness.memory import Item
from clew.methods.memory.lessons.lesson import Lesson, Reflection, Reflector, Ruling, Screen
from clew.methods.memory.lessons.run_view import RunView

Found = Reflection | Iterable[Lesson]
Reflects = Callable[[RunView], Found | Awaitable[Found]]
Judges = Callable[[Lesson, Sequence[Item], RunView], Ruling | Awaitable[Ruling]]


class FunctionReflector:
    """A function of a ``RunView`` as a reflector; it gives Lessons or a Reflection, and may be async.

    Args:
        function: what is asked.
        name: under which the runs that it saw are remembered.
    """

    def __init__(self, function: Reflects, name: str) -> None:
        self.function, self._name = function, name

    @property
    def name(self) -> str:
        return self._name

    async def reflect(self, run: RunView) -> Reflection:
        """As ``Reflector``.

        Raises:
            BadInput: the function gives something else than lessons. Whatever it raises.
        """
        found = self.function(run)
        if inspect.isawaitable(found):
            found = await found
        if isinstance(found, Reflection):
            return found
        lessons = tuple(found) if isinstance(found, Iterable) and not isinstance(found, (str, bytes, Lesson)) else None
        if lessons is None or not all(isinstance(one, Lesson) for one in lessons):
            raise BadInput(f"{self.name} gave no lessons", remedy="Give a list of clew.methods.memory.lessons.Lesson.")
        return Reflection(lessons)


class _FunctionScreen:
    def __init__(self, function: Judges, name: str) -> None:
        self.function, self.name = function, name

    async def judge(self, lesson: Lesson, neighbours: Sequence[Item], run: RunView) -> Ruling:
        ruled = self.function(lesson, neighbours, run)
        if inspect.isawaitable(ruled):
            ruled = await ruled
        if not isinstance(ruled, Ruling):
            raise BadInput(f"{self.name} gave no Ruling")
        return ruled


def is_own(ref: str) -> bool:
    """Whether a reference names a reflector or a screen of the user's own; a class with ``complete`` is a model.

    Raises:
        BadInput: the file that it names cannot be loaded.
    """
    return ".py:" in ref and "://" not in ref and not hasattr(_found(ref), "complete")


def load_reflector(ref: str) -> Reflector:
    """The reflector of ``file.py:function``: a function of a run, or an object that has ``reflect``.

    Raises:
        BadInput: there is none.
    """
    found, name = _load(ref)
    if hasattr(found, "reflect") and hasattr(found, "name"):
        return cast(Reflector, found)
    if not callable(found):
        raise BadInput(f"{ref} is no function", remedy="Write: def reflect(run): return [Lesson('fact', {...})]")
    return FunctionReflector(cast(Reflects, found), name)


def load_screen(ref: str) -> Screen:
    """The screen of ``file.py:function``: a function of a lesson, its neighbours and the run, or what has ``judge``.

    Raises:
        BadInput: there is none.
    """
    found, name = _load(ref)
    if hasattr(found, "judge"):
        return cast(Screen, found)
    if not callable(found):
        raise BadInput(f"{ref} is no function", remedy="Write: def judge(lesson, neighbours, run): return Ruling(...)")
    return _FunctionScreen(cast(Judges, found), name)


def _load(ref: str) -> tuple[object, str]:
    """What a reference names, an instance where it is a class, and a name that changes with its source."""
    found, name = _found(ref), ref.rpartition(":")[2]
    try:
        found = found() if inspect.isclass(found) else found
    except Exception as error:  # whatever a class of the user's own raises
        raise BadInput(f"{ref} cannot be made: {error}", remedy="Its class takes no arguments.") from error
    says = list(digests([ref]).values()) or [source_digest(cast(Callable[..., Awaitable[object]], found))]
    return found, f"{name} {value_digest([name, *says]).hex()[:8]}"


def _found(ref: str) -> object:
    place, _, name = ref.rpartition(":")
    try:
        return found_in(load_module(place), name)
    except Exception as error:  # what a file raises that is run here, of whatever kind
        plain = isinstance(error, ImportError | AttributeError | SyntaxError)
        told = error if plain else f"{type(error).__name__}: {error}"
        raise BadInput(f"{ref} cannot be loaded: {told}", remedy="Write file.py:function.") from error
