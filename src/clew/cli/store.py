"""clew store: a group of verbs, one file each (``store_<verb>.py``), loaded when named."""

from clew.cli.shared.common import Lazy

HELP = """Keep the store, the file that holds all runs: name runs, unite stores, check, erase and clean up.

\b
clew store tag keep 4fzk2w
clew store merge laptop.db
clew store verify
"""
SHORT = "Keep the store: tag, merge, verify, redact, clean up."
command = Lazy("store", ("tag", "merge", "verify", "redact", "gc"), HELP, SHORT)
