"""What every store offers beyond ``core.protocols.Store``: names, claims, upkeep, small tables."""

from __future__ import annotations

import base64
import difflib
import os
import re
import secrets
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput, LeaseHeld, UnknownName
from clew.core.protocols import Store
from clew.core.records import Annotation, Call, Fault, Node, Report
from clew.core.values import F32

if TYPE_CHECKING:
    from clew.store.run import Run
    from clew.store.summary import Folds, Page, Summary
    from clew.store.upkeep import Burial, Garbage

Place = tuple[str, str, int, bytes, str, str, str, str]  # key of an annotation


class Outcomes(NamedTuple):
    """Packed outcomes of one sampling plan: seeds int64 [n], outcomes float32 [n], costs float32 [n] (US dollars)."""

    seeds: npt.NDArray[np.int64]
    outcomes: npt.NDArray[np.float32]
    costs: npt.NDArray[np.float32]


class Range(NamedTuple):
    """The least and greatest value of a method on one run's targets of a kind, in one scope; ``n`` targets have one."""

    method: str
    target: str
    scope: str
    low: float
    high: float
    n: int


class Keeper(Store, Protocol):
    """A whole store: what each implements in its own way, and below it what all share."""

    def run_ids(self) -> list[str]: ...
    def groups(self) -> list[str]: ...
    def each_node(self) -> Iterator[Node]: ...
    def node_keys(self) -> list[bytes]: ...
    def blob_keys(self) -> list[bytes]: ...
    def put_call(self, run: str, call: Call, *, owner: str = "") -> None: ...
    def tag(self, run: str, name: str) -> None: ...
    def untag(self, run: str, name: str) -> None: ...
    def tags(self, run: str | None = None) -> dict[str, list[str]]: ...
    def put_report(self, report: Report, id: str = "") -> str: ...
    def reports(self) -> dict[str, Report]: ...
    def put_outcomes(
        self, method: str, cursor: str, seeds: Sequence[int], outcomes: Sequence[float], costs: Sequence[float]
    ) -> None: ...
    def outcomes(self, method: str, cursor: str) -> Outcomes: ...
    def outcome_places(self) -> list[tuple[str, str]]: ...
    def put_metrics(self, training: str, step: int, values: Mapping[str, float]) -> None: ...
    def metrics(self, training: str) -> dict[int, dict[str, float]]: ...
    def trainings(self) -> list[str]: ...
    def progress(self) -> dict[str, tuple[int, int]]: ...
    def leased(self) -> list[str]: ...
    def thread(self, tip: bytes, stop: bytes = b"", limit: int | None = None) -> list[Node]: ...
    def nodes(self, keys: Iterable[bytes]) -> dict[bytes, Node]: ...
    def annotations(
        self,
        runs: Sequence[str] | None = None,
        method: str | None = None,
        target: str | None = None,
        scope: str | None = None,
        seqs: tuple[int, int] | None = None,
    ) -> list[Annotation]: ...
    def annotated(self, method: str) -> set[str]: ...
    def ranges(self, run: str) -> list[Range]: ...
    def conversations(self, run: str) -> list[int]: ...
    def keys(self, run: str) -> list[bytes]: ...
    def numbers(self, run: str, name: str) -> dict[int, float]: ...
    def group_names(self) -> dict[str, str]: ...
    def forks(self) -> dict[str, str]: ...
    def summaries(self) -> list[Summary]: ...
    def summary(self, run: str) -> Summary: ...
    def page(self, query: str = "", limit: int | None = None, start: int = 0) -> Page: ...
    def folds(self, query: str = "", limit: int | None = None, start: int = 0) -> Folds: ...
    def changed(self, since: int | None = None) -> tuple[int, list[str]]: ...
    def search(self, words: Sequence[str]) -> set[str]: ...
    def bury(self, burial: Burial) -> None: ...
    def tombstones(self) -> dict[str, bytes]: ...
    def used_blobs(self, runs: set[str]) -> set[bytes]: ...
    def remove(self, runs: Iterable[str], nodes: Iterable[bytes], blobs: Iterable[bytes]) -> None: ...
    def check(self) -> list[Fault]: ...
    def rebuild(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, name: str) -> Run:
        """The run meant by an id, a unique prefix or a tag.

        Raises:
            UnknownName, BadInput: none is meant, or several are.
        """
        from clew.store.run import Run

        return Run(self, resolve(self, name))

    def runs(self, query: str = "", limit: int | None = None) -> list[Run]:
        """The runs a query selects, newest first unless it sorts (see ``clew.store.query``)."""
        from clew.store.run import Run

        return [Run(self, run) for run in self.find(query, limit)]

    def find(self, query: str = "", limit: int | None = None) -> list[str]:
        """Ids of the runs a query selects, newest first unless it sorts.

        Raises:
            BadQuery: the query does not parse; the message names the term and its position.
        """
        return [row.run for row in self.page(query, limit).rows]

    def verify(self, rebuild: bool = False) -> list[Fault]:
        """Derive every key anew and check every rule of the record; empty for a sound store.

        Args:
            rebuild: also throw the derived tables away; they are filled again when they are next read.
        """
        from clew.store.verify import faults

        self.commit()
        if rebuild:
            self.rebuild()
        return [*self.check(), *faults(self)]

    def merge(self, other: Keeper) -> dict[str, int]:
        """Take in everything another store holds, by global id; returns how many of each kind were new."""
        from clew.store.upkeep import merge

        return merge(self, other)

    def redact(self, target: str) -> list[str]:
        """Put a tombstone on a Call (``run@seq``) or node (hex key) and on its repetitions; returns their places."""
        from clew.store.upkeep import redact

        return redact(self, target)

    def gc(self, dry_run: bool = True) -> Garbage:
        """What no tag, group, report or live run reaches; removed unless ``dry_run``."""
        from clew.store.upkeep import collect

        return collect(self, dry_run)


def new_id() -> str:
    """A global run or group id: 60 random bits as 12 characters a-z2-7, safe in queries, cursors and file names."""
    return base64.b32encode(secrets.token_bytes(8)).decode().lower()[:12]


def check_name(name: str) -> str:
    """A tag, or any other name that queries and the shell must carry unquoted.

    Raises:
        BadInput: it is empty or has other characters than letters, digits and ``_ . / -``.
    """
    if not re.fullmatch(r"[\w][\w./-]*", name):
        raise BadInput(f"{name!r} cannot be a name", remedy="Use letters, digits and _ . / - only.")
    return name


def check_annotation(row: Annotation) -> None:
    """What no store can hold.

    Raises:
        BadInput: NaN, where absence is meant.
    """
    if row.value is not None and row.value != row.value:
        raise BadInput(
            f"annotation {row.method!r} of {row.run}@{row.seq} is NaN", remedy="Leave out what has no value."
        )


def place(a: Annotation) -> Place:
    """What an annotation is keyed by (DESIGN.md rule 11): writing the same place again replaces it."""
    return (a.target, a.run, a.seq, a.node, a.method, a.version, a.params, a.scope)


def pack_outcomes(seeds: Sequence[int], outcomes: Sequence[float], costs: Sequence[float]) -> Outcomes:
    """Arrays of one length.

    Raises:
        BadInput: lengths differ.
    """
    if not len(seeds) == len(outcomes) == len(costs):
        raise BadInput(f"{len(seeds)} seeds, {len(outcomes)} outcomes and {len(costs)} costs are no table")
    return Outcomes(np.asarray(seeds, np.int64), np.asarray(outcomes, np.float32), np.asarray(costs, np.float32))


def owner_name() -> str:
    """Names this process as the holder of leases: host, process id, and a random part."""
    return f"{_host()}:{os.getpid()}:{new_id()}"


def _host() -> str:
    """This machine, and where its process ids hold: containers that share a file may share a host name."""
    space = Path("/proc/self/ns/pid")
    return socket.gethostname() + (f"/{space.stat().st_ino}" if space.exists() else "")


def gone(owner: str) -> bool:
    """Whether a lease's owner is a process of this host that no longer lives."""
    host, _, rest = owner.partition(":")
    process = rest.partition(":")[0]
    if host != _host() or not process.isdigit():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def held(run: str, holder: str, until: float) -> LeaseHeld:
    """The error of a run that somebody else may write."""
    left = until - time.time()
    when = f"Its lease ends in {left:.0f} s; wait" if left > 0 else "Take the lease again"
    return LeaseHeld(f"run {run} is being written by {holder}", remedy=f"{when}, or stop that process.")


def rewards(store: Store, runs: Sequence[str] | None = None) -> dict[str, float]:
    """The judge's reward of each judged run; of several versions the highest counts."""
    found = sorted(store.annotations(runs, "reward", "run"), key=lambda a: (a.version, a.params, a.scope))
    return {a.run: a.value for a in found if a.value is not None}


def resolve(store: Keeper, text: str) -> str:
    """The run id meant by a full id, a unique prefix of one, or a tag that one run has.

    Raises:
        UnknownName: no run is meant; the remedy lists near names.
        BadInput: several are.
    """
    text = text.strip()
    with suppress(UnknownName):
        return store.row(text).id
    ids, tags = store.run_ids(), store.tags()
    found = tags.get(text) or [run for run in ids if text and run.startswith(text)]
    if len(found) == 1:
        return found[0]
    if found:
        raise BadInput(f"{text!r} means {len(found)} runs", remedy=f"Write more of the id: {some(found)}.")
    near = difflib.get_close_matches(text, [*ids, *tags], 3) or ids[-3:]
    raise UnknownName(
        f"no run is called {text!r} in {store.path}",
        remedy=f"Near names: {some(near)}. `clew log` lists all." if near else "The store holds no runs yet.",
    )


def ranges(rows: Iterable[Annotation]) -> list[Range]:
    """What annotations reach from and to, by method, target and scope."""
    found: dict[tuple[str, str, str], Range] = {}
    for a in rows:
        values = [] if a.values is None else a.values[~np.isnan(a.values)].tolist()
        if a.value is not None:
            values.append(a.value)
        if values:
            place = (a.method, a.target, a.scope)
            known = found.get(place, Range(*place, values[0], values[0], 0))
            found[place] = Range(*place, min(known.low, *values), max(known.high, *values), known.n + 1)
    return [found[place] for place in sorted(found)]


def mean(values: F32 | None) -> float | None:
    """The mean of what a Call holds per token; None where it holds nothing."""
    return float(values.mean()) if values is not None and len(values) else None


def some(names: Sequence[str], limit: int = 6) -> str:
    """The first few of a list, for a message."""
    return ", ".join(names[:limit]) + (", ..." if len(names) > limit else "")
