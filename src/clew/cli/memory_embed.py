"""clew memory embed: make the vectors that items of a memory lack, so that no recall waits for them."""

from __future__ import annotations

import click

from clew.cli.shared import common, embedding, option, run_options
from clew.cli.shared.next_lines import command_line
from clew.core.errors import BadInput

AGAIN_HELP = "Make those that are there anew too, as after the server has loaded another model under the same name."


@click.command("embed", short_help="Make the vectors by which items are ranked beside their words.")
@click.argument("memory")
@click.argument("model")
@option("--again", is_flag=True, help=AGAIN_HELP)
@option("--dry", is_flag=True, help="Print how much would be sent, and send nothing.")
@common.output_options
def command(memory: str, model: str, again: bool, dry: bool, as_json: bool, store_path: str) -> None:
    """Send the items of MEMORY that have no vector yet to MODEL, an embedding model behind an OpenAI-style endpoint
    (http://HOST/v1#MODEL or openai:MODEL), and keep what it makes of them beside the items. Extra memory.

    Recalls with --embed make what is lacking themselves as far as their time allows: this is for a large memory. What
    is made is kept after an interrupt: the same line goes on. A vector goes when its item is deleted; the key is read
    from CLEW_API_KEY or OPENAI_API_KEY.

    \b
    clew memory embed shop http://localhost:8000/v1#nomic-embed-text --dry
    clew memory embed shop openai:text-embedding-3-small
    clew run --world shop --memory shop --embed openai:text-embedding-3-small
    """
    from clew.core.errors import need
    from clew.harness.memory import Memory
    from clew.harness.memory.recalling import Memories

    need("bm25s", "memory")
    store = common.open_store(store_path)
    if not Memory(store, memory).items():
        raise BadInput(f"memory {memory!r} holds no items", remedy="`clew memory list` lists the memories.")
    embedder = embedding.embedder(model, **embedding.PATIENT)
    assert embedder is not None
    memories = Memories(store, embedder)
    needs = memories.needs(memory, again)
    common.say(embedding.told(needs.items, needs.characters, memory, model))
    if dry:
        if as_json:
            common.end_with_json({"items": needs.items, "characters": needs.characters})
        return
    with run_options.interruptible("the same line goes on"):
        left = embedding.made(memories, memory, needs.items, again)
    if left.why:
        raise BadInput(f"{left.lacking} of {left.of} items still have no vector: {left.why}", remedy="Run it again.")
    if as_json:
        common.end_with_json({"made": needs.items - left.lacking, "refused": left.lacking, "tokens": embedder.tokens})
    refused = f", {left.lacking} were refused and are ranked by their words" if left.lacking else ""
    common.echo(f"{needs.items - left.lacking} vectors made{refused}; {embedder.tokens:,} tokens counted there")
    common.echo(f"\nNext:\n  {command_line('run', memory=memory, embed=model)}")
