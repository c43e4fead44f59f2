"""``clew.toml``: what a project says once, so that no line has to: its store, world, model, agent, tools and more.

The group of verbs loads it before a verb is parsed and gives it to click as defaults, so that help shows them and the
command line goes before them. Nothing here executes what the file names.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from clew.cli.shared import common
from clew.core.errors import BadInput
from clew.core.sources import file_of, moved

NAME = "clew.toml"
MOST = 64_000  # bytes
MOVED = "moved"  # the table that says where files lie now
PROJECT = "clew.project"  # what click's context calls the project in force
COLLECTING = ("run", "train", "tune", "eval")
"""The verbs whose options may stand at the top of the file."""
ONLY_STORE = (
    "quickstart", "gateway", "import", "fork", "resume", "serve", "bench", "draft", "diagnose", "gate", "kernels",
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

    def use(self) -> None:
        """Let files be found where the project says that they lie now.

        Raises:
            BadInput: nothing lies there.
        """
        for old, new in self.moved.items():
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
        known = {"store"}.union(*(named(common.load_verb(one)) for one in COLLECTING))
        self._refuse(self.top, known, "no option has that name")
        self._refuse(self.tables, set(group.list_commands(context)), "there is no verb of that name")
        for table in self.tables if not verb else {verb} & self.tables.keys():
            command = group.get_command(context, table)
            assert command is not None
            self._check_table(self.tables[table], command, table)

    def _check_table(self, table: Mapping[str, Any], command: click.Command, where: str) -> None:
        inner = command.commands if isinstance(command, click.Group) else {}
        values = {key: value for key, value in table.items() if key not in inner}
        self._refuse(values, {*named(command), *inner}, f"`clew {where}` has no option of that name")
        for key in table.keys() & inner.keys():
            if not isinstance(table[key], dict):
                raise BadInput(f"{self.path}: {key!r} of [{where}] is no table", remedy=f"Write [{where}.{key}].")
            self._check_table(table[key], inner[key], f"{where} {key}")

    def _refuse(self, given: Mapping[str, Any], known: set[str], why: str) -> None:
        for key in given:
            if _plain(key) not in known:
                near = difflib.get_close_matches(_plain(key), sorted(known), 1)
                remedy = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(sorted(known))}."
                raise BadInput(f"{self.path}: {key!r} is not known: {why}", remedy=remedy)

    def defaults(self, verb: str, command: click.Command) -> Defaults:
        """What the file says for the options of a verb, by the names of the verb's function."""
        top = {key: value for key, value in self.top.items() if verb not in ONLY_STORE or key == "store"}
        return self._for(command, top, self.tables.get(verb, {}))

    def _for(self, command: click.Command, top: Mapping[str, Any], table: Mapping[str, Any]) -> Defaults:
        inner = command.commands if isinstance(command, click.Group) else {}
        said = {**top, **{_plain(key): value for key, value in table.items() if key not in inner}}
        if "models" in named(command) and "model" in said:
            said.setdefault("models", [said["model"]])
        found = Defaults()
        for key, param in named(command).items():
            if key in said:
                found[str(param.name)] = self._value(key, said[key], param)
        for name, one in inner.items():
            found.verbs[name] = self._for(one, top, table.get(name, {}))
        return found

    def _value(self, key: str, value: Any, param: click.Parameter) -> Any:
        """A value as click takes it from a line: text, except for switches and for options that may be repeated."""
        if isinstance(value, list):
            return tuple(self._word(key, one) for one in value)
        if isinstance(value, dict):
            return json.dumps(value)
        if getattr(param, "is_flag", False):
            return value
        return (self._word(key, value),) if param.multiple or param.nargs == -1 else self._word(key, value)

    def _word(self, key: str, value: Any) -> str:
        text, root = str(value), self.path.parent
        place = file_of(text) or text
        if (key.rstrip("s") not in PLACES and key not in PLACES) or os.path.isabs(place) or root == Path.cwd():
            return text
        is_place = (key == "store" and text != ":memory:") or bool(file_of(text)) or (root / text).exists()
        return f"{root / place}{text[len(place) :]}" if is_place else text


class Defaults(dict[str, Any]):
    """The defaults of a verb's options, and those of the verbs of a group by name: click asks for both by ``get``."""

    def __init__(self) -> None:
        super().__init__()
        self.verbs: dict[str, Defaults] = {}

    def get(self, key: str, default: Any = None) -> Any:
        """As ``dict.get``; a verb of the group goes before an option."""
        return self.verbs[key] if key in self.verbs else super().get(key, default)


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
        return self.project.defaults(key, command)


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
