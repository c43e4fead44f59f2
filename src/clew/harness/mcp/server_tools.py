"""The tools of an MCP server as Tools of Clew.

``harness.toolbox`` calls it. What a server says is hostile: names and schemas that no model may be offered are left out
with a warning, results and their images are bounded, and an error of the server comes back to the model as one. A
server that dies ends the run, since what the model then sees would say nothing about the model.
"""

from __future__ import annotations

import asyncio
import json
import re
import warnings
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from clew.core.errors import BadInput, ClewError, WorldError
from clew.core.printable import short
from clew.core.values import Observation, ToolSpec
from clew.harness.mcp.server_process import Command, Server
from clew.harness.tools import Tool
from clew.models.images import LARGEST, MOST, Image, image, media
from clew.worlds.foreign_schemas import checkable, fault

if TYPE_CHECKING:
    from mcp import types

SCHEME = "mcp:"
TOOLS, PAGES = 128, 20  # most of one server, and most pages of its list
LONGEST = 400_000  # characters of one result
IMAGES = 32 << 20  # bytes of its images together
TOLD = 8_000  # characters of a tool's description
NAME = re.compile(r"[\w./-]{1,64}", re.ASCII)


def tools_of_mcp(
    command: str, known: Sequence[ToolSpec] | None = None, flags: Mapping[str, Any] | None = None
) -> list[Tool]:
    """The tools of the server that a command starts.

    One process serves all runs of these tools; it is started now to list them, or, where they are known, when one is
    first called.

    Args:
        command: words of a shell; before them ``--seconds N`` (for a start or a call; 60) and ``--env NAME`` (a
            variable of the environment that the server gets).
        known: what models were told of the tools, from a record; the server is then not asked.
        flags: what the record keeps of them: lists ``idempotent`` and ``parallel`` of names.

    Raises:
        BadInput: the server cannot be started, or has no tool that a model can be offered.
        MissingExtra: the package ``mcp`` is not installed.
    """
    parsed = Command.parse(command)
    server = Server(parsed)
    if known is None:
        found = _offered(server, _listed(server))
        specs = [ToolSpec(name, short(t.description or "", TOLD), dict(t.input_schema)) for name, t in found.items()]
        calls = {name: t.name for name, t in found.items()}
        safe = {name for name, t in found.items() if t.annotations is not None and t.annotations.read_only_hint}
        kept: dict[str, Any] = {"idempotent": sorted(safe), "parallel": sorted(safe)}
        kept["called"] = {name: real for name, real in calls.items() if name != real}
    else:
        kept = dict(flags or {})
        specs, calls = list(known), {spec.name: kept.get("called", {}).get(spec.name, spec.name) for spec in known}
    names = [spec.name for spec in specs]
    origin = {"ref": SCHEME + parsed.settled(), "names": names, **{key: kept[key] for key in KEPT if kept.get(key)}}
    return [
        Tool(spec, _caller(server, calls[spec.name]), spec.name in kept.get("idempotent", ()),
             spec.name in kept.get("parallel", ()), origin, checkable(spec.schema))
        for spec in specs
    ]  # fmt: skip


KEPT = ("idempotent", "parallel", "called")


class McpTools:
    """The tools of MCP servers, as ``clew.tools`` opens them by ``mcp:COMMAND ARGUMENTS``."""

    def tools(
        self, rest: str, known: Sequence[ToolSpec] | None = None, flags: Mapping[str, Any] | None = None
    ) -> list[Tool]:
        """As ``tools_of_mcp``."""
        return tools_of_mcp(rest, known, flags)

    def files(self, rest: str) -> list[str]:
        """The Python files that a server's command names."""
        return [word for word in Command.parse(rest).words if word.endswith(".py")]


def _listed(server: Server) -> list[types.Tool]:
    """What the server lists, page by page.

    Raises:
        BadInput: it lists nothing, too much, or ends.
    """
    from mcp import types

    found: list[types.Tool] = []
    place: str | None = None
    for _ in range(PAGES):
        asked = types.ListToolsRequest(params=types.PaginatedRequestParams(cursor=place))
        try:
            page = server.ask(asked, types.ListToolsResult).result()
        except ClewError as error:
            raise BadInput(error.message, remedy=error.remedy) from error
        except Exception as error:
            why = short(f"{type(error).__name__}: {error}", 300)
            told = f"the MCP server {server.command.name} does not list its tools: {why}"
            remedy = "Run the command by hand: it must speak MCP on its standard streams."
            raise BadInput(told, remedy=remedy) from error
        found += page.tools
        place = page.next_cursor
        if len(found) > TOOLS or not place:
            break
    if not found or len(found) > TOOLS or place:
        many = f"more than {TOOLS} tools" if found else "no tool"
        server.close()
        raise BadInput(f"the MCP server {server.command.name} has {many}", remedy="Give another server.")
    return found


def _offered(server: Server, listed: Iterable[types.Tool]) -> dict[str, types.Tool]:
    """Those that a model can be offered, by the name that it is told; endpoints take neither dots nor slashes."""
    found: dict[str, types.Tool] = {}
    for one in listed:
        name = re.sub(r"[./]", "_", one.name)
        odd = "a name that models cannot be told" if not NAME.fullmatch(one.name) else ""
        if not odd and name in found:
            odd = "the name of another"
        if why := (odd and f"has {odd}") or ((wrong := fault(one.input_schema)) and f"has a schema that {wrong}"):
            told = f"a tool of the MCP server {server.command.name} is left out: {short(repr(one.name), 60)} {why}"
            warnings.warn(told, stacklevel=2)
        else:
            found[name] = one
    if not found:
        server.close()
        remedy = "Give another server."
        raise BadInput(f"the MCP server {server.command.name} has no tool that a model can be offered", remedy=remedy)
    return found


def _caller(server: Server, name: str) -> Callable[..., Awaitable[Observation]]:
    """What calls one tool of the server."""

    async def call(**arguments: Any) -> Observation:
        from mcp import types

        asked = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=arguments))
        try:
            waiting: Future[types.CallToolResult] = server.ask(asked, types.CallToolResult)
            told = await asyncio.wrap_future(waiting)
        except BadInput as error:  # it cannot be started
            raise WorldError(error.message, remedy=error.remedy) from error
        seen = observation_of(told)
        if told.is_error and not seen.text.startswith("error:"):
            return seen._replace(text=f"error: {seen.text or name + ' failed'}")
        return seen

    return call


def observation_of(result: types.CallToolResult) -> Observation:
    """What a result says, as text, and its images; these and what else no text can be is named by kind and size."""
    parts, room = list[str | Image](), IMAGES
    for part in result.content:
        said = _part(part)
        if isinstance(said, Image):
            room -= len(said.body)
        parts.append(str(said) if room < 0 else said)
    text = "\n".join(map(str, parts))
    if not text and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    left = len(text) - LONGEST
    if left > 0:
        text = f"{text[:LONGEST]}\n… ({left:,} further characters of the result were cut)"
    return Observation(text, extra=media(*[part for part in parts if isinstance(part, Image)][:MOST]))


def _part(part: Any) -> str | Image:
    if part.type == "text":
        return str(part.text)
    resource: Any = getattr(part, "resource", None)
    if part.type == "resource" and hasattr(resource, "text"):
        return str(resource.text)
    if part.type == "resource_link":
        return f"[resource {short(str(part.uri), 200)}]"
    data = str(getattr(part, "data", "") or getattr(resource, "blob", ""))
    kind = str(getattr(part, "mime_type", "") or getattr(resource, "mime_type", "") or part.type)
    if kind.startswith("image") and len(data) <= LARGEST * 4 // 3 + 4:
        with suppress(ValueError, BadInput):  # neither base64 nor an image: named alone
            return image(b64decode(data, validate=True))
    return f"[{short(kind, 60)}, {len(data) * 3 // 4:,} bytes]"
