"""Cliff tokens (critical tokens): the single token at which a run's chance of success falls.

Question: at which token was this run lost?
For: who debugs a reply, or trains on pairs of single tokens.
Paper: E172, arXiv 2606.25524. Command: ``clew audit cliffs``. Page: docs/cliffs.md.
One-line rule it must beat: the token of highest entropy.
"""

from clew.methods.cliffs.detect import Found, Search, Survey, detect, survey
from clew.methods.cliffs.effect import Candidates, Effect, Pairs, effect, pairs
from clew.methods.cliffs.statistics import F64, RIGHT, Counts, Kind, wilson

__all__ = ["F64", "RIGHT", "Candidates", "Counts", "Effect", "Found", "Kind", "Pairs", "Search", "Survey", "detect"]
__all__ += ["effect", "pairs", "survey", "wilson"]
