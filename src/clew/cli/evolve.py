"""clew evolve: a group; entry points of ``clew.commands`` bring its verbs, ``evolve VERB``."""

from clew.cli.shared.common import Ordered

HELP = """Search for better agents under judges that evolve too, or for theories of people's choices.

\b
clew evolve agents --world desk
clew evolve theories --bank choices.jsonl
clew evolve show .clew/evolve/desk
"""
SHORT = "Search for better agents and judges, or for theories."
command = Ordered("evolve", help=HELP, short_help=SHORT)
