"""The archive of an evolution: lineage, tagged evidence, a chained log, binding budgets, private anchors."""

from clew.methods.coevolve.archive.archive import Archive, Measured
from clew.methods.coevolve.archive.artefact_shelf import Shelf
from clew.methods.coevolve.archive.binding_budget import Budget
from clew.methods.coevolve.archive.chained_log import ChainedLog
from clew.methods.coevolve.archive.lineage import Lineage
from clew.methods.coevolve.archive.private_anchor import Anchor, Item
from clew.methods.coevolve.archive.tagged_evidence import Evidence

__all__ = ["Anchor", "Archive", "Budget", "ChainedLog", "Evidence", "Item", "Lineage", "Measured", "Shelf"]
