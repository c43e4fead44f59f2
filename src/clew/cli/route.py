"""clew route: a group; entry points of ``clew.commands`` bring its verbs, ``route VERB``."""

from clew.cli.shared.common import Ordered

HELP = """Measure a pool of models, find whether choosing among them by question pays, and fit a router.

\b
clew route measure --models openai:gpt-5-mini,openai:gpt-5 --data q.jsonl --reward numeric -n 4 --name pool
clew route report pool
clew route report --from rewards.jsonl --hold families
clew route fit pool -o router
clew route fit pool -o router --backbone ./weights
clew route fit pool -o router --probe 60
clew route add router openai:gpt-5-nano --data q.jsonl --reward numeric -o larger
clew route evolve router pool --world household -o evolved
"""
SHORT = "Find whether to choose among models by question, and fit a router."
command = Ordered("route", help=HELP, short_help=SHORT)
