"""Cliff tokens: the single token at which a run's chance of success falls (E172, arXiv 2606.25524)."""

from clew.methods.cliffs.statistics import F64, RIGHT, Counts, Kind, wilson

__all__ = ["F64", "RIGHT", "Counts", "Kind", "wilson"]
