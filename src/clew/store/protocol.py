"""What each store implements, and the plain values that its methods take and return.

Every reader of a record takes ``Tables``; ``clew.store.base.Keeper`` adds the conveniences that both stores share.
Nothing here reads or writes a file.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol, get_args

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput, check_choice
from clew.core.reading import Store
from clew.core.records import Annotation, Call, Fault, GroupRow, Node, Report, RunRow, ValuedKind
from clew.store.entries import Entry, Numbered, Vector

Place = tuple[str, str, int, bytes, str, str, str, str]  # key of an annotation
# long base64, as of an image in ``extra``: redaction looks for it, SQLite keeps its bytes apart, once
PACKED = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{1022,}={0,2}", re.ASCII)


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


class Burial(NamedTuple):
    """What a redaction puts in place: emptied nodes, Calls (each with its issue digest) and run rows.

    reports: by id. entries: lines about items, each with the one that takes its place. blobs: keys of those that go
    where nothing uses them. words: texts, of which names that are no ids are freed; the other fields are filed by
    ``redaction.done``.
    """

    nodes: list[Node]
    calls: list[tuple[str, Call, bytes]]
    rows: list[RunRow]
    annotations: Sequence[Annotation] = ()
    groups: Sequence[GroupRow] = ()
    reports: Mapping[str, Report] = {}
    entries: Sequence[tuple[Entry, Entry]] = ()
    blobs: Sequence[bytes] = ()
    words: Sequence[bytes] = ()


class Summary(NamedTuple):
    """One line of a list of runs."""

    run: str
    world: str  # taskset ref
    task: str
    agent: str
    model: str
    origin: str
    parent: str  # cursor
    group: str
    seed: int
    created: float  # seconds since the epoch
    stop: str  # empty while it runs
    steps: int  # acts along the path
    calls: int
    tokens: int  # sampled along the path
    cost: float  # US dollars, own Calls
    seconds: float  # wall time of its own Calls
    reward: float | None = None  # the judge's, read afresh each time


class Page(NamedTuple):
    """Some of the runs a query selects, and how many it selects in all."""

    rows: list[Summary]
    total: int


class Folds(NamedTuple):
    """Some of the groups that hold a selected run, each with all its runs, oldest first; and how many there are.

    A run without a group stands alone.
    """

    groups: list[list[Summary]]
    total: int


class Tables(Store, Protocol):
    """A whole store, each method in the store's own way."""

    def run_ids(self) -> list[str]: ...
    def groups(self) -> list[str]: ...
    def each_node(self, but: Tables | None = None) -> Iterator[Node]: ...
    def node_keys(self, among: Sequence[bytes] | None = None) -> list[bytes]: ...
    def blob_keys(self, among: Sequence[bytes] | None = None) -> list[bytes]: ...
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
    def valued(self, method: str, op: str, bound: float) -> set[str]: ...
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
    def holding(self, words: Sequence[bytes]) -> dict[str, int]: ...
    def used_blobs(self, runs: set[str], nodes: Container[bytes] | None = None) -> set[bytes]: ...
    def remove(self, runs: Iterable[str], nodes: Iterable[bytes], blobs: Iterable[bytes]) -> None: ...
    def put_entries(self, entries: Iterable[Entry]) -> int: ...
    def entries(self, memory: str | None = None, since: int = 0) -> list[Numbered]: ...
    def memories(self) -> list[str]: ...
    def bury_entries(self, tombstones: Iterable[Entry]) -> list[str]: ...
    def forget(self, items: Iterable[str]) -> list[str]: ...
    def put_vectors(self, vectors: Iterable[Vector]) -> int: ...
    def vectors(self, model: str, items: Sequence[str]) -> list[Vector]: ...
    def check(self) -> list[Fault]: ...
    def rebuild(self) -> None: ...


def check_annotation(row: Annotation) -> None:
    """What no store can hold.

    Raises:
        BadInput: NaN, where absence is meant, or a target that is not known.
    """
    check_choice(f"annotation {row.method!r} of {row.run}@{row.seq}: target", row.target, get_args(ValuedKind))
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


def rewards(store: Store, runs: Sequence[str] | None = None) -> dict[str, float]:
    """The judge's reward of each judged run; of several versions the highest counts."""
    found = latest_last(store.annotations(runs, "reward", "run"))
    return {a.run: a.value for a in found if a.value is not None}


def stamped(rows: Iterable[Annotation]) -> list[Annotation]:
    """Values that a method files together, with the time, so that they count before all that it filed earlier."""
    now = time.time()
    alone = json.dumps({"filed": now})
    return [a._replace(data=json.dumps({**json.loads(a.data), "filed": now}) if a.data else alone) for a in rows]


@lru_cache(maxsize=4096)
def _when(data: str) -> float:
    """When values with this data were filed; 0 where they do not say."""
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return 0.0
    when = told.get("filed") if isinstance(told, dict) else None
    return float(when) if isinstance(when, int | float) else 0.0


def latest_last(of: Iterable[Annotation]) -> list[Annotation]:
    """Annotations in the order in which, of several at one place, the last counts: version, time of filing, parameters,
    scope. Of what a method filed in one scope on one run, only what was filed last is left where that is known."""
    rows = [(a, _when(a.data) if '"filed"' in a.data else 0.0) for a in of]
    newest: dict[tuple[str, str, str, str], float] = {}
    for a, when in rows:
        kind = (a.target, a.run, a.method, a.scope)
        newest[kind] = max(when, newest.get(kind, 0.0))
    left = [(a, when) for a, when in rows if when == newest[a.target, a.run, a.method, a.scope]]
    return [a for a, _ in sorted(left, key=lambda row: (row[0].version, row[1], row[0].params, row[0].scope))]


def undecided(store: Store, runs: Sequence[str]) -> str:
    """Why the first of these runs has no verdict, in the judge's words; empty where none was undecided."""
    found = {a.run: a.data for a in store.annotations(runs, "undecided", "run")}
    data = next((found[run] for run in runs if run in found), "")
    return str(json.loads(data).get("error", "")) if data else ""


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
