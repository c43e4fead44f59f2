"""Tools by reference: functions of a file or a module, and what ``clew.tools`` opens, as servers that speak MCP.

``clew run --tools`` and ``Runner`` call it. A run records the references of its tools, so that another process resumes
and forks it. Nothing here performs a tool call, and a replay never starts a server.
"""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from clew.core.doors import ToolScheme
from clew.core.errors import BadInput, UnknownName
from clew.core.registry import build, names, parse_ref
from clew.core.sources import gone
from clew.core.values import ToolSpec
from clew.harness.loading import found_in, load_module, reference
from clew.harness.tools import Tool, as_tools, tool
from clew.store.base import Keeper
from clew.store.run import Run

SHAPES = 'Write path/file.py:NAME,NAME, module:NAME, or "mcp:COMMAND ARGUMENTS" for an MCP server.'


def tools_of(ref: str) -> list[Tool]:
    """The tools that a reference names.

    Args:
        ref: ``file.py:a,b`` or ``module:a,b`` for typed functions; ``file.py`` or ``module`` for all public functions
            that it defines; ``file.py:make(key=value)`` for what a function or class gives, one tool or several;
            ``mcp:COMMAND ARGUMENTS`` for the tools of a server that is started so. Other words before a colon are
            looked up among ``clew.tools``, else they are modules.

    Raises:
        UnknownName: the file, module or name is not there. BadInput: what is named is no tool or has no schema.
    """
    ref = ref.strip()
    if scheme := _scheme(ref):
        return scheme.tools(ref.partition(":")[2])
    place, named = _split(ref)
    module = _module(ref, place)
    place = os.path.abspath(place) if place.endswith(".py") else place
    if not named:
        found = [(name, value) for name, value in vars(module).items() if _own(module, name, value)]
        if not found:
            raise BadInput(f"{ref!r} defines no tool", remedy="Define typed functions there whose names have no _.")
        return [made for name, value in found for made in _made(value, f"{place}:{name}")]
    if "(" in named:
        return _called(ref, module, place, named)
    return [made for name in named.split(",") for made in _made(_named(ref, module, name), f"{place}:{name.strip()}")]


def given(tools: Sequence[Tool | Callable[..., Any] | str]) -> list[Tool]:
    """Tools as users give them: Tools, typed functions, references."""
    return [made for one in tools for made in (tools_of(one) if isinstance(one, str) else as_tools([one]).values())]


def recorded(tools: Sequence[Tool]) -> list[str | dict[str, Any]]:
    """What a run's settings keep of its tools: references, each once, without tools that nothing can find again."""
    found: list[str | dict[str, Any]] = []
    for made in tools:
        row = _row(made)
        if row and row not in found:
            found.append(row)
    return found


def references(rows: Iterable[str | Mapping[str, Any]]) -> list[str]:
    """The references among what ``recorded`` gave; of a server's command, the Python files that it names."""
    refs = [row if isinstance(row, str) else row["ref"] for row in rows]
    schemes = {ref: scheme for ref in refs if (scheme := _scheme(ref))}
    served = [f"{file}:" for ref, scheme in schemes.items() for file in scheme.files(ref.partition(":")[2])]
    return [*(ref for ref in refs if ref not in schemes), *served]


def again(rows: Iterable[str | Mapping[str, Any]], known: Callable[[], Mapping[str, ToolSpec]]) -> list[Tool]:
    """The tools that ``recorded`` described.

    Args:
        known: gives what the run's models were told of its tools, by name. A server's tools are made from it; the
            server is started when one is called.

    Raises:
        UnknownName, BadInput: as ``tools_of``.
    """
    found: list[Tool] = []
    for row in rows:
        if isinstance(row, str):
            found += tools_of(row)
        elif "names" in row:
            word, _, rest = row["ref"].partition(":")
            specs = known()
            told = [specs.get(name, ToolSpec(name)) for name in row["names"]]
            scheme: ToolScheme[Tool] = build("tools", word)
            found += scheme.tools(rest, told, row)
        else:
            (made,) = tools_of(row["ref"])
            spec = replace(made.spec, name=row["name"])
            safe, parallel = bool(row.get("idempotent")), bool(row.get("parallel"))
            found.append(replace(made, spec=spec, idempotent=safe, parallel=parallel, origin=row))
    return found


def told_of_tools(store: Keeper, run: str) -> dict[str, ToolSpec]:
    """What the models of a run and of its child runs were told of tools, by name, as its Calls keep it."""
    found: dict[str, ToolSpec] = {}
    waiting = [run]
    while waiting:
        for call in Run(store, waiting.pop()).calls:
            found |= {spec.name: spec for spec in (call.setup.tools if call.setup is not None else ())}
            waiting += [call.child] if call.child else []
    return found


def _scheme(ref: str) -> ToolScheme[Tool] | None:
    """What opens tools by the word before the colon, where one is registered for it."""
    word, colon, _ = ref.partition(":")
    found: ToolScheme[Tool] | None = build("tools", word) if colon and word in names("tools") else None
    return found


def _row(made: Tool) -> str | dict[str, Any]:
    if made.origin:
        return made.origin if isinstance(made.origin, str) else dict(made.origin)
    ref, module = reference(made.function), inspect.getmodule(made.function)
    name = ref.rpartition(":")[2]
    try:
        found = found_in(module, name) if module is not None and not ref.startswith("<") else None
    except AttributeError:  # a function inside another
        return ""
    if isinstance(found, Tool) and found.function is made.function:
        return ref
    if found is not made.function:
        return ""
    own = {"name": made.spec.name, "idempotent": made.idempotent, "parallel": made.parallel}
    usual = {"name": name, "idempotent": False, "parallel": False}
    return ref if own == usual else {"ref": ref, **own}


def _split(ref: str) -> tuple[str, str]:
    """The file or module of a reference, and what is named in it."""
    head, bracket, rest = ref.partition("(")
    place, colon, names = head.rpartition(":")
    if not colon:
        place, names = head, ""
    if not place or (bracket and not names):
        raise BadInput(f"{ref!r} names no tools", remedy=SHAPES)
    return place, names + bracket + rest


def _module(ref: str, place: str) -> ModuleType:
    if place.endswith(".py") and (remedy := gone(place)):
        raise UnknownName(f"tools {ref!r} cannot be loaded: no file {place}", remedy=remedy)
    try:
        return load_module(place)
    except Exception as error:  # what a file or a module raises that is executed here, of whatever kind
        told = error if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        near = Path(f"{place}.py")
        remedy = f"The file {near} is there: write {near}." if near.exists() else f"Mend what the error names. {SHAPES}"
        raise UnknownName(f"tools {ref!r} cannot be loaded: {told}", remedy=remedy) from error


def _named(ref: str, module: ModuleType, name: str) -> object:
    try:
        return found_in(module, name.strip())
    except AttributeError:
        known = [name for name, value in vars(module).items() if _own(module, name, value)]
        near = difflib.get_close_matches(name, known, 3) or known[:10]
        remedy = f"It defines {', '.join(near)}." if near else SHAPES
        raise UnknownName(f"tools {ref!r}: {name.strip()!r} is not there", remedy=remedy) from None


def _own(module: ModuleType, name: str, value: object) -> bool:
    """Whether it is a public tool, or a function that the module itself defines."""
    if name.startswith("_"):
        return False
    return isinstance(value, Tool) or (inspect.isfunction(value) and value.__module__ == module.__name__)


def _called(ref: str, module: ModuleType, place: str, names: str) -> list[Tool]:
    name, arguments = parse_ref(names)
    maker = _named(ref, module, name)
    if not callable(maker):
        raise BadInput(f"{name!r} of {ref!r} cannot be called", remedy=f"Leave the brackets out. {SHAPES}")
    try:
        given = maker(**arguments)
    except Exception as error:
        remedy = "Mend what the error names, or the arguments in brackets."
        raise BadInput(f"tools {ref!r} cannot be made: {type(error).__name__}: {error}", remedy=remedy) from error
    return _made(given, f"{place}:{names}")


def _made(value: object, origin: str) -> list[Tool]:
    if isinstance(value, Tool):
        return [replace(value, origin=value.origin or origin)]
    if isinstance(value, list | tuple):
        return [made for one in value for made in _made(one, origin)]
    if callable(value):
        return [replace(tool(value), origin=origin)]
    raise BadInput(f"{origin!r} is no tool but a {type(value).__name__}", remedy=SHAPES)
