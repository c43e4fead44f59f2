"""Which verbs there are: those of the core by a table, all others by entry points of the group ``clew.commands``.

An entry point has the name that one types, ``audit why``; its value is the click command. The brackets behind it say
where help lists it: a section, its place among the verbs there, and ``later`` where only `clew --all` shows it.

    [project.entry-points."clew.commands"]
    mend = "mine.mending:command [code, 25, later]"
    "audit spread" = "mine.spread:command [95]"
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from clew.core import registry

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

SECTIONS = {
    "start": "Start",
    "make": "Make runs",
    "look": "Look at runs",
    "learn": "Learn from runs",
    "keep": "Keep runs",
    "serve": "Serve models",
    "code": "Work on code",
    "": "From other packages",
}
"""Titles of help, by the word that an entry point says; without one, a verb stands in the last."""
CORE = {
    "init": "start, 30",
    "doctor": "start, 40",
    "worlds": "start, 50",
    "models": "start, 60, later",
    "run": "make, 10",
    "import": "make, 30",
    "fork": "make, 40",
    "replay": "make, 60, later",
    "resume": "make, 70",
    "stop": "make, 80, later",
    "log": "look, 20",
    "show": "look, 30",
    "diff": "look, 40",
    "label": "look, 50, later",
    "export": "look, 60",
    "credit": "learn, 10",
    "store": "keep, 10",
}
"""Verbs of the core. A verb that a newcomer does not need is ``later``: at most 20 others are listed at first."""
LAST = 1_000  # the place of a verb that says none


class Place(NamedTuple):
    """Where help lists a verb."""

    section: str
    number: int
    later: bool


def _place(words: Sequence[str]) -> Place:
    section = next((word for word in words if word in SECTIONS), "")
    return Place(section, next((int(word) for word in words if word.isdecimal()), LAST), "later" in words)


@functools.cache
def entries() -> dict[str, EntryPoint]:
    """What other packages bring, by name; looked for once in a process. None takes the name of a verb of Clew."""
    found = sorted(registry.entries("commands"), key=lambda entry: entry.module.startswith("clew."))
    return {entry.name: entry for entry in found if entry.name not in CORE}


def places(group: str = "") -> dict[str, Place]:
    """Every verb, or every verb that a group takes from other packages, with its place, in the order of help."""
    found = {name: _place(entry.extras) for name, entry in entries().items()}
    found |= {name: _place(()) for name in registry.by_hand("commands") if name not in CORE}
    if group:
        found = {name.removeprefix(f"{group} "): at for name, at in found.items() if name.startswith(f"{group} ")}
    else:
        found = {name: at for name, at in found.items() if " " not in name}
        found |= {name: _place(re.findall(r"\w+", said)) for name, said in CORE.items()}
    order = list(SECTIONS)
    return dict(sorted(found.items(), key=lambda it: (order.index(it[1].section), it[1].number, it[0])))
