"""Audits of recorded runs and of data made from them: what was compared, what was covered, what was learnt from.

``coverage`` asks which share of the states reached after a mistake, and of the retreats out of them, ever receives a
training signal.
"""

from clew.audit.coverage import Coverage, Trail, coverage, trails

__all__ = ["Coverage", "Trail", "coverage", "trails"]
