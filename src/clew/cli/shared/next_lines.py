"""Lines to type next, as verbs print them: built from the options of the verb they name, and quoted for a shell.

A printed line works as it is printed: it names the store of the present line, and whatever else is not a default.
"""

from __future__ import annotations

import re
from typing import Any

import click

from clew.cli.shared import common, project
from clew.core.printable import quoted, store_option

MENTION = re.compile(r"`clew ([^`]+)`")


def command_line(verb: str, *words: object, **options: object) -> str:
    """The command line of a verb; an option that is None or has its default, of clew.toml if there, is left out.

    Args:
        verb: as it is typed, ``audit why``.
        options: by their names in the verb's function. The store is that of the present line.
    """
    known = {param.name: param for param in command_of(verb).params if isinstance(param, click.Option)}
    if "store_path" in known:
        options.setdefault("store_path", present_store())
    said = said_by_project(verb)
    typed = ["clew", *verb.split(), *map(str, words)]
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
    return " ".join(map(quoted, typed))


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
    from clew.cli import VERBS

    said = project.present()
    if said is not None and "store" in said.top:
        named_store = "" if store == said_by_project("log").get("store_path") else f" --store {quoted(store or '')}"
    else:
        named_store = store_option(store or "")
    if not named_store:
        return text

    def named(found: re.Match[str]) -> str:
        words = found[1].split()
        if words[0] not in VERBS or "--store" in words or "--help" in words:
            return found[0]
        command = common.load_verb(words[0])
        if isinstance(command, click.Group) and len(words) > 1:
            command = command.get_command(click.Context(command), words[1]) or command
        takes = any(param.name == "store_path" for param in command.params)
        return f"`clew {found[1]}{named_store}`" if takes else found[0]

    return MENTION.sub(named, text)
