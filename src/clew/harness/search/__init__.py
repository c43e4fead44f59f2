"""Searches for a candidate with a high score under a budget of tries."""

from clew.harness.search.climbing import at_random, climb
from clew.harness.search.mcts import tree_search
from clew.harness.search.tries import Problem, Proposer, Scored, Tries

__all__ = ["Problem", "Proposer", "Scored", "Tries", "at_random", "climb", "tree_search"]
