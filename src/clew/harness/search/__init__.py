"""Searches for a candidate with a high score under a budget of tries."""

from clew.methods.kernels.climbing import at_random, climb
from clew.methods.kernels.mcts import tree_search
from clew.methods.kernels.tries import Problem, Proposer, Scored, Tries

__all__ = ["Problem", "Proposer", "Scored", "Tries", "at_random", "climb", "tree_search"]
