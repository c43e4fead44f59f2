"""The files that are judged: those that an agent left, with the original tests in place of whatever became of them.

``Repairs`` calls it. It works on listings alone, so that no link of an agent's leads anywhere. What may switch tests
off or pass for their runner is put back or taken out: the folders of tests, each ``conftest.py``, the files of pytest's
settings, caches of compiled tests, plug-ins and start-up modules that were not there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from clew.coding.repairs.begin_trees import Leaves
from clew.coding.repository.languages import TESTS
from clew.worlds.workspace.tree_shelf import FOLDER

_SETTINGS = "conftest.py pytest.ini .pytest.ini pytest.toml .pytest.toml pyproject.toml tox.ini setup.cfg"
SETTINGS = frozenset(_SETTINGS.split())
STARTING = frozenset(("sitecustomize.py", "usercustomize.py", "sitecustomize", "usercustomize"))
CACHES = frozenset(("__pycache__", ".pytest_cache", ".hypothesis"))
COMPILED = (".pyc", ".pyo", ".pth")  # a cached test may say another thing than its source
PLUGINS = (".dist-info", ".egg-info", ".egg-link")  # by which pytest finds plug-ins
ROOTS = ("", "src", "lib")  # folders from which modules of a repository are imported


@dataclass(frozen=True, slots=True)
class Held:
    """What is put back in a task's files. files: whole paths. folders: whole folders. free: paths in them that are not,
    since the reference solution changes them."""

    files: frozenset[str]
    folders: frozenset[str]
    free: frozenset[str]

    def covers(self, path: str) -> bool:
        """Whether a path is put back."""
        first, last = path.partition("/")[0], path.rpartition("/")[2]
        if first == ".git" or last in SETTINGS or path in self.files:
            return True
        return path not in self.free and any(place in self.folders for place in _above(path))


def held(tests: Iterable[str], brought: Iterable[str], solved: Iterable[str]) -> Held:
    """What is held of a task.

    Args:
        tests: files of the tests that judge. brought: paths that the tests' patch changes. solved: paths that the
            reference solution changes.
    """
    files = frozenset((*tests, *brought))
    return Held(files, frozenset(filter(None, map(_test_folder, files))), frozenset(solved) - files)


def _test_folder(path: str) -> str:
    """The outermost folder on a path that is named as folders of tests are; empty where none is."""
    parts = path.split("/")
    at = next((n for n, part in enumerate(parts[:-1]) if part.lower() in TESTS), None)
    return "" if at is None else "/".join(parts[: at + 1])


def laid_over(last: Leaves, tests: Leaves, begin: Leaves, what: Held) -> Leaves:
    """The files to be judged.

    Args:
        last: as the agent left them. tests: the base commit with the tests that judge. begin: what the task began with.
    """
    kept = {path: entry for path, entry in last.items() if not what.covers(path) and not _planted(path, begin)}
    original = {path: entry for path, entry in tests.items() if what.covers(path)}
    original |= {path: entry for path, entry in begin.items() if path.startswith(".git/")}
    above = {place for path in original for place in _above(path)}
    for path, entry in [
        *kept.items()
    ]:  # a file or link where an original needs a folder, or what lies below an original
        if (path in above and entry.kind != FOLDER) or any(place in original for place in _above(path)):
            del kept[path]
    return kept | original


def _above(path: str) -> list[str]:
    """The folders that a path is in."""
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]


def _planted(path: str, begin: Leaves) -> bool:
    """Whether a path is new and of the kind that a program loads without being asked for it."""
    if path in begin:
        return False
    parts = path.split("/")
    return (
        any(part in CACHES or part.endswith(PLUGINS) for part in parts)
        or parts[-1].endswith(COMPILED)
        or any(part in STARTING for part in parts)
    )


def new_modules(last: Leaves, begin: Leaves, solved: Iterable[str]) -> list[str]:
    """Paths of modules and packages that are new where modules are imported from: they might stand before installed
    ones of the same name."""
    known = {_top(path) for path in (*begin, *solved)}
    found = {top for path in last if (top := _top(path)) not in known}
    return sorted(top for top in found if top and not top.startswith(".git/"))


def _top(path: str) -> str:
    """The entry of a folder of modules that a path is in; empty where it is in none."""
    first, slash, rest = path.partition("/")
    if slash and first in ROOTS:
        return f"{first}/{rest.partition('/')[0]}"
    return first
