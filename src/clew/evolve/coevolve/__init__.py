"""Agents and judges that improve together: the Red Queen engine (arXiv 2606.26294) over any artefact."""

from clew.evolve.coevolve.judge_gates import Challenge, Gate, Ruling, rule
from clew.evolve.coevolve.prompt_rewriter import PromptRewriter
from clew.evolve.coevolve.red_queen import Rules, evolve
from clew.evolve.coevolve.symbolic_changes import SymbolicChanges, lines_from
from clew.evolve.coevolve.workplace import Job, Made, Proposal, Proposer, Role, Said, View, Work

__all__ = [
    "Challenge",
    "Gate",
    "Job",
    "Made",
    "PromptRewriter",
    "Proposal",
    "Proposer",
    "Role",
    "Rules",
    "Ruling",
    "Said",
    "SymbolicChanges",
    "View",
    "Work",
    "evolve",
    "lines_from",
    "rule",
]
