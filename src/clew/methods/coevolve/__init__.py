"""Agents and judges that are improved together: the Red Queen search over any artefact.

Question: can the agent improve without learning to fool the judge that scores it?
For: who searches prompts or policies under a judge that can be fooled.
Paper: E178, arXiv 2606.26294. Command: ``clew evolve agents``, ``clew evolve show``. Page: docs/evolve.md.
One-line rule it must beat: the best of n candidates under a fixed judge.
"""

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
