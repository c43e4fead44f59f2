"""clew audit: a group of verbs, one file each (``audit_<verb>.py``), loaded when named."""

from clew.cli.shared.common import Lazy

command = Lazy(
    "audit",
    {"decay": "Say which stacks and models lose a rule when the history is compacted.",
     "why": "Find out which part of a run made the agent do what it did."},
    help="""Audits of agents and of what they are built on.

    \b
    clew audit decay
    clew audit why 4fzk2w --does 'refund'
    """,
    short_help="Find out whether rules survive compaction, and why an agent did something.",
)  # fmt: skip
