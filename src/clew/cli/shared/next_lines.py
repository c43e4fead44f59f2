"""Lines to type next, as verbs print them: built from the options of the verb they name, and quoted for a shell.

A printed line works as it is printed: it names the store of the present line, and whatever else is not a default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import click

from clew.cli.shared import common, project, verb_table
from clew.core.printable import quoted, store_option

MENTION = re.compile(r"`clew ([^`]+)`")


def command_line(verb: str, *words: object, **options: object) -> str:
    """The command line of a verb; an option that is None or has its default, of clew.toml if there, is left out.

    Args:
        verb: as it is typed, ``audit why``.
        options: by their names in the verb's function. The store is that of the present line.
    """
    known = {param.name: param for param in command_of(verb).params if isinstance(param, click.Option)}
    said = said_by_project(verb)
    typed = _typed(known, words, options, said)
    if "store_path" not in options and takes_store(command_of(verb), typed):
        typed += _typed(known, (), {"store_path": present_store()}, said)
    return " ".join(map(quoted, ("clew", *verb.split(), *typed)))


def _typed(
    known: Mapping[str, click.Option], words: Sequence[object], options: Mapping[str, Any], said: Mapping[str, Any]
) -> list[str]:
    typed = [*map(str, words)]
    for name, value in options.items():
        option = known[name]
        if value is None or value == said.get(name, option.default):
            continue
        flag = option.opts[0]
        if option.is_flag:
            typed += [flag] if value else []
            continue
        for given in map(str, value if isinstance(value, tuple) else (value,)):
            typed += [f"{flag}={given}"] if given.startswith("-") else [flag, given]
    return typed


def takes_store(command: click.Command, words: Sequence[str]) -> bool:
    """Whether --store does something in a line of a verb with these words."""
    option = next((param for param in command.params if param.name == "store_path"), None)
    if not isinstance(option, common.FromProject):
        return option is not None
    context = click.Context(command)
    try:
        return option.lost(context, command.make_parser(context).parse_args([*words])[0]) is None
    except click.ClickException:  # the line is still to be filled in
        return True


def command_of(verb: str) -> click.Command:
    """The command of a verb, or of a verb of a group."""
    first, *inner = verb.split()
    found = common.load_verb(first)
    for name in inner:
        assert isinstance(found, click.Group)
        inner_verb = found.get_command(click.Context(found), name)
        assert inner_verb is not None
        found = inner_verb
    return found


def said_by_project(verb: str) -> dict[str, Any]:
    """The defaults that clew.toml gives to a verb, or to a verb of a group."""
    found = project.present()
    if found is None:
        return {}
    first, *inner = verb.split()
    said = found.defaults(first, command_of(first))
    for name in inner:
        said = said.verbs[name]()
    return said


def present_store() -> str | None:
    """The store of the present command line; None where it has none."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(common.STORE)


def with_store(text: str, store: str | None) -> str:
    """A remedy, written without knowing the store: each ``clew VERB`` in it names the store, where it takes one."""
    said = project.present()
    if said is not None and "store" in said.top:
        named_store = "" if store == said_by_project("log").get("store_path") else f" --store {quoted(store or '')}"
    else:
        named_store = store_option(store or "")
    if not named_store:
        return text

    verbs = verb_table.places()

    def named(found: re.Match[str]) -> str:
        words = found[1].split()
        if words[0] not in verbs or "--store" in words or "--help" in words:
            return found[0]
        command = common.load_verb(words[0])
        if isinstance(command, click.Group) and len(words) > 1:
            command = command.get_command(click.Context(command), words[1]) or command
        inner = 2 if isinstance(common.load_verb(words[0]), click.Group) else 1
        return f"`clew {found[1]}{named_store}`" if takes_store(command, words[inner:]) else found[0]

    return MENTION.sub(named, text)
