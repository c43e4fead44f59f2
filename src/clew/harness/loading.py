"""Agents by reference, and their source digests."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from clew.core.errors import UnknownName
from clew.core.registry import absolute, lookup, name_of, names
from clew.core.sources import gone, is_file_module, load_file, load_named, placed

Agent = Callable[..., Awaitable[Any]]
BUNDLED = "clew.harness.agents"
RECORDED = {
    "answerer": f"{BUNDLED}:answerer",
    "chatter": f"{BUNDLED}:chatter",
    "coder": f"{BUNDLED}:coder",
    "demonstrator": f"{BUNDLED}:demonstrator",
    "orchestrator": f"{BUNDLED}:orchestrator",
    "player": f"{BUNDLED}:player",
    "remembering": f"{BUNDLED}:remembering",
    "tool_user": f"{BUNDLED}:tool_user",
    "transcript": f"{BUNDLED}:transcript",
    "actor": "clew.train.observing.closed_loop:actor",
    "commanded": "clew.serve.programs.commanded:commanded",
    "episode": "clew.audit.compaction.behaviour:episode",
    "gatekeeper": "clew.coding.gate_agent:gatekeeper",
    "keep": "clew.coding.gate_agent:keep",
    "labeller": "clew.audit.diff.feature.feature_labels:labeller",
    "localiser": "clew.coding.localise:localiser",
    "policy_clerk": "clew.evolve.agents.policy_clerk:policy_clerk",
    "relay": "clew.serve.relay:relay",
    "reviewer": "clew.evolve.agents.prompted_judge:reviewer",
    "tuner": "clew.coding.kernels.world:tuner",
    "visitor": "clew.serve.doors.visit:visitor",
}
"""How records name the agents of ``clew.agents`` that come with Clew, wherever their modules lie. It must never change:
the requests by which runs start others hold these names."""
MODULES = {"clew.coding.run_tools": "clew.methods.diagnose.run_tools"}
"""Where modules lie whose names stand in records and in the lines that people type."""
_CALLED = {place: called for called, place in MODULES.items()}
_SHORT = {ref: name for name, ref in RECORDED.items()} | {
    "clew.audit.behaviour:episode": "episode",
    "clew.harness.coder:coder": "coder",
    "clew.harness.remembering:remembering": "remembering",
    "clew.harness.workflow.orchestrator:orchestrator": "orchestrator",
}


def agent_ref(agent: Agent | str) -> str:
    """``module:qualname`` of an agent, or ``file.py:qualname`` where its module cannot be imported by name.

    Agents that come with Clew keep the name that records have had for them, wherever their module lies.
    """
    return absolute(agent) if isinstance(agent, str) else _recorded(reference(agent))


@cache
def _recorded(ref: str) -> str:
    return RECORDED.get(name_of("agents", ref), ref)


def reference(agent: object) -> str:
    """As ``agent_ref``, for anything that a module or a file defines."""
    module = inspect.getmodule(agent)
    name = getattr(agent, "__qualname__", type(agent).__qualname__)
    if module is None or module.__name__ == "__main__" or is_file_module(module):
        source = str(getattr(module, "__file__", None) or getattr(getattr(agent, "__code__", None), "co_filename", "?"))
        return f"{os.path.abspath(source) if os.path.exists(source) else '<interactive>'}:{name}"
    return f"{_CALLED.get(module.__name__, module.__name__)}:{name}"


def load_agent(ref: str) -> Agent:
    """The agent of a reference; a name without a colon is looked up among ``clew.agents``.

    Raises:
        UnknownName: the module, file or function is not there.
    """
    place, colon, name = ref.rpartition(":")
    short = _SHORT.get(ref, "" if colon else ref)
    try:
        return cast(Agent, lookup("agents", short) if short else found_in(load_module(place), name))
    except Exception as error:  # what a file or a module raises that is executed here, of whatever kind
        plain = isinstance(error, ImportError | AttributeError | SyntaxError)
        told = error if plain else f"{type(error).__name__}: {error}"
        if short and isinstance(error, UnknownName):
            told = error.message
        raise UnknownName(f"agent {ref!r} cannot be loaded: {told}", remedy=_how(place, name, error)) from error


def load_module(place: str) -> ModuleType:
    """The module of a file's path or of a module's name.

    Raises:
        ImportError: there is none. Whatever it raises as it is executed.
    """
    return load_file(place) if place.endswith(".py") else load_named(MODULES.get(place, place))


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
        known = get_close_matches(name, names("agents"), 3) or names("agents")
        return f"Write {' or '.join(known)}, or module:function or path/file.py:function."
    if f"{place}:{name}" in _SHORT:
        return f"Install the package or extra of Clew that brings the agent {name}."
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
