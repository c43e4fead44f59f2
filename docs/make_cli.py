"""Writes cli.md from the help texts of the command line: python docs/make_cli.py [FILE]."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from clew.cli import verbs
from clew.cli.shared.old_spellings import OLD
from clew.cli.shared.verb_table import SECTIONS, places

HEAD = """# The command line

Made by `python docs/make_cli.py` from what `clew VERB --help` says; a test compares the two.

Exit codes: 0 done, 1 an error in Clew or a check that failed, 2 bad input, 130 interrupted. `--debug` anywhere in the
line shows the traceback of an error. The store is `./.clew/store.db`; `--store` or `CLEW_STORE` names another.
An option that does nothing in a line is refused: the sentence says what it goes with.
`CLEW_API_KEY` (else `OPENAI_API_KEY`) holds the credential of an endpoint. Runs are chosen by id, by the first letters
of one, by [tag](record.md#what-is-kept-and-what-may-go), or by a [query](query.md). `clew --help` lists the verbs to
begin with, `clew --all` every verb.
"""


def page() -> str:
    """The whole page as Markdown, at 100 columns whatever the terminal."""
    parts = [HEAD]
    for section, title in SECTIONS.items():
        names = [verb for verb, at in places().items() if at.section == section]
        parts += [f"## {title}\n"] * bool(names)
        for verb in names:
            command = verbs.get_command(click.Context(verbs), verb)
            assert command is not None
            parts.append(f"### {verb}\n\n```text\n{said(command, verb)}\n```\n")
            if isinstance(command, click.Group):
                for inner in command.list_commands(click.Context(command)):
                    found = command.get_command(click.Context(command), inner)
                    assert found is not None
                    parts.append(f"#### {verb} {inner}\n\n```text\n{said(found, f'{verb} {inner}')}\n```\n")
    rows = "\n".join(f"| `clew {old}` | `clew {new}` |" for old, new in OLD.items())
    parts.append(f"## Old spellings\n\nThey go on working and do the same.\n\n| old | today |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def said(command: click.Command, name: str) -> str:
    """The help text of a verb."""
    context = click.Context(command, info_name=f"clew {name}", terminal_width=100, max_content_width=100)
    body = command.get_help(context).rstrip().replace("  -h, --help", "  --help")
    return "\n".join(line.rstrip() for line in body.splitlines() if "Show this message and exit." not in line)


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "cli.md"
    place.write_text(page())
