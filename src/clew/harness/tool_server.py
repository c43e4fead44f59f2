"""Tools as an MCP server on the standard streams, for any agent that speaks the protocol.

``clew store mcp`` and ``clew diagnose --mcp`` start one. Nothing else may be printed on standard output while it runs.
What a tool answers is for the caller to judge; an error is one text, cut and without hidden characters.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from clew.core.errors import BadInput, MissingExtra
from clew.core.printable import short, visible
from clew.core.values import Observation, ToolCall
from clew.harness.tools import Tool

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

LONGEST = 2000  # characters of an error
ARGUMENTS = 1 << 20  # characters of a call's arguments


class Offers(Protocol):
    """What has tools to offer: they may change from call to call."""

    def all(self) -> Mapping[str, Tool]:
        """The tools by name, over what is there now."""


def server(offered: Offers, name: str, extra: str, about: str = "") -> Server:
    """An MCP server with these tools.

    Args:
        name: of the server, as its clients show it.
        extra: which brings the package ``mcp``, for the error where it is missing.
        about: what a client tells its model of the server.

    Raises:
        MissingExtra: the package ``mcp`` is not installed.
    """
    try:
        from mcp import types
        from mcp.server.lowlevel import Server
    except ImportError:
        raise MissingExtra("the package mcp is not installed", remedy=f"pip install 'clew[{extra}]'") from None

    async def listed(context: object, asked: object) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=name,
                    description=t.spec.description,
                    input_schema=dict(t.spec.schema),
                    annotations=types.ToolAnnotations(read_only_hint=t.idempotent),
                )
                for name, t in offered.all().items()
            ]
        )

    async def called(context: object, asked: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            known = offered.all()
            if asked.name not in known:
                remedy = f"Use {', '.join(known)}."
                raise BadInput(f"there is no tool {short(asked.name, 80)!r}", remedy=remedy)
            arguments = json.dumps(asked.arguments or {})
            if len(arguments) > ARGUMENTS:
                raise BadInput(f"arguments of {len(arguments):,} characters", remedy=f"Send at most {ARGUMENTS:,}.")
            answer = known[asked.name].call(ToolCall("", asked.name, arguments))
            text = answer.text if isinstance(answer, Observation) else (await answer).text
        except BadInput as error:
            text = f"error: {error.message}. {error.remedy}"
        failed = text.startswith("error:")
        content: list[Any] = [types.TextContent(type="text", text=visible(text)[:LONGEST] if failed else text)]
        return types.CallToolResult(content=content, is_error=failed)

    version = importlib.metadata.version("clew")
    handlers: dict[str, Any] = {"on_list_tools": listed, "on_call_tool": called}
    return Server(name, version=version, instructions=about or None, **handlers)


async def serve(made: Server) -> None:
    """Serve on the standard streams until they close."""
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (reader, writer):
        await made.run(reader, writer, made.create_initialization_options())
