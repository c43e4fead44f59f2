"""The tools of a diagnosis as an MCP server on the standard streams, for any agent that speaks the protocol.

``clew diagnose --mcp`` starts it. Each call sees the files as they are then, not as they were when the server started.
Nothing else may be printed on standard output while it runs.
"""

from __future__ import annotations

import importlib.metadata
import json
from typing import TYPE_CHECKING, Any

from clew.coding.diagnose.choose import FIRST, Chooser, unmatched
from clew.coding.diagnose.code_tools import Tools
from clew.coding.diagnose.confidence import Calibration
from clew.coding.diagnose.finding import markdown
from clew.coding.diagnose.known import ELSEWHERE
from clew.core.errors import BadInput, MissingExtra
from clew.core.values import Observation, ToolCall
from clew.harness.tools import Tool, tool

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

MOST = 20  # findings of one call


class Present:
    """The tools over a repository as it is at each call: the four of the paper, and ``diagnose``.

    Args:
        tools: over the view to begin with; one of a commit stays.
        calibration: of the confidences.
    """

    def __init__(self, tools: Tools, calibration: Calibration = ELSEWHERE) -> None:
        self._tools, self._calibration = tools, calibration
        self._chooser = Chooser.over(tools, MOST)

    def all(self) -> dict[str, Tool]:
        """The tools by name, over the files as they were last seen."""
        return {t.spec.name: t for t in (tool(self.diagnose, idempotent=True), *self._tools.all())}

    def look(self) -> None:
        """See the files as they are now.

        Raises:
            BadInput: no file is left to look at.
        """
        view = self._tools.view.present()
        if view is not self._tools.view:
            self._tools = Tools(view)
            self._chooser = Chooser.over(self._tools, MOST)

    def diagnose(self, report: str, n: int = FIRST) -> str:
        """Rank the places of this repository that a bug report points to, at most n (1 to 20). Stack traces, names of
        code, options, messages and files in the report are used; give the report whole, as the user wrote it."""
        found = self._chooser.findings(report)[: min(max(n, 1), MOST)]
        if not found:
            raise unmatched()
        return markdown(self._chooser.confident(report, found, self._calibration))


def server(present: Present) -> Server:
    """An MCP server with these tools.

    Raises:
        MissingExtra: the package ``mcp`` is not installed.
    """
    try:
        from mcp import types
        from mcp.server.lowlevel import Server
    except ImportError:
        raise MissingExtra("the package mcp is not installed", remedy="pip install 'clew[coding]'") from None

    async def listed(context: object, asked: object) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(name=name, description=t.spec.description, input_schema=dict(t.spec.schema))
                for name, t in present.all().items()
            ]
        )

    async def called(context: object, asked: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            present.look()
            known = present.all()
            if asked.name not in known:
                remedy = f"Use {', '.join(known)}."
                raise BadInput(f"there is no tool {asked.name!r}", remedy=remedy)
            answer = known[asked.name].call(ToolCall("", asked.name, json.dumps(asked.arguments or {})))
            text = answer.text if isinstance(answer, Observation) else (await answer).text
        except BadInput as error:
            text = f"error: {error.message}. {error.remedy}"
        content: list[Any] = [types.TextContent(type="text", text=text)]
        return types.CallToolResult(content=content, is_error=text.startswith("error:"))

    version = importlib.metadata.version("clew")
    return Server("clew-diagnose", version=version, on_list_tools=listed, on_call_tool=called)


async def serve(present: Present) -> None:
    """Serve on the standard streams until they close."""
    made = server(present)
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (reader, writer):
        await made.run(reader, writer, made.create_initialization_options())
