"""Agents by reference, and their source digests."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from clew.core.errors import UnknownName
from clew.core.registry import absolute
from clew.core.sources import gone, is_file_module, load_file, load_named, placed

Agent = Callable[..., Awaitable[Any]]
BUNDLED = "clew.harness.agents"
MOVED = {"clew.audit.behaviour": "clew.audit.compaction.behaviour"}
"""Modules of agents by the place at which older records name them."""


def agent_ref(agent: Agent | str) -> str:
    """``module:qualname`` of an agent, or ``file.py:qualname`` where its module cannot be imported by name."""
    return absolute(agent) if isinstance(agent, str) else reference(agent)


def reference(agent: object) -> str:
    """As ``agent_ref``, for anything that a module or a file defines."""
    module = inspect.getmodule(agent)
    name = getattr(agent, "__qualname__", type(agent).__qualname__)
    if module is None or module.__name__ == "__main__" or is_file_module(module):
        source = str(getattr(module, "__file__", None) or getattr(getattr(agent, "__code__", None), "co_filename", "?"))
        return f"{os.path.abspath(source) if os.path.exists(source) else '<interactive>'}:{name}"
    return f"{module.__name__}:{name}"


def load_agent(ref: str) -> Agent:
    """The agent of a reference.

    Raises:
        UnknownName: the module, file or function is not there.
    """
    place, _, name = ref.rpartition(":")
    try:
        return cast(Agent, found_in(load_module(place), name))
    except Exception as error:  # what a file or a module raises that is executed here, of whatever kind
        plain = isinstance(error, ImportError | AttributeError | SyntaxError)
        told = error if plain else f"{type(error).__name__}: {error}"
        raise UnknownName(f"agent {ref!r} cannot be loaded: {told}", remedy=_how(place, name, error)) from error


def load_module(place: str) -> ModuleType:
    """The module of a file's path or of a module's name; an empty name is that of the bundled agents.

    Raises:
        ImportError: there is none. Whatever it raises as it is executed.
    """
    return load_file(place) if place.endswith(".py") else load_named(MOVED.get(place, place) or BUNDLED)


def found_in(module: ModuleType, name: str) -> object:
    """What a module calls so; the name may have dots.

    Raises:
        AttributeError: nothing.
    """
    found: object = module
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _how(place: str, name: str, error: Exception) -> str:
    """What to do where an agent of that name could not be loaded."""
    if place in ("", BUNDLED):
        known = "player, tool_user, coder, chatter, answerer, orchestrator and demonstrator"
        return f"Write one of {known}, or module:function or path/file.py:function."
    if place.endswith(".py") and os.path.isabs(place) and (remedy := gone(place)):
        return remedy
    file = Path(placed(place) if place.endswith(".py") else place.replace(".", "/") + ".py")
    if not file.exists():
        what = "file" if place.endswith(".py") else "module or file"
        return f"No {what} of that name is seen from {Path.cwd()}. Write module:function or path/file.py:function."
    if not place.endswith(".py"):
        return f"The file {file} is there: write {file}:{name}."
    if isinstance(error, AttributeError):
        return f"Write {file}:FUNCTION, with the name of an async function of that file."
    return f"Mend what the error names in {file}, or install what is missing."


async def play(agent: Agent, ref: str, run: object, config: Mapping[str, Any]) -> None:
    """Let an agent run.

    Raises:
        UnknownName: it is no async function. Whatever the agent raises.
    """
    played = agent(run, **config)
    if not inspect.isawaitable(played):
        remedy = "Begin it with `async def`, and write `await` before run.act(...) and chat.ask(...)."
        raise UnknownName(f"agent {ref} is no async function", remedy=remedy)
    await played


def source_digest(agent: Agent) -> str:
    try:
        return hashlib.blake2b(inspect.getsource(agent).encode(), digest_size=8).hexdigest()
    except (OSError, TypeError):
        return ""
