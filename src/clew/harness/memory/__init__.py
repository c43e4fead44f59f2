"""What agents remember of earlier runs: items kept in the store, recalled as an effect of the run that asks."""

from clew.harness.memory.book import Memory
from clew.harness.memory.item_kinds import Item
from clew.harness.memory.recalled import Recalled

__all__ = ["Item", "Memory", "Recalled"]
