"""clew audit: a group; entry points of ``clew.commands`` bring its verbs, ``audit VERB``."""

from clew.cli.shared.common import Ordered

HELP = """Ask of recorded runs, training data and agent stacks what went wrong, and why.

\b
clew audit cliffs 4fzk2w
clew audit coverage demos.jsonl
clew audit grade world=household --policy trainings/first/checkpoint --reference household-sft
clew audit why 4fzk2w --does 'refund'
clew audit early world=tally --does 'answer odd' --until answer
clew audit diff trainings/first/checkpoint household-sft --on world=household
clew audit decay
clew audit judge --judge reward
clew audit methods
"""
SHORT = "Find where and why runs failed, and what training data lacks."
command = Ordered("audit", help=HELP, short_help=SHORT)
