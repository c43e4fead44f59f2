"""The folders that programs of the gateway work in: one for all new runs, a fresh one for each fork and replay.

``clew gateway --workspace`` has the files of new runs kept at each request; with ``--into`` those of a run's beginning
are put into a fresh folder for its program to start in, and compared with the record at each request that is answered
from it. A recorded run must never be changed, and no folder is filled that is not fresh.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from clew.core.errors import BadRecord, UnknownName
from clew.serve.gateway.run_files import noted
from clew.serve.gateway.session import Session
from clew.serve.noted_files import LEFT_OUT, METHOD, Files
from clew.store import Keeper, Run
from clew.store.protocol import Tables
from clew.worlds.workspace import Scan, TreeShelf, restore
from clew.worlds.workspace.tree_changes import changes
from clew.worlds.workspace.tree_states import CACHES

BEGIN = "begin"
DATES = ("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE")
INDEX = ".git/index"  # notes times and inodes, which no copy has in common


class Beginning(NamedTuple):
    """What a run's program began with.

    folder: where the files lay. cwd: where it was started. date: git's, as pinned.
    """

    files: Files
    folder: str
    cwd: str
    date: str


class ProgramFolders:
    """The folders by the name of a run.

    Args:
        shelf: where snapshots lie.
        folder: the one that programs of new runs work in; None: new runs are recorded without files.
        tell: is told of each recorded request whether the files were as recorded.
    """

    def __init__(self, shelf: TreeShelf, folder: Path | None, tell: Callable[[str], None]) -> None:
        self.shelf, self.folder, self._tell = shelf, folder, tell
        self.date = f"@{int(time.time())} +0000"
        self._scans = {"": Scan(folder, shelf)} if folder is not None else {}
        self._known: dict[str, dict[str, Files]] = {}
        self._begun = self._told(self._scans[""]) if folder is not None else {}
        self._one = asyncio.Lock()

    def put_back(self, run: Run, name: str, place: Path) -> Beginning:
        """Fill a fresh folder with what a run began with, for the program of the session ``name``.

        Raises:
            UnknownName: the run was recorded without its files. BadInput: the folder is not fresh.
        """
        rows = [*_rows(run.store, dict.fromkeys([*(call.run for call in run.calls), run.id]))]
        begun = next((data for params, data in rows if params == BEGIN), None)
        if begun is None:
            remedy = "Record with `clew gateway --workspace FOLDER -- PROGRAM`."
            raise UnknownName(f"run {run.id} was recorded without the files that it began with", remedy=remedy)
        found = beginning(begun)
        restore(self.shelf, found.files.tree, place, root=found.files.root)
        self._known[name] = {params: Files.read(0, data) for params, data in rows if params != BEGIN}
        self._scans[name] = Scan(place, self.shelf)
        return found

    async def at_request(self, store: Keeper, session: Session, number: int, *, live: bool) -> None:
        """Keep the files at a request that nothing answers yet; at one that the record answers, compare them."""
        scan = self._scans.get(session.name) or self._scans.get("")
        if scan is None:
            return
        async with self._one:
            told = await asyncio.to_thread(self._told, scan)
        if not live:
            self._compare(session.name, f"{number:08x}", str(told["tree"]), f"request {number}")
            return
        rows = [noted(session.run, number, told)]
        if number == 0 and self._begun:
            about = {"folder": str(self.folder), "cwd": os.getcwd(), "date": self.date}
            rows.append(noted(session.run, BEGIN, {**self._begun, **about}))
        store.annotate(rows)

    async def at_end(self, store: Keeper, session: Session) -> None:
        """Keep the files as a program left them, or compare them with those that a replayed run left."""
        scan = self._scans.get(session.name) or self._scans.get("")
        if scan is None:
            return
        told = await asyncio.to_thread(self._told, scan)
        if session.frozen:
            self._compare(session.name, "end", str(told["tree"]), "the end")
        else:
            store.annotate([noted(session.run, "end", told)])

    def _told(self, scan: Scan) -> dict[str, Any]:
        found = scan.snapshot()
        mode, mtime = found.root
        return {"tree": found.tree, "state": found.state, "left": len(found.left), "mode": mode, "mtime": mtime}

    def _compare(self, name: str, params: str, tree: str, where: str) -> None:
        recorded = self._known.get(name, {}).get(params)
        if recorded is None:
            return
        paths = differing(self.shelf, recorded.tree, tree)
        told = f"{paths[0]} and {len(paths) - 1} more differ" if len(paths) > 1 else f"{''.join(paths)} differs"
        self._tell(f"{where}: {told} from the recorded files" if paths else f"{where}: equal files")


def _rows(store: Tables, runs: Iterable[str]) -> Iterable[tuple[str, str]]:
    """What is noted of the files of runs, by the place that it was noted at."""
    for name in runs:
        for row in store.annotations([name], METHOD):
            if not row.params.startswith(LEFT_OUT):
                yield row.params, row.data


def beginning(data: str) -> Beginning:
    """What an annotation says of a run's beginning.

    Raises:
        BadRecord: it says nothing of the kind.
    """
    files, told = Files.read(0, data), json.loads(data)
    found = Beginning(files, *(str(told.get(key, "")) for key in ("folder", "cwd", "date")))
    if not (Path(found.folder).is_absolute() and Path(found.cwd).is_absolute()) or len(found.date) > 40:
        raise BadRecord("a run's beginning that names no folder", remedy="Run `clew store verify`.")
    return found


def differing(shelf: TreeShelf, recorded: str, now: str) -> list[str]:
    """Paths whose content, kind or mode differs between two snapshots, those outside of git's own folders first.

    Git's index and Python's caches, which hold times, are left out.
    """
    found = [
        path
        for path in changes(shelf, recorded, now)
        if not path.endswith((INDEX, ".pyc")) and not {*path.split("/")} & {*CACHES}
    ]
    return sorted(found, key=lambda path: (".git" in path.split("/"), path))


def pinned(date: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that pin git's dates, so that a program that commits again makes the same commits."""
    return {name: date for name in DATES if date and name not in environment}
