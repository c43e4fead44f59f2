"""The contract of a store, as checks that anyone can run on their own: ``check_store(lambda: MyStore())``.

Each check takes a factory of empty stores and raises AssertionError with what was expected. ``Script`` writes legal
runs; ``tamper`` alters a recorded Call behind a store's back, to see that ``verify`` and replay notice.
"""

from __future__ import annotations

from collections.abc import Callable

from clew.store.contract import attached, content, opinions, parts, remembered, whole
from clew.store.contract.script import SETUP, Factory, Script, fork_at, make_node, tamper

__all__ = ["CHECKS", "SETUP", "Factory", "Script", "check_store", "fork_at", "make_node", "tamper"]

CHECKS: tuple[Callable[[Factory], None], ...] = (content.keeps_nodes, content.keeps_blobs, content.keeps_calls)
CHECKS += (content.refuses_to_rewrite, content.keeps_runs, content.shares_calls, content.keeps_annotations)
CHECKS += (content.keeps_small_tables, whole.finds_runs, parts.pages_runs, parts.tells_what_changed, parts.reads_parts)
CHECKS += (whole.leases_runs, whole.proves_itself, whole.checks_legality, whole.merges, whole.redacts)
CHECKS += (whole.collects_garbage, whole.shows_runs, opinions.keeps_labels, opinions.forgets_labels)
CHECKS += (attached.keeps_images, remembered.keeps_entries, remembered.unites_memories, remembered.forgets_items)
CHECKS += (remembered.keeps_vectors,)


def check_store(make: Factory) -> None:
    """Run every check.

    Raises:
        AssertionError: the store breaks the contract.
    """
    for check in CHECKS:
        check(make)
