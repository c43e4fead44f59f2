"""clew evolve: a group of verbs, one file each (``evolve_<verb>.py``), loaded when named."""

from clew.cli.shared.common import Ordered

VERBS = ("agents", "theories", "show")

HELP = """Search for better agents under judges that evolve too, or for theories of people's choices.

\b
clew evolve agents --world desk
clew evolve theories --bank choices.jsonl
clew evolve show .clew/evolve/desk
"""
SHORT = "Search for better agents and judges, or for theories."
command = Ordered("evolve", help=HELP, short_help=SHORT, files=VERBS)
