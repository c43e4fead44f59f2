"""clew audit: a group of verbs, one file each (``audit_<verb>.py``), loaded when named."""

from clew.cli.shared.common import Lazy

HELP = """Ask of recorded runs, training data and agent stacks what went wrong, and why.

\b
clew audit cliffs 4fzk2w
clew audit coverage demos.jsonl
clew audit grade world=household --policy trainings/first/checkpoint --reference household-sft
clew audit why 4fzk2w --does 'refund'
clew audit decay
"""
SHORT = "Find where and why runs failed, and what training data lacks."
command = Lazy("audit", ("cliffs", "coverage", "grade", "why", "decay"), HELP, SHORT)
