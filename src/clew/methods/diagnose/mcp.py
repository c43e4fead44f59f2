"""The tools of a diagnosis as an MCP server (``harness.tool_server``), which ``clew diagnose --mcp`` starts.

Each call sees the files as they are then, not as they were when the server started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clew.harness import tool_server
from clew.harness.tools import Tool, tool
from clew.methods.diagnose.choose import FIRST, Chooser, unmatched
from clew.methods.diagnose.code_tools import Tools
from clew.methods.diagnose.confidence import Calibration
from clew.methods.diagnose.finding import markdown
from clew.methods.diagnose.known import ELSEWHERE

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
        """The tools by name, over the files as they are now.

        Raises:
            BadInput: no file is left to look at.
        """
        self._look()
        return {t.spec.name: t for t in (tool(self.diagnose, idempotent=True), *self._tools.all())}

    def _look(self) -> None:
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
        return ranked_places(self._chooser, report, n, self._calibration)


def ranked_places(chooser: Chooser, report: str, n: int, calibration: Calibration) -> str:
    """The places that a report points to, with how sure each is, for a model.

    Raises:
        BadInput: nothing matches the report.
    """
    found = chooser.findings(report)[: min(max(n, 1), MOST)]
    if not found:
        raise unmatched()
    return markdown(chooser.confident(report, found, calibration), called=True)


def server(present: Present) -> Server:
    """An MCP server with these tools.

    Raises:
        MissingExtra: the package ``mcp`` is not installed.
    """
    return tool_server.server(present, "clew-diagnose", "coding")
