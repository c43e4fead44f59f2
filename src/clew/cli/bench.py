"""clew bench: a group of verbs, one file each (``bench_<verb>.py``), loaded when named."""

from __future__ import annotations

import importlib

import click

NAMES = ("serve",)


class Benches(click.Group):
    """The verbs of ``clew bench``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in NAMES:
            return None
        found = importlib.import_module(f"clew.cli.bench_{cmd_name}").command
        assert isinstance(found, click.Command)
        return found


command = Benches(
    "bench",
    help="""Measure what is served.

    \b
    clew bench serve http://localhost:8422/v1 --users 1,8,32
    """,
    short_help="Measure a server under load: a user's speed against tokens per second in all.",
)
