"""Agents and judges that improve together: the Red Queen engine (arXiv 2606.26294) over any artefact."""

from clew.methods.coevolve.judge_gates import Challenge, Gate, Ruling, rule
from clew.methods.coevolve.prompt_rewriter import PromptRewriter
from clew.methods.coevolve.red_queen import Rules, evolve
from clew.methods.coevolve.symbolic_changes import SymbolicChanges, lines_from
from clew.methods.coevolve.workplace import Job, Made, Proposal, Proposer, Role, Said, View, Work

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
