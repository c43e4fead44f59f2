"""Registries: names of several kinds, filled by entry points of the groups ``clew.<kind>`` and by ``register``.

References such as ``household(rooms=3)`` are parsed here. An argument is a literal; nothing is evaluated. A name may be
``path/file.py:Name``: the file is then executed, as an agent's is.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import os
import sys
import threading
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from clew.core.errors import BadInput, UnknownName
from clew.core.sources import file_of, gone, load_file

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

Kind = Literal[
    "models",
    "tasksets",
    "credits",
    "losses",
    "commands",
    "effects",
    "edits",
    "schemes",
    "formats",
    "stores",
    "executors",
    "agents",
    "tools",
    "panels",
]
METHODS: dict[str, tuple[str, ...]] = {"tasksets": ("sample", "find", "open", "judge"), "models": ("complete",)}
_local: dict[str, dict[str, Any]] = {}


def register(kind: Kind, name: str, thing: object) -> None:
    """Add a name by hand, for notebooks and tests; packages use entry points."""
    _local.setdefault(kind, {})[name] = thing


def by_hand(kind: Kind) -> dict[str, Any]:
    """What ``register`` added, by name."""
    return dict(_local.get(kind, {}))


def names(kind: Kind) -> list[str]:
    return sorted(entries(kind).names | set(_local.get(kind, {})))


def name_of(kind: Kind, place: str) -> str:
    """The name of the entry point that leads to ``module:attribute``; an empty text where none does."""
    return next((entry.name for entry in entries(kind) if entry.value == place), "")


def entries(kind: Kind) -> EntryPoints:
    """The entry points of one kind, read anew where a folder of the path has changed, as by an installation."""
    return _read(kind, tuple((place, _changed(place)) for place in sys.path))


@lru_cache(maxsize=64)
def _read(kind: Kind, path: tuple[tuple[str, int], ...]) -> EntryPoints:
    from importlib.metadata import entry_points  # slow to load, and many a process looks nothing up

    return entry_points(group=f"clew.{kind}")


def _changed(place: str) -> int:
    try:
        return os.stat(place or ".").st_mtime_ns
    except OSError:
        return 0


def lookup(kind: Kind, name: str) -> Any:
    """The thing registered under a name, or that a file defines: ``path/file.py:Name``.

    Raises:
        UnknownName: nothing has that name; the remedy lists near ones. BadInput: the file defines another thing.
    """
    if name in _local.get(kind, {}):
        return _local[kind][name]
    if file_of(name):
        return _in_file(kind, name)
    for entry in entries(kind).select(name=name):
        return entry.load()
    near = difflib.get_close_matches(name, known := names(kind), 3) or known
    remedy = f"Known: {', '.join(near) or 'none'}. What a program registers by hand only that program knows."
    raise UnknownName(f"no {kind.rstrip('s')} is called {name!r}", remedy=f"{remedy} Else write path/file.py:NAME.")


def _in_file(kind: Kind, name: str) -> Any:
    place, _, thing = name.rpartition(":")
    what = kind.rstrip("s")
    if remedy := gone(place):
        raise UnknownName(f"{what} {name!r} cannot be loaded: no file {place}", remedy=remedy)
    try:
        found = getattr(load_file(place), thing)
    except Exception as error:  # what a file raises that is executed here, of whatever kind
        told = error if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: {error}"
        remedy = f"Write path/file.py:NAME, seen from {Path.cwd()}, and mend what the error names."
        raise UnknownName(f"{what} {name!r} cannot be loaded: {told}", remedy=remedy) from error
    wanted = METHODS.get(kind, ())
    if not callable(found) or not all(hasattr(found, method) for method in wanted):
        told = f" with the method{'s' if len(wanted) > 1 else ''} {', '.join(wanted)}" if wanted else ""
        raise BadInput(f"{name!r} is no {what}", remedy=f"Name a {'class' if wanted else 'function'}{told}.")
    return found


_parsing = threading.Lock()  # CPython 3.11 counts how deep a syntax tree is for all threads together


def parse_ref(ref: str) -> tuple[str, dict[str, Any]]:
    """Split ``name(key=literal, ...)`` into name and arguments.

    Raises:
        BadInput: the text is not of that form.
    """
    name, bracket, rest = ref.strip().partition("(")
    if not bracket:
        return name, {}
    try:
        with _parsing:
            tree = ast.parse(f"f({rest}", mode="eval").body
        if name and isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args:
            named = {k.arg: ast.literal_eval(k.value) for k in tree.keywords}
            if None not in named:
                return name, {str(key): value for key, value in named.items()}
    except (SyntaxError, ValueError):
        pass
    raise BadInput(
        f"{ref!r} is not a reference", remedy='Write a name, or name(key=value), as in "household(rooms=3)".'
    )


def make_ref(name: str, arguments: dict[str, Any], defaults: dict[str, Any] | type | None = None) -> str:
    """The inverse of ``parse_ref``; arguments equal to their default, or to that of a class, are left out."""
    if isinstance(defaults, type):
        defaults = {k: p.default for k, p in inspect.signature(defaults).parameters.items()}
    shown = {k: v for k, v in sorted(arguments.items()) if defaults is None or defaults.get(k) != v}
    return f"{name}({', '.join(f'{k}={v!r}' for k, v in shown.items())})" if shown else name


def build(kind: Kind, ref: str) -> Any:
    """Look a reference up and call what is registered with its arguments.

    Raises:
        UnknownName, BadInput: no such name, or arguments it does not take.
    """
    name, arguments = parse_ref(ref)
    maker: Callable[..., Any] = lookup(kind, name)
    try:
        made = maker(**arguments)
    except TypeError as error:
        if "argument" not in str(error):
            raise
        raise BadInput(f"{ref!r}: {error}", remedy=f"{name} takes {_taken(maker)}.") from error
    if file_of(name) and kind in METHODS:  # by which another process finds it
        try:
            object.__setattr__(made, "ref", absolute(ref))
        except AttributeError:
            remedy = "Let `ref` be a plain attribute; it is set to the path of the file."
            raise BadInput(f"the `ref` of {name} cannot be set", remedy=remedy) from None
    return made


def bound(kind: Kind, ref: str) -> Callable[..., Any]:
    """The function of a reference with its arguments, as ``functools.partial``.

    Raises:
        UnknownName, BadInput: no such name, or arguments it does not take.
    """
    name, arguments = parse_ref(ref)
    maker: Callable[..., Any] = lookup(kind, name)
    try:
        inspect.signature(maker).bind_partial(**arguments)
    except TypeError as error:
        raise BadInput(f"{ref!r}: {error}", remedy=f"{name} takes {_taken(maker)}.") from error
    return partial(maker, **arguments)


def absolute(ref: str) -> str:
    """A reference as records keep it: the file that it names, if any, by its whole path."""
    name, arguments = parse_ref(ref)
    if not (place := file_of(name)):
        return ref
    return make_ref(os.path.abspath(place) + name[len(place) :], arguments)


def _taken(maker: Callable[..., Any]) -> str:
    """The arguments of what is registered, as one reads them."""
    try:
        return ", ".join(inspect.signature(maker).parameters) or "no arguments"
    except ValueError:
        return "other arguments"
