"""clew audit: a group of verbs, one file each (``audit_<verb>.py``), loaded when named."""

from __future__ import annotations

import importlib

import click

NAMES = ("decay", "why")


class Audits(click.Group):
    """The verbs of ``clew audit``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in NAMES:
            return None
        found = importlib.import_module(f"clew.cli.audit_{cmd_name}").command
        assert isinstance(found, click.Command)
        return found


command = Audits(
    "audit",
    help="""Audits of agents and of what they are built on.

    \b
    clew audit decay
    clew audit why 4fzk2w --does 'refund'
    """,
    short_help="Find out whether rules survive compaction, and why an agent did something.",
)
