"""The four tools as an MCP server on the standard streams, for any agent that speaks the protocol.
``clew diagnose --mcp`` starts it. Nothing else may be printed on standard output while it runs."""

from __future__ import annotations

import importlib.metadata
import json
from typing import TYPE_CHECKING, Any

from clew.coding.diagnose.code_tools import Tools
from clew.core.errors import MissingExtra
from clew.core.values import Observation, ToolCall

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server


def server(tools: Tools) -> Server:
    """An MCP server with the four tools.

    Raises:
        MissingExtra: the package ``mcp`` is not installed.
    """
    try:
        from mcp import types
        from mcp.server.lowlevel import Server
    except ImportError:
        raise MissingExtra("the package mcp is not installed", remedy="pip install 'clew[coding]'") from None
    known = {t.spec.name: t for t in tools.all()}

    async def listed(context: object, asked: object) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(name=name, description=t.spec.description, input_schema=dict(t.spec.schema))
                for name, t in known.items()
            ]
        )

    async def called(context: object, asked: types.CallToolRequestParams) -> types.CallToolResult:
        if asked.name not in known:
            text = f"error: there is no tool {asked.name!r}; use {', '.join(known)}"
        else:
            answer = known[asked.name].call(ToolCall("", asked.name, json.dumps(asked.arguments or {})))
            text = answer.text if isinstance(answer, Observation) else (await answer).text
        content: list[Any] = [types.TextContent(type="text", text=text)]
        return types.CallToolResult(content=content, is_error=text.startswith("error:"))

    version = importlib.metadata.version("clew")
    return Server("clew-diagnose", version=version, on_list_tools=listed, on_call_tool=called)


async def serve(tools: Tools) -> None:
    """Serve on the standard streams until they close."""
    made = server(tools)
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (reader, writer):
        await made.run(reader, writer, made.create_initialization_options())
