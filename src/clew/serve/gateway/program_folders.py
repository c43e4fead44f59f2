"""The folders that programs of the gateway work in: one for all new runs, a fresh one for each fork and replay.

``clew gateway --workspace`` has the files of new runs kept at each request; with ``--into`` those of a run's beginning
are put into a fresh folder for its program to start in, and compared with the record at each request that is answered
from it. The program's own home, where it has one, is kept at the beginning and put back with them. A recorded run must
never be changed, and no folder is filled that is not fresh.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from clew.core.errors import UnknownName
from clew.serve.gateway.beginnings import BEGIN, HOME, Beginning, beginning
from clew.serve.gateway.run_files import noted
from clew.serve.gateway.session import Session
from clew.serve.noted_files import LEFT_OUT, METHOD, Files
from clew.serve.published.published_agents import LOGS
from clew.store import Keeper, Run
from clew.store.protocol import Tables
from clew.worlds.workspace import Bounds, Scan, TreeShelf, restore
from clew.worlds.workspace.tree_changes import changes
from clew.worlds.workspace.tree_states import CACHES

DATES = ("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE")
INDEX = ".git/index"  # notes times and inodes, which no copy has in common
SMALL = Bounds(file=64 << 20, total=256 << 20, entries=50_000)  # of a home, which holds settings and caches


class ProgramFolders:
    """The folders by the name of a run.

    Args:
        shelf: where snapshots lie.
        folder: the one that programs of new runs work in; None: new runs are recorded without files.
        tell: is told of each recorded request whether the files were as recorded.
        home: what such a program has for a home of its own and for temporary files.
        facts: what else its beginning is told by: see ``beginnings.facts``.

    Raises:
        WorldError: the home holds too much to be kept.
    """

    def __init__(
        self,
        shelf: TreeShelf,
        folder: Path | None,
        tell: Callable[[str], None],
        *,
        home: Path | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        self.shelf, self.folder, self._tell, self.facts = shelf, folder, tell, dict(facts or {})
        self.date = f"@{int(time.time())} +0000"
        self._scans = {"": Scan(folder, shelf)} if folder is not None else {}
        self._known: dict[str, dict[str, Files]] = {}
        self._begun = _told(self._scans[""]) if folder is not None else {}
        self._home = _told(Scan(home, shelf, SMALL)) | {"folder": str(home)} if home is not None else {}
        self._one = asyncio.Lock()

    def put_back(self, run: Run, name: str, place: Path, home: Path) -> Beginning:
        """Fill a fresh folder with what a run began with, for the program of the session ``name``, and another one,
        ``home``, with the home that it had, if it had one of its own.

        Raises:
            UnknownName: the run was recorded without its files. BadInput: the folder is not fresh.
        """
        rows = [*_rows(run.store, dict.fromkeys([*(call.run for call in run.calls), run.id]))]
        begun = {params: data for params, data in rows if params in (BEGIN, HOME)}
        if BEGIN not in begun:
            remedy = "Record with `clew gateway --workspace FOLDER -- PROGRAM`."
            raise UnknownName(f"run {run.id} was recorded without the files that it began with", remedy=remedy)
        found = beginning(begun[BEGIN], begun.get(HOME))
        restore(self.shelf, found.files.tree, place, root=found.files.root)
        if found.home is not None:
            restore(self.shelf, found.home.tree, home, root=found.home.root)
        self._known[name] = {params: Files.read(0, data) for params, data in rows if params not in begun}
        self._scans[name] = Scan(place, self.shelf)
        return found

    async def at_request(self, store: Keeper, session: Session, number: int, *, live: bool) -> None:
        """Keep the files at a request that nothing answers yet; at one that the record answers, compare them."""
        scan = self._scans.get(session.name) or self._scans.get("")
        if scan is None:
            return
        async with self._one:
            told = await asyncio.to_thread(_told, scan)
        in_place = session.instead is not None and session.instead.exchange.number == number
        if not live or in_place:
            self._compare(session.name, f"{number:08x}", str(told["tree"]), f"request {number}")
        if not live:
            return
        rows = [noted(session.run, number, told)]
        if number == 0 and self._begun:
            about = {"folder": str(self.folder), "cwd": os.getcwd(), "date": self.date}
            rows.append(noted(session.run, BEGIN, {**self._begun, **about, "facts": self.facts}))
            rows += [noted(session.run, HOME, self._home)] if self._home else []
        store.annotate(rows)

    async def at_end(self, store: Keeper, session: Session) -> None:
        """Keep the files as a program left them, or compare them with those that a replayed run left."""
        scan = self._scans.get(session.name) or self._scans.get("")
        if scan is None:
            return
        told = await asyncio.to_thread(_told, scan)
        if session.frozen:
            self._compare(session.name, "end", str(told["tree"]), "the end")
        else:
            store.annotate([noted(session.run, "end", told)])

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


def _told(scan: Scan) -> dict[str, Any]:
    found = scan.snapshot()
    mode, mtime = found.root
    return {"tree": found.tree, "state": found.state, "left": len(found.left), "mode": mode, "mtime": mtime}


def differing(shelf: TreeShelf, recorded: str, now: str) -> list[str]:
    """Paths whose content, kind or mode differs between two snapshots, those outside of git's own folders first.

    Git's index and Python's caches, which hold times, are left out, and so are the logs that agents keep of themselves.
    """
    found = [path for path in changes(shelf, recorded, now) if not _of_itself(path)]
    return sorted(found, key=lambda path: (".git" in path.split("/"), path))


def _of_itself(path: str) -> bool:
    cached = path.endswith((INDEX, ".pyc")) or bool({*path.split("/")} & {*CACHES})
    return cached or bool(LOGS.fullmatch(path))


def pinned(date: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that pin git's dates, so that a program that commits again makes the same commits."""
    return {name: date for name in DATES if date and name not in environment}
