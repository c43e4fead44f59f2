"""clew world: a group; entry points of ``clew.commands`` bring its verbs, ``world VERB``."""

from clew.cli.shared.common import Ordered

HELP = """Fit a model of a world, try agents in a world that a model makes up, and hold it against the real one.

\b
clew world fit world=shell --model scratch -o shell-model
clew world eval shell-model --against shell
clew world turns world=shell -o turns.jsonl
clew world tools desk -o tools.json
clew run tool_user --world "simulated(world='desk', model='URL#NAME')"
clew world check RUN
"""
SHORT = "Fit a model of a world, and check a world that a model makes up."
command = Ordered("world", help=HELP, short_help=SHORT)
