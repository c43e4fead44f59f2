"""What the verbs that recall share: the embedding model that a line names, and the vectors that its memory lacks.

An endpoint that fails is told and done without: nothing here ends a line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clew.cli.shared import common, option

if TYPE_CHECKING:
    from clew.harness.memory.recalling import Lacking, Memories
    from clew.models.remote.embedder import Embedder
    from clew.store import Keeper

EMBED_HELP = "Rank what is recalled by vectors too, of this endpoint: http://HOST/v1#MODEL or openai:MODEL."
embed_option = option("--embed", "embed", default="", metavar="MODEL", help=EMBED_HELP)
PATIENT = {"seconds": 60.0, "attempts": 5, "rest": 0.0}  # where nobody waits for an answer
BEFORE = {"seconds": 20.0}  # before a task begins


def embedder(ref: str, **settings: Any) -> Embedder | None:
    """The embedding model of a reference, with the credential of the environment; None where the line names none.

    Raises:
        BadInput: the reference is none.
    """
    if not ref:
        return None
    from clew.models.remote.embedder import embedder_of

    return embedder_of(ref, common.api_key(), **settings)


def warmed(store: Keeper, memory: str, ref: str) -> None:
    """Make the vectors that items of a memory lack, so that no recall waits for them; what it costs is told first."""
    from clew.harness.memory.recalling import Memories

    memories = Memories(store, embedder(ref, **BEFORE))
    need = memories.needs(memory)
    if need.items:
        common.say(f"note: {told(need.items, need.characters, memory, ref)}; Ctrl-C ends, and what is made is kept")
        left = made(memories, memory, need.items)
        if left.lacking:
            why = f": {left.why}" if left.why else ", which the model refuses"
            common.say(f"note: {left.lacking} of {left.of} items are ranked by their words alone{why}")


def told(items: int, characters: int, memory: str, ref: str) -> str:
    """How much is to be sent, in words."""
    return f"{items} items of memory {memory} have no vector of {ref} yet: about {characters // 4 + items:,} tokens"


def made(memories: Memories, memory: str, items: int, again: bool = False) -> Lacking:
    """Make vectors, with a bar."""
    with common.bar("vectors", items) as move:
        return memories.embed(memory, again=again, on_lot=lambda count: move(advance=count))
