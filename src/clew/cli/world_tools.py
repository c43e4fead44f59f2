"""clew world tools: write the tools of a world, of an MCP server or of functions as a file for a simulated world."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clew.cli.shared import common, option
from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.core.values import ToolSpec


@click.command(short_help="Write tools as a file that a simulated world reads.")
@click.argument("ref")
@option("-o", "--out", default="tools.json", metavar="FILE", help="File to write, as OpenAI's API writes tools.")
@common.json_option
def command(ref: str, out: str, as_json: bool) -> None:
    """Write the tools of REF as JSON: of a world, of "mcp:COMMAND ARGUMENTS", or of file.py:NAME,NAME.

    An MCP server is started, asked for its list and ended; none of its tools is called. An OpenAPI document, or the
    server's own answer to tools/list, needs no such step: simulated(tools=FILE) reads it as it is.

    \b
    clew world tools desk -o tools.json
    clew world tools 'mcp:python server.py' -o tools.json
    """
    from clew.methods.world_model.tool_files import wire_of

    specs = _specs(ref)
    rows = [wire_of(spec) for spec in specs]
    Path(out).write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if as_json:
        common.end_with_json({"file": out, "tools": [spec.name for spec in specs]})
    common.echo(f"{out}: {len(specs)} tools: {', '.join(spec.name for spec in specs)}")
    common.echo(f"a simulated world takes it: simulated(tools={out!r}, demos='RUNS.jsonl', model='URL#NAME')")


def _specs(ref: str) -> list[ToolSpec]:
    """The tools that a reference names.

    Raises:
        BadInput: it names no world, server or functions, or a world without tools.
    """
    from clew.core.registry import build, names
    from clew.core.sources import file_of
    from clew.harness.toolbox import tools_of
    from clew.worlds.world_asks import open_world

    if ref.partition(":")[0] in names("tools"):
        return [tool.spec for tool in tools_of(ref)]
    if file_of(ref):
        try:
            return [tool.spec for tool in tools_of(ref)]
        except BadInput:
            if not hasattr(_in_file(ref), "open"):
                raise
    taskset = build("tasksets", ref)
    world = open_world(taskset, taskset.sample(1)[0])
    specs = list(world.tools) if world is not None else []
    if world is not None:
        world.close()
    if not specs:
        raise BadInput(f"the world {ref} has no tools: its actions are text", remedy="It needs no file of tools.")
    return specs


def _in_file(ref: str) -> object:
    from clew.core.registry import lookup, parse_ref

    try:
        return lookup("tasksets", parse_ref(ref)[0])
    except BadInput:
        return None
