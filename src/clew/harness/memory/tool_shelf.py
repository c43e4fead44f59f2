"""The tools of one memory by name: which stand at a moment, what they are made of, and whether they still fit.

``Memories`` keeps one shelf for each memory whose tools are used; it reads only entries that are new. No word index is
needed here, so a tool is used without the extra ``memory``.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from clew.core.errors import BadInput, UnknownName
from clew.core.values import ToolSpec
from clew.harness.memory.fold import fold
from clew.harness.memory.item_kinds import Item, item_of
from clew.harness.memory.tool_code import Code, schema_hash
from clew.store.base import Keeper
from clew.store.entries import Entry

DEEPEST = 16  # tools that a tool is made of


class Deps(NamedTuple):
    """What a tool calls: tools of the world, each with the hash of its schema, and tools of the memory by their ids."""

    api: Mapping[str, str]
    tools: Mapping[str, str]

    @property
    def text(self) -> str:
        """As the field ``deps`` of an item has it."""
        return json.dumps({"api": dict(self.api), "tools": dict(self.tools)}, sort_keys=True)


def deps_of(item: Item) -> Deps:
    """What a tool calls, by its field ``deps``; nothing where that says nothing."""
    try:
        told = json.loads(item.body.get("deps", ""))
    except (ValueError, RecursionError):
        told = {}
    parts = [told.get(name) if isinstance(told, dict) else None for name in Deps._fields]
    api, tools = ({str(k): str(v) for k, v in part.items()} if isinstance(part, dict) else {} for part in parts)
    return Deps(api, tools)


def unfit(item: Item, specs: Iterable[ToolSpec]) -> str:
    """Why a tool no longer fits the tools of a world, in a sentence; empty where it does."""
    known = {spec.name: schema_hash(spec) for spec in specs}
    for name, was in deps_of(item).api.items():
        if name not in known:
            return f"it calls {name}, which the world does not have"
        if was and known[name] != was:
            return f"the arguments of {name} have changed since it was built"
    return ""


def code_of(item: Item, tools: Mapping[str, Item]) -> Code:
    """A tool with all that it is made of.

    Args:
        tools: those of its memory that stand, by id.

    Raises:
        BadInput: it has no source, or a tool that it calls does not stand.
    """
    sources, api, left = dict[str, str](), dict[str, str](), [item]
    while left:
        one = left.pop()
        name, deps = one.body["name"], deps_of(one)
        if not one.body.get("source") or len(sources) > DEEPEST:
            raise BadInput(f"the tool {name[:40]!r} has no source, or is made of more than {DEEPEST} others")
        sources[name] = one.body["source"]
        api |= deps.api
        for called, id in deps.tools.items():
            if id not in tools or tools[id].body["name"] != called:
                raise BadInput(f"the tool {called[:40]!r}, which it calls, does not stand")
            if called not in sources:
                left.append(tools[id])
    return Code(item.body["name"], sources, api)


class ToolShelf:
    """The tools of one memory."""

    def __init__(self, memory: str) -> None:
        self.memory = memory
        self._guard = threading.Lock()
        self._last = 0
        self._lines: dict[str, list[Entry]] = {}

    def find(
        self, store: Keeper, name: str, moment: float, specs: Iterable[ToolSpec], without: frozenset[str] = frozenset()
    ) -> tuple[list[Item], Code]:
        """The newest tool of a name that stood at a moment (seconds since the epoch), after it those that it is made
        of, and the code of all.

        Raises:
            UnknownName, BadInput: there is none, or it cannot be run.
        """
        with self._guard:
            self._refresh(store)
            kept = fold(one for lines in self._lines.values() for one in lines if one.at <= moment)
        items = [item for it in kept.values() if (item := item_of(it)) is not None and item.kind == "tool"]
        standing = {item.id: item for item in items if item.state == "active" and item.id not in without}
        found = [item for item in standing.values() if item.body.get("name") == name]
        if not found:
            raise UnknownName(
                f"memory {self.memory} has no tool {name[:40]!r}", remedy="`clew memory list` lists them."
            )
        if why := unfit(found[-1], specs):
            raise BadInput(f"the tool {name} does not fit: {why}")
        code = code_of(found[-1], standing)
        parts = [one for one in standing.values() if code.sources.get(one.body["name"]) == one.body.get("source")]
        return [found[-1], *(one for one in parts if one.id != found[-1].id)], code

    def _refresh(self, store: Keeper) -> None:
        lines = store.entries(self.memory, self._last)
        for _, one in lines:
            if one.item in self._lines or (one.what == "add" and '"tool"' in one.body):
                self._lines.setdefault(one.item, []).append(one)
        self._last = lines[-1].no if lines else self._last
