"""Python files that references name: loaded once as they are, known by their digest, found where they were moved to.

The registry, agents and tools load files here. A record names a file by its whole path; ``moved`` says where a file or
a folder lies now that lay elsewhere when a run was made. Nothing here looks for a file on its own: a file is executed
only where its path, or what the user said of it, leads.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType

from clew.core.errors import BadInput

_moved: dict[str, str] = {}


def moved(old: str | Path, new: str | Path) -> None:
    """Say that a file or folder, named in records as ``old``, lies at ``new`` now. Both become whole paths.

    Raises:
        BadInput: there is nothing at ``new``.
    """
    check_there(old, new)
    _moved[os.path.abspath(old)] = os.path.abspath(new)


def check_there(old: str | Path, new: str | Path) -> None:
    """See that something lies where a file or folder is said to have moved.

    Raises:
        BadInput: there is nothing at ``new``.
    """
    if not Path(new).exists():
        raise BadInput(f"there is nothing at {new}, to which {old} is said to have moved", remedy="Name what is there.")


def placed(place: str | Path) -> str:
    """The whole path of a file as it is now: the longest path of ``moved`` that begins it is replaced."""
    path = os.path.abspath(place)
    for old in sorted(_moved, key=len, reverse=True):
        if path == old or path.startswith(f"{old}{os.sep}"):
            return _moved[old] + path[len(old) :]
    return path


def file_digest(place: str | Path) -> str:
    """16 hex digits that name what a file says; empty where it cannot be read."""
    try:
        return hashlib.blake2b(Path(placed(place)).read_bytes(), digest_size=8).hexdigest()
    except OSError:
        return ""


def digests(refs: Iterable[str]) -> dict[str, str]:
    """The files among references, by whole path, with the digests of what was loaded, else of what they say now."""
    files = {os.path.abspath(place) for ref in refs if (place := file_of(ref))}
    return {place: digest for place in sorted(files) if (digest := _loaded(placed(place)) or file_digest(place))}


def _name(path: str) -> str:
    return f"clew_file_{hashlib.sha1(path.encode()).hexdigest()[:8]}"


def _loaded(path: str) -> str:
    return str(getattr(sys.modules.get(_name(path)), "_clew_digest", ""))


def is_file_module(module: ModuleType) -> bool:
    """Whether ``load_file`` made it: its name means nothing to another process, and its file does."""
    return hasattr(module, "_clew_digest")


def changed(known: Mapping[str, str]) -> list[str]:
    """Of files with the digests that they had, those that say something else now; a file that is gone is not one."""
    return [place for place, digest in known.items() if file_digest(place) not in ("", digest)]


def file_of(ref: str) -> str:
    """The file that a reference ``file.py:Name(...)`` names; empty where it names none."""
    place, colon, _ = ref.partition("(")[0].rpartition(":")
    return place if colon and place.endswith(".py") else ""


def load_file(place: str | Path) -> ModuleType:
    """A Python file as a module of its own, executed once as long as it says the same.

    Modules beside it can be imported by name, as where it is run as a program; installed packages come first.

    Raises:
        ImportError: there is no such file. Whatever the file raises.
    """
    path, digest = placed(place), file_digest(place)
    if not digest:
        raise ImportError(f"no file {path}" if not Path(path).exists() else f"the file {path} cannot be read")
    name = _name(path)
    if _loaded(path) == digest:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    if (folder := os.path.dirname(path)) not in sys.path:
        sys.path.append(folder)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    vars(module)["_clew_digest"] = digest
    return module


def load_named(name: str) -> ModuleType:
    """A module by its name: an installed one, else one of the present folder, which is looked into only now.

    A folder of somebody else's must not stand on the path of every line: libraries try to import what is not
    installed, and would find a file of that name in it.

    Raises:
        ImportError: there is no such module. Whatever it raises as it is executed.
    """
    top = name.partition(".")[0]
    if top not in sys.modules and importlib.util.find_spec(top) is None and (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
        importlib.invalidate_caches()
    return importlib.import_module(name)


def gone(place: str) -> str:
    """What to do about a file that is not there: a remedy, or nothing where it is there."""
    path = placed(place)
    if Path(path).exists():
        return ""
    if not os.path.isabs(place):
        return f"It was looked for at {path}. Write path/file.py:NAME, seen from {Path.cwd()}."
    return (
        f"It was looked for at {path}. If it moved, say where to: `clew --moved {place}=NEW ...`, "
        f'or in clew.toml, under [moved], "{place}" = "NEW"; a folder may be named so too.'
    )
