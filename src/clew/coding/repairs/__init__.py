"""Tasksets of repairs: a repository at a commit, what is wrong there, and the tests that say when it is right."""

from clew.coding.repairs.repair_rows import Row, are_repairs, rows_in
from clew.coding.repairs.repairs import Repairs

__all__ = ["Repairs", "Row", "are_repairs", "rows_in"]
