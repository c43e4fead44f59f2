"""Audits of recorded runs and of data made from them: what was compared, what was covered, what was learnt from.

``coverage`` asks which share of the states reached after a mistake, and of the retreats out of them, ever receives a
training signal. ``survey`` and ``detect`` find the tokens at which a run's chance of success fell, ``effect`` and
``pairs`` what they lead to (the statistics are in ``clew.audit.cliffs``). ``why`` (with ``rewind``, ``arms`` and
``evidence``) finds what made an agent do something by rewinding its run; ``decay`` whether rules survive
compaction. ``design`` and ``doses`` hold the statistics of a fair comparison.
"""

from clew.audit.cliffs.detect import Found, Search, Survey, detect, survey
from clew.audit.cliffs.effect import Candidates, Effect, Pairs, effect, pairs
from clew.audit.coverage import Coverage, Trail, coverage, trails

__all__ = [
    "Candidates",
    "Coverage",
    "Effect",
    "Found",
    "Pairs",
    "Search",
    "Survey",
    "Trail",
    "coverage",
    "detect",
    "effect",
    "pairs",
    "survey",
    "trails",
]
