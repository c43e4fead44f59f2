"""clew world: a group of verbs, one file each (``world_<verb>.py``), loaded when named."""

import click

from clew.cli.shared.common import load_verb

VERBS = ("tools", "fit", "eval", "turns", "check")

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


class WorldVerbs(click.Group):
    """Loads a verb of the group when the verb is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load_verb(f"world_{cmd_name}") if cmd_name in VERBS else None


command = WorldVerbs("world", help=HELP, short_help=SHORT)
