"""clew memory mcp: let agents that Clew did not write recall from a memory, by the Model Context Protocol."""

from __future__ import annotations

import click

from clew.cli.shared import common, embedding, option

WITHIN_HELP = "The run that the agent works in, if the store has it (or set CLEW_RUN)."
ALLOW_HELP = "What it may do beside recalling: add, retire, delete; may be repeated."
BY_HELP = "Names the program in the provenance of what it adds."


@click.command(short_help="Let agents recall from a memory, by MCP on the standard streams.")
@click.argument("memory")
@option("--allow", multiple=True, type=click.Choice(["add", "retire", "delete"]), help=ALLOW_HELP)
@option("--by", default="mcp", help=BY_HELP)
@option("--run", "within", default="", metavar="RUN[@CALL]", help=WITHIN_HELP)
@embedding.embed_option
@common.store_option
def command(memory: str, allow: tuple[str, ...], by: str, within: str, embed: str, store_path: str) -> None:
    """Serve MEMORY to agents by the Model Context Protocol (extras mcp and memory), on the standard streams until
    they close.

    Tools: recall, report (how the task went) and those of --allow. What is recalled for a task is a run of the store,
    which the ledger counts. Nothing else is written unless --allow says so.

    \b
    clew memory mcp shop --store runs.db
    claude mcp add shop -- clew memory mcp shop --store runs.db
    clew memory mcp shop --store runs.db --embed http://localhost:8000/v1#nomic-embed-text
    """
    import asyncio
    import os

    from clew.core.errors import need
    from clew.harness.tool_server import serve, server
    from clew.serve.doors.memory_tools import ABOUT, MemoryTools
    from clew.serve.doors.visit import Visit

    need("bm25s", "memory")
    with common.open_store(store_path, create="add" in allow) as store:
        if within:
            found, place = common.cursor(store, within)
            within = found.id if place is None else str(place)
        within = within or os.environ.get("CLEW_RUN", "")
        visit = Visit(store, memory, by, within, allow, embedding.embedder(embed))
        try:
            asyncio.run(serve(server(MemoryTools(visit), "clew-memory", "mcp", ABOUT)))
        finally:
            visit.end()
