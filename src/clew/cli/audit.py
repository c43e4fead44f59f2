"""clew audit: a group of verbs, one file each (``audit_<verb>.py``), loaded when named."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

import click


class Audits(click.Group):
    """Verbs of ``clew audit``; one whose file is absent is not there."""

    NAMES = ("decay", "why")

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in self.NAMES if find_spec(f"clew.cli.audit_{name}")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        found = importlib.import_module(f"clew.cli.audit_{cmd_name}").command
        assert isinstance(found, click.Command)
        return found


command = Audits(
    "audit",
    help="Audits of agents: one verb each.",
    short_help="Find out whether rules survive compaction, and why an agent did something.",
)
