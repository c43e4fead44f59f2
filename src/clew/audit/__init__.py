"""Audits of recorded runs and of data made from runs: what was compared, what was covered, what was learnt from.

``coverage`` measures which share of the states after a mistake, and of the recoveries, ever receives a training signal.
``cliffs`` finds the tokens at which the success probability of a run falls, and what they lead to. ``why`` rewinds a
run and changes what the agent was told, to find the cause of what it did. ``compaction`` measures whether rules survive
the compaction of a conversation. ``worth`` forks runs without items of a memory, to find what each is worth.
``versus`` lets several models, prompts or temperatures continue one run from one place until it is known which does
better, by the limits of ``sequential``. ``design`` holds the statistics of a fair comparison. An audit must never
change the runs it reads.
"""

from clew.methods.cliffs.detect import Found, Search, Survey, detect, survey
from clew.methods.cliffs.effect import Candidates, Effect, Pairs, effect, pairs
from clew.methods.recoveries.coverage import Coverage, Trail, coverage, trails

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
