"""The archive of an evolution: lineage, tagged evidence, a chained log, binding budgets, private anchors."""

from clew.evolve.archive.archive import Archive, Measured
from clew.evolve.archive.artefact_shelf import Shelf
from clew.evolve.archive.binding_budget import Budget
from clew.evolve.archive.chained_log import ChainedLog
from clew.evolve.archive.lineage import Lineage
from clew.evolve.archive.private_anchor import Anchor, Item
from clew.evolve.archive.tagged_evidence import Evidence

__all__ = ["Anchor", "Archive", "Budget", "ChainedLog", "Evidence", "Item", "Lineage", "Measured", "Shelf"]
