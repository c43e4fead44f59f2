"""``Draft`` and ``Codifier``: the contract between a plan that has earned a tool and whoever writes that tool.

``crafting.py`` calls a Codifier; ``ModelCodifier`` is one over any Model, and a function of one's own may be another. A
Codifier must never be given a trajectory: those carry page counts, ids and filters of one run, which end up in the
tool (arXiv 2606.24151, section 3.3). So its arguments are texts, and the plan is handed over without its ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from clew.core.values import ToolSpec
from clew.harness.memory.item_kinds import Item
from clew.methods.memory.lessons.spent import Cost


class Draft(NamedTuple):
    """A tool as a Codifier wrote it: hostile text until it has passed the gate, the sandbox and the shadow run.

    name: of the tool and of its function. signature: as shown, ``(query: str) -> str | None``. deps: what it calls.

    source: Python that defines ``def NAME(query, api)``; ``api("fetch", app="bank", page=1)`` calls a tool of the world
    or an admitted tool and gives what it answers (JSON read, else text), or ``{"error": ...}``. The function gives the
    answer as text or a number, or None where the query is none of its own. It is deterministic, and it is begun anew
    for each call that it makes.

    cost: what was asked for it. why: where the source is empty, why no draft came of it, in a sentence.
    """

    name: str
    signature: str
    doc: str
    source: str
    deps: tuple[str, ...] = ()
    cost: Cost = Cost()
    why: str = ""


class Codifier(Protocol):
    """Writes a tool from a plan and the queries that it was selected for."""

    async def codify(self, plan: Item, queries: Sequence[str], api: Sequence[ToolSpec]) -> Draft:
        """A draft; one without a source where none came of it. The plan then stays a plan and is tried again later.

        Args:
            plan: the plan, without ledger and provenance; see ``bare``.
            queries: of the ledger, each once, oldest first. What differs among them has to be read from the query.
            api: what the draft may call: tools of the world, and admitted tools, which take ``query``.
        """
        ...


def bare(plan: Item) -> Item:
    """A plan as a Codifier is given it: what it says and its scope, and nothing that leads to a run."""
    return replace(plan, given=(), provenance=(), why="", replaced_by="")
