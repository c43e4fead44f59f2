"""The contract of verbs that packages bring by the group ``clew.commands``, as a check that anyone can run.

    from clew.cli.contract import check_command
    check_command("audit spread")

It raises AssertionError with a sentence on what is broken.
"""

from __future__ import annotations

import sys

import click
from click.testing import CliRunner

from clew.cli import verbs
from clew.cli.shared.common import load_verb

HEAVY = ("torch", "transformers", "scipy", "pandas")


def check_command(name: str) -> None:
    """Load a verb, ask for its help, and give it an option that it does not have.

    Run it in a process that has loaded none of the packages of ``HEAVY``: help must load none.

    Args:
        name: of the entry point, as one types it: ``serve``, or ``audit why``.

    Raises:
        BadInput: the verb does not load. UnknownName: there is no verb of that name.
    """
    before = set(HEAVY) & sys.modules.keys()
    command = load_verb(name)
    line = command.get_short_help_str(90)
    assert line, f"{name}: no help line; give it short_help"
    assert len(line) <= 66, f"{name}: its help line takes more than one line of 80 columns"
    hidden = [it.name for it in command.params if isinstance(it, click.Option) and not (it.help or it.hidden)]
    assert not hidden, f"{name}: help does not explain {', '.join(map(str, hidden))}"
    told = CliRunner().invoke(verbs, [*name.split(), "--help"])
    assert told.exit_code == 0, f"{name}: --help ends with exit code {told.exit_code}"
    loaded = set(HEAVY) & sys.modules.keys() - before
    assert not loaded, f"{name}: its help loads {', '.join(sorted(loaded))}; import that where it is used"
    refused = CliRunner().invoke(verbs, [*name.split(), "--no-such-option"])
    assert refused.exit_code == 2, f"{name}: an unknown option is no usage error: exit code {refused.exit_code}"
