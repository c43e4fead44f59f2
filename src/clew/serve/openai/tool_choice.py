"""Which tools a request offers, and which of them the reply must call, as OpenAI's APIs and Anthropic's say it.

``questions.read`` asks. A tool that the server would have to run itself must never be taken for one of the client's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from clew.core.values import ToolSpec
from clew.models.dialects import Json
from clew.serve.refusals import Rejected

ANTHROPIC = {"auto": "auto", "any": "required", "none": "none"}


class Choice(NamedTuple):
    """Whether tools are offered at all; names of those of which one must be called; whether one call alone is wanted
    though the field for that does not say so."""

    offered: bool = True
    called: tuple[str, ...] = ()
    single: bool = False


def read(endpoint: str, body: Json, tools: Sequence[ToolSpec]) -> Choice:
    """The choice of a request that offers these tools.

    Raises:
        Rejected: a tool that is no function, or a choice that names none of them.
    """
    given = body.get("tools") or []
    if any(not isinstance(t, dict) or t.get("type", "function") not in ("function", "custom") for t in given):
        raise Rejected("a tool that is no function", remedy="This server runs no tools of its own.", param="tools")
    choice, single, names = body.get("tool_choice"), False, tuple(t.name for t in tools)
    if endpoint == "messages" and isinstance(choice, dict):
        kind, single = str(choice.get("type")), bool(choice.get("disable_parallel_tool_use"))
        named = {"type": "function", "name": choice.get("name", "")}
        choice = named if kind == "tool" else ANTHROPIC.get(kind, choice)
    if choice in (None, "auto"):
        return Choice(single=single)
    if choice == "none":
        return Choice(offered=False)
    if choice == "required":
        called = names
    elif isinstance(choice, dict) and choice.get("type") == "function":
        called = ((choice.get("function") or choice).get("name", ""),)
    else:
        told = f"tool_choice is {str(choice)[:60]!r}"
        raise Rejected(told, remedy="Use none, auto, required or name a function.", param="tool_choice")
    if not called or not set(called) <= set(names):
        told = f"tool_choice asks for {called or 'a tool'}, tools has {names or 'none'}"
        raise Rejected(told, remedy="Choose one that is offered.", param="tool_choice")
    return Choice(called=called, single=single)
