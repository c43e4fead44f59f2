"""``clew.toml``: what a project says once, so that no line has to: its store, world, model, agent, tools and more.

The group of verbs loads it before a verb is parsed and gives it to click as defaults, so that help shows them and the
command line goes before them. Nothing here executes what the file names, and what is not harmless waits for a person's
word (``trust``).
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from clew.cli.shared import common
from clew.cli.shared.trust import Setting, Trust, harmless, refused
from clew.core.errors import BadInput
from clew.core.sources import check_there, file_of, moved

NAME = "clew.toml"
MOST = 64_000  # bytes
MOVED = "moved"  # the table that says where files lie now
PROJECT = "clew.project"  # what click's context calls the project in force
COLLECTING = ("run", "train", "tune", "eval")
"""The verbs whose options may stand at the top of the file."""
ONLY_STORE = (
    "quickstart", "worlds", "gateway", "import", "fork", "resume", "label", "serve", "draft", "diagnose",
    "gate", "kernels",
)  # fmt: skip
"""Verbs that go on from a record, or for which these words mean something else: the top gives them the store alone."""
PLACES = ("store", "world", "agent", "model", "tools", "credit", "reward", "data", "judge", "draft")
"""Options that may name a file or folder; one that is relative is seen from the folder of clew.toml."""


class Project:
    """What a clew.toml says. ``path`` is the file, ``top`` its keys, ``tables`` those of single verbs.

    Raises:
        BadInput: the file cannot be read, is no TOML, or has a key that no option has.
    """

    def __init__(self, path: Path) -> None:
        self.path, said = path, _read(path)
        self.moved = said.pop(MOVED, {})
        self.top = {_plain(key): value for key, value in said.items() if not isinstance(value, dict)}
        self.tables = {key: value for key, value in said.items() if isinstance(value, dict)}
        for key in ("config", "model-options", "model_options"):  # objects, as these options take them
            if isinstance(self.tables.get(key), dict):
                self.top[_plain(key)] = self.tables.pop(key)
        if not isinstance(self.moved, dict) or not all(isinstance(new, str) for new in self.moved.values()):
            remedy = 'Write "old/path.py" = "new/path.py" under it.'
            raise BadInput(f"{path}: [{MOVED}] is no table of places", remedy=remedy)

    def check_moved(self) -> None:
        """See that something lies where files are said to lie now.

        Raises:
            BadInput: nothing does.
        """
        for old, new in self.moved.items():
            check_there(self.path.parent / old, self.path.parent / new)

    def trust(self, group: click.Group) -> Trust:
        """All that the file says and that only a person may allow, for every verb."""
        context, root = click.Context(group), self.path.parent
        found = [Setting(MOVED, old, new) for old, new in self.moved.items()]
        verbs = group.list_commands(context)
        tops = [named(common.load_verb(one)) for one in (*COLLECTING, *ONLY_STORE) if one in verbs]
        for key, value in self.top.items():
            if not all(harmless(key, value, one[key], root) for one in tops if key in one):
                found.append(Setting("", key, value))
        for name, table in self.tables.items():
            if (command := group.get_command(context, name)) is not None:
                found += self._asked(table, command, name)
        return Trust(self.path, found)

    def _asked(self, table: Mapping[str, Any], command: click.Command, where: str) -> list[Setting]:
        found = list[Setting]()
        inner, params = _inner(command), named(command)
        for key, value in table.items():
            if key in inner and isinstance(value, dict):
                found += self._asked(value, _inner_verb(command, key), f"{where} {key}")
            elif (param := params.get(_plain(key))) and not harmless(_plain(key), value, param, self.path.parent):
                found.append(Setting(where, key, value))
        return found

    def allow(self, context: click.Context) -> None:
        """Ask for what the present line would take from the file, if nobody allowed it yet; then let files be found
        where the project says that they lie now.

        Raises:
            BadInput: it is not allowed.
        """
        said = context.default_map if isinstance(context.default_map, Defaults) else Defaults()
        source = click.core.ParameterSource.DEFAULT_MAP
        used = [one for name, one in said.asked.items() if context.get_parameter_source(name) is source]
        moves = {} if isinstance(context.command, click.Group) or context.info_name == "doctor" else self.moved
        used += [Setting(MOVED, old, new) for old, new in moves.items()]
        if used:
            group = context.find_root().command
            assert isinstance(group, click.Group)
            if not (trust := self.trust(group)).given:
                trust.ask(used)
        for old, new in moves.items():
            moved(self.path.parent / old, self.path.parent / new)

    def check(self, group: click.Group, verb: str = "") -> None:
        """See that every key is an option, and every table a verb; the tables of other verbs are not looked into.

        Args:
            group: of all verbs.
            verb: the one that is run; empty for all.

        Raises:
            BadInput: one is not; the remedy names near ones.
        """
        context = click.Context(group)
        verbs = set(group.list_commands(context))
        known = {"store"}.union(*(named(common.load_verb(one)) for one in COLLECTING if one in verbs))
        self._refuse(self.top, known, "no option has that name")
        self._refuse(self.tables, verbs, "there is no verb of that name")
        for table in self.tables if not verb else {verb} & self.tables.keys():
            command = group.get_command(context, table)
            assert command is not None
            self._check_table(self.tables[table], command, table)

    def _check_table(self, table: Mapping[str, Any], command: click.Command, where: str) -> None:
        inner, params = _inner(command), named(command)
        values = {key: value for key, value in table.items() if key not in inner}
        self._refuse(values, {*params, *inner}, f"`clew {where}` has no option of that name")
        for key, value in values.items():
            if (param := params.get(_plain(key))) and (what := refused(_plain(key), value, param)):
                told = f"{self.path}: {key!r} of [{where}] is {what}, which no file can give"
                raise BadInput(told, remedy=f"Take it out, and say it on the line: {param.opts[0]}.")
        for key in table.keys() & inner:
            if not isinstance(table[key], dict):
                raise BadInput(f"{self.path}: {key!r} of [{where}] is no table", remedy=f"Write [{where}.{key}].")
            self._check_table(table[key], _inner_verb(command, key), f"{where} {key}")

    def _refuse(self, given: Mapping[str, Any], known: set[str], why: str) -> None:
        for key in given:
            if _plain(key) not in known:
                near = difflib.get_close_matches(_plain(key), sorted(known), 1)
                remedy = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(sorted(known))}."
                raise BadInput(f"{self.path}: {key!r} is not known: {why}", remedy=remedy)

    def defaults(self, verb: str, command: click.Command) -> Defaults:
        """What the file says for the options of a verb, by the names of the verb's function."""
        top = {key: value for key, value in self.top.items() if verb not in ONLY_STORE or key == "store"}
        return self._for(command, top, self.tables.get(verb, {}), verb)

    def _for(self, command: click.Command, top: Mapping[str, Any], table: Mapping[str, Any], verb: str) -> Defaults:
        inner = _inner(command)
        said = {**top, **{_plain(key): value for key, value in table.items() if key not in inner}}
        if "models" in named(command) and "model" in said:
            said.setdefault("models", [said["model"]])
        found = Defaults()
        for key, param in named(command).items():
            if key in said:
                found[str(param.name)] = self._value(key, said[key], param)
                if not harmless(key, said[key], param, self.path.parent):
                    own = key in map(_plain, table)
                    found.asked[str(param.name)] = Setting(verb if own else "", key, said[key])
        for name in inner:
            found.verbs[name] = partial(self._inner_defaults, command, top, table.get(name, {}), verb, name)
        return found

    def _inner_defaults(
        self, group: click.Command, top: Mapping[str, Any], table: Mapping[str, Any], verb: str, name: str
    ) -> Defaults:
        return self._for(_inner_verb(group, name), top, table, f"{verb} {name}")

    def _value(self, key: str, value: Any, param: click.Parameter) -> Any:
        """A value as click takes it from a line: text, except for switches and for options that may be repeated."""
        if isinstance(value, list):
            return tuple(self._word(key, one) for one in value)
        if isinstance(value, dict):
            return json.dumps(value)
        if getattr(param, "is_flag", False):
            return value
        return (self._word(key, value),) if param.multiple or param.nargs == -1 else self._word(key, value)

    def _word(self, key: str, value: object) -> str:
        text, root = str(value), self.path.parent
        place = file_of(text) or text
        if (key.rstrip("s") not in PLACES and key not in PLACES) or os.path.isabs(place) or root == Path.cwd():
            return text
        is_place = (key == "store" and text != ":memory:") or bool(file_of(text)) or (root / text).exists()
        return f"{root / place}{text[len(place) :]}" if is_place else text


class Defaults(dict[str, Any]):
    """The defaults of a verb's options, and those of the verbs of a group by name: click asks for both by ``get``.
    ``verbs`` makes those of a verb of the group, whose file is not loaded before; ``asked`` are the settings that only
    a person may allow."""

    def __init__(self) -> None:
        super().__init__()
        self.verbs: dict[str, Callable[[], Defaults]] = {}
        self.asked: dict[str, Setting] = {}

    def get(self, key: str, default: Any = None) -> Any:
        """As ``dict.get``; a verb of the group goes before an option."""
        return self.verbs[key]() if key in self.verbs else super().get(key, default)


class OfVerb(dict[str, Any]):
    """The defaults of every verb, made when click asks for those of one: a verb's file is not loaded before."""

    def __init__(self, project: Project, group: click.Group, context: click.Context) -> None:
        super().__init__()
        self.project, self.group, self.context = project, group, context

    def get(self, key: str, default: Any = None) -> Any:
        """The Defaults of a verb."""
        command = self.group.get_command(self.context, key)
        if command is None:
            return default
        if key != "doctor":  # it checks all, and says what it finds
            self.project.check(self.group, key)
        found = self.project.defaults(key, command)
        if key == "doctor":  # it says what is not allowed yet, and does without
            for name in () if self.project.trust(self.group).given else found.asked:
                found.pop(name)
            found.asked.clear()
        return found


def _inner(command: click.Command) -> set[str]:
    """The names of a group's verbs, whose files are not loaded for it; none for a verb."""
    return set(command.list_commands(click.Context(command))) if isinstance(command, click.Group) else set()


def _inner_verb(group: click.Command, name: str) -> click.Command:
    assert isinstance(group, click.Group)
    found = group.get_command(click.Context(group), name)
    assert found is not None
    return found


def named(command: click.Command) -> dict[str, click.Parameter]:
    """The options and arguments of a verb, by the names that a file may use."""
    found: dict[str, click.Parameter] = {}
    for param in command.params:
        for name in param.opts if isinstance(param, click.Option) else [str(param.name)]:
            found[_plain(name.lstrip("-"))] = param
    return found


def find(start: Path | None = None) -> Path | None:
    """The clew.toml in force: of the present folder or the nearest above it, up to the repository's root, or, outside
    any repository, as far up as the folders are the user's own."""
    here = (start or Path.cwd()).absolute()
    above = [here, *here.parents]
    root = next((index for index, folder in enumerate(above) if (folder / ".git").exists()), None)
    if root is None:
        root = next((i for i, folder in enumerate(above[1:]) if folder.stat().st_uid != os.geteuid()), len(above))
    return next((folder / NAME for folder in above[: root + 1] if (folder / NAME).is_file()), None)


def present() -> Project | None:
    """The project of the present command line; None where it has none."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(PROJECT)


def _plain(key: str) -> str:
    return key.replace("-", "_")


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(MOST + 1)
        if len(data) > MOST:
            raise BadInput(f"{path} is longer than {MOST:,} bytes", remedy="Keep settings in it, and data elsewhere.")
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        remedy = 'Write TOML, as in: model = "./weights". `clew doctor` says which file is in force.'
        raise BadInput(f"{path} is not TOML: {error}", remedy=remedy) from error
