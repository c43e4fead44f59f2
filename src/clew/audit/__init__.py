"""Audits of recorded runs and of data made from them: what was compared, what was covered, what was learnt from.

``coverage`` asks which share of the states reached after a mistake, and of the retreats out of them, ever receives a
training signal. ``why`` (a module, with ``rewind``, ``arms`` and ``evidence``) finds what made an agent do something by
rewinding its run. ``design`` and ``doses`` hold the statistics of a fair comparison.
"""

from clew.audit.coverage import Coverage, Trail, coverage, trails

__all__ = ["Coverage", "Trail", "coverage", "trails"]
