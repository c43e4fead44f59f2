"""Nodes, blobs, runs, Calls, groups and annotations in SQL: the tables that every effect writes.

Writes wait in memory until ``commit`` and are seen by this store's own reads at once. A commit is atomic and survives
the death of the process. A buffer that could not be written is kept, so that a later commit can succeed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from clew.core.errors import StoreError, UnknownName
from clew.core.keys import blob_key
from clew.core.records import Annotation, Call, GroupRow, Node, RunRow, Segment
from clew.store.owners import held
from clew.store.protocol import Place, Tables, check_annotation, place
from clew.store.sql.dialect import Connection, Database, replacing
from clew.store.sql.row_codec import (
    BITS,
    CALL_COLUMNS,
    KINDS,
    NODE_COLUMNS,
    RUN_COLUMNS,
    TARGETS,
    Codec,
    check_call,
    group_row,
    pack_floats,
    read_blob,
    read_group,
    readable,
    unpack_floats,
)

_TARGET = {target: no for no, target in enumerate(TARGETS)}
_END = 1 << BITS
ENDED = ("ended",)  # the mark of a run that changes no more
_TIP = f"SELECT max(at) FROM call WHERE at >= ?1 << {BITS} AND at < (?1 + 1) << {BITS}"
_OVERLAP = 64  # Calls of one run that may wait for a result at once and still be seen to get it
_DONE = f"""SELECT count(*), max(done), count(CASE WHEN done < 0 THEN 1 END) FROM call
WHERE at > ?1 - {_OVERLAP} AND at <= ?1 AND at >= ?2"""


# only an intent is ever completed; a completed Call stays as it is
_COMPLETED = f"{replacing('at', CALL_COLUMNS.partition(', ')[2])} WHERE call.done < 0"
GROUP_COLUMNS = "no, kind, task_id, runs, name"
_PLACE = "run, target, series, seq, node"
KNOWN = "ON CONFLICT DO NOTHING"
_CLAIM = """
INSERT INTO lease VALUES (?1, ?2, ?3) ON CONFLICT(run) DO UPDATE SET owner = excluded.owner, until = excluded.until
WHERE lease.owner = excluded.owner OR lease.until <= ?4"""


class Records(Database, Tables):
    """Part of a store in SQL."""

    def __init__(self) -> None:
        super().__init__()
        self._codec = Codec(self._number, self._name, self.put_blob, self.blob)
        self._nodes: dict[bytes, Node] = {}
        self._blobs: dict[bytes, bytes] = {}
        self._rows: dict[str, RunRow] = {}
        self._calls: dict[str, dict[int, Call]] = {}
        self._groups: dict[str, GroupRow] = {}
        self._annotations: dict[Place, Annotation] = {}
        self._live: dict[str, RunRow] = {}  # rows of runs that are held here, which nobody else changes
        self._made: set[str] = set()  # runs put here that nobody here has leased yet
        self._held: dict[str, str] = {}  # runs this store leased, and for whom
        self._claims: dict[str, tuple[str, float]] = {}  # first leases that wait for the commit: owner, until
        self._freed: dict[str, str] = {}  # releases that wait for the commit: owner
        self._lost: set[str] = set()  # leases of ours that another process took over
        self._cleared: set[str] = set()  # runs that nobody else held when the store last changed under us
        self._version = -1  # what `_others` said at the last commit
        self._seen: set[str] = set()  # runs known to exist

    def close(self) -> None:
        """Commit what is left and let the store go."""
        with self._lock:
            try:
                self.commit()
            finally:
                self._close()

    # content

    def put_nodes(self, nodes: Iterable[Node]) -> None:
        with self._lock:
            for node in nodes:
                self._nodes[node.key] = node

    def node(self, key: bytes) -> Node:
        with self._lock:
            node = self._nodes.get(key)
            if node is None:
                rows = self._read(f"SELECT {NODE_COLUMNS} FROM node WHERE key = ?", (key,))
                if not rows:
                    raise UnknownName(f"no node {key.hex() or '(empty key)'} in {self.path}")
                node = self._codec.read_node(rows[0])
            return node

    def put_blob(self, data: bytes) -> bytes:
        key = blob_key(data)
        with self._lock:
            self._blobs[key] = bytes(data)
        return key

    def blob(self, key: bytes) -> bytes:
        with self._lock:
            body = self._blobs.get(key)
            if body is None:
                rows = self._read("SELECT body FROM blob WHERE key = ?", (key,))
                if not rows:
                    raise UnknownName(f"no blob {key.hex()} in {self.path}")
                body = read_blob(rows[0][0])
            return body

    # runs and their Calls

    def put_run(self, row: RunRow) -> None:
        with self._lock:
            if row.id not in self._rows:
                self._rows[row.id] = row
                self._made.add(row.id)
                self._seen.add(row.id)

    def row(self, run: str) -> RunRow:
        with self._lock:
            row = self._rows.get(run) or self._live.get(run)
            if row is None:
                rows = self._read(f"SELECT {RUN_COLUMNS} FROM run WHERE no = ?", (self._known(run),))
                if not rows:
                    raise UnknownName(f"no run {run!r} in {self.path}", remedy="`clew log` lists the runs.")
                row = self._codec.read_run(rows[0])
                if run in self._held:
                    self._live[run] = row
            return row

    def run_ids(self) -> list[str]:
        with self._lock:
            found = self._read("SELECT id FROM run JOIN ident USING (no) ORDER BY no")
            return list(dict.fromkeys([*(id for (id,) in found), *self._rows]))

    def put_call(self, run: str, call: Call, *, owner: str = "") -> None:
        """File a Call, or the result of one that was an intent.

        Args:
            owner: who writes; where it is named, it must still hold the run's lease.

        Raises:
            LeaseHeld: the lease was taken over. BadInput: a value that cannot be kept. UnknownName: no such run.
        """
        check_call(run, call)
        with self._lock:
            if run in self._lost or (owner and self._held.get(run, owner) != owner):
                raise held(run, "another process", 0.0)
            if run not in self._seen:
                self.row(run)
                self._seen.add(run)
            self._calls.setdefault(run, {})[call.seq] = call

    def calls(self, run: str, start: int = 0, stop: int | None = None) -> list[Call]:
        with self._lock:
            found: list[Call] = []
            for segment in self._path(run):
                low, high = max(start, segment.start), min(_END if stop is None else stop, segment.stop)
                if low < high:
                    found += self._own(segment.run, low, high)
            return found

    def _path(self, run: str) -> tuple[Segment, ...]:
        """Whose Calls make up a run, its own last."""
        lineage = self.row(run).lineage
        return *lineage, Segment(run, lineage[-1].stop if lineage else 0, _END)

    def _places(self, run: str) -> Iterator[tuple[int, int, int]]:
        """Where the Calls of a run lie in the file: from one place up to another, and the place of a seq 0."""
        for s in self._path(run):
            no = (self._known(s.run) or 0) << BITS
            yield no + s.start, no + s.stop, no

    def _own(self, run: str, low: int, high: int) -> list[Call]:
        """Calls a run issued itself, buffered ones over committed ones."""
        no, buffered = self._known(run), self._calls.get(run)
        sql = f"SELECT {CALL_COLUMNS} FROM call WHERE at >= ? AND at < ? ORDER BY at"
        rows = [] if no is None else self._read(sql, ((no << BITS) + low, (no << BITS) + high))
        found = [self._codec.read_call(run, row) for row in rows]
        if not buffered:
            return found
        merged = {call.seq: call for call in found} | {s: c for s, c in buffered.items() if low <= s < high}
        return [merged[seq] for seq in sorted(merged)]

    def _mark(self, no: int) -> tuple[Any, ...]:
        """Differs once a Call was added to a run or one of its last got a result."""
        tip = self._read(_TIP, (no,))[0][0]
        if tip is None:
            return ()
        if self._read("SELECT kind FROM call WHERE at = ?", (tip,)) == [(KINDS.index("end"),)]:
            return ENDED
        return tip, *self._read(_DONE, (tip, no << BITS))[0]

    def put_group(self, row: GroupRow) -> None:
        with self._lock:
            self._groups[row.id] = row

    def group(self, group: str) -> GroupRow:
        with self._lock:
            row = self._groups.get(group)
            if row is None:
                rows = self._read("SELECT * FROM grp WHERE no = ?", (self._known(group),))
                if not rows:
                    raise UnknownName(f"no group {group!r} in {self.path}")
                row = read_group(group, rows[0])
            return row

    def groups(self) -> list[str]:
        with self._lock:
            found = self._read("SELECT id FROM grp JOIN ident USING (no) ORDER BY no")
            return list(dict.fromkeys([*(id for (id,) in found), *self._groups]))

    # annotations

    def annotate(self, rows: Iterable[Annotation]) -> None:
        with self._lock:
            for row in rows:
                check_annotation(row)
                self._annotations[place(row)] = row

    def annotations(
        self,
        runs: Sequence[str] | None = None,
        method: str | None = None,
        target: str | None = None,
        scope: str | None = None,
        seqs: tuple[int, int] | None = None,
    ) -> list[Annotation]:
        """Values filed under the given runs, method, target and scope; None is any. In no order that means anything.

        Args:
            seqs: only those on Calls from the first number up to but excluding the second.
        """
        where, values = ["TRUE"], []
        with self._lock:
            if runs is not None:
                numbers = [no for run in dict.fromkeys(runs) if (no := self._known(run)) is not None]
                where.append(f"run IN ({', '.join(map(str, numbers)) or 'NULL'})")
            for column, wanted in (("method", method), ("target", target), ("scope", scope)):
                if wanted is not None:
                    where.append(f"{column} = ?")
                    known = self._known(wanted) if column == "scope" else wanted
                    values.append(_TARGET.get(wanted, -1) if column == "target" else known)
            if seqs is not None:
                where.append(f"seq >= {int(seqs[0])} AND seq < {int(seqs[1])}")
            found = self._read(
                "SELECT target, run, seq, node, method, version, params, scope, value, vals, data "
                f"FROM annotation JOIN series ON series.no = series WHERE {' AND '.join(where)}",
                values,
            )
            rows = [self._annotation(row) for row in found]
            if not self._annotations:
                return rows
            any_of = None if runs is None else set(runs)
            merged = {place(a): a for a in rows}
            for at, a in self._annotations.items():
                if (
                    (any_of is None or a.run in any_of)
                    and (seqs is None or seqs[0] <= a.seq < seqs[1])
                    and all(
                        wanted is None or wanted == has
                        for wanted, has in ((method, a.method), (target, a.target), (scope, a.scope))
                    )
                ):
                    merged[at] = a
            return list(merged.values())

    def _annotation(self, row: tuple[Any, ...]) -> Annotation:
        target, run, seq, node, method, version, params, scope, value, vals, data = row
        place = (self._name(run), seq, node, version, params, self._name(scope))
        return Annotation(cast(Any, TARGETS[target]), method, value, *place, unpack_floats(vals), readable(data))

    # commit and leases

    def commit(self) -> None:
        """Make everything put so far durable, in one transaction.

        Raises:
            LeaseHeld: another process took a run over; its Calls are dropped, all else is committed.
            StoreError: a completed Call was put again with another content; it is dropped, all else is committed.
            StoreFull, StoreReadOnly: nothing was written, and all is kept for the next commit.
        """
        with self._lock:
            buffers: list[dict[Any, Any]] = [self._nodes, self._blobs, self._rows, self._calls, self._groups]
            buffers += [self._annotations, self._claims, self._freed]
            if not any(buffers):
                return
            refused: list[StoreError] = []
            with self._write() as db:
                self._fence(db, refused)
                self._write_all(db, refused)
                freed = [(self._number(run), owner) for run, owner in self._freed.items()]
                if freed:
                    db.executemany("DELETE FROM lease WHERE run = ? AND owner = ?", freed)
            for run, owner in self._freed.items():
                self._live.pop(run, None)
                if self._held.get(run) == owner:
                    del self._held[run]
            for buffer in buffers:
                buffer.clear()
            if refused:
                raise refused[0]

    def _fence(self, db: Connection, refused: list[StoreError]) -> None:
        """Drop buffered Calls of runs that another process holds. Asks the store only if others wrote since."""
        version = self._others()
        if version != self._version:
            self._version = version
            self._cleared.clear()
            self._codec.forget()
        now = self._now()
        for run, (owner, until) in self._claims.items():
            self._here(db, owner)
            if not db.execute(_CLAIM, (self._number(run), owner, until, now)).rowcount:
                self._lost.add(run)
        asked = [run for run in self._calls if run not in self._cleared]
        numbers = [self._known(run) for run in asked]
        sql = f"SELECT run, owner, until FROM lease WHERE {self._in('run')}"
        leases = {no: holder for no, *holder in db.execute(sql, (self._list(numbers),))} if asked else {}
        for run, no in zip(asked, numbers, strict=True):
            owner, until = leases.get(no, ("", 0.0))
            mine = self._held.get(run)
            if (mine is not None and owner != mine) or (mine is None and until > now):
                if mine is not None:
                    self._lost.add(run)
                del self._calls[run]
                refused.append(held(run, owner or "another process", until))
            else:
                self._cleared.add(run)

    def _write_all(self, db: Connection, refused: list[StoreError]) -> None:
        self._number_all(db, [*self._groups, *self._rows])
        groups = [group_row(self._number(group.id), group) for group in self._groups.values()]
        self._file(db, "grp", GROUP_COLUMNS, groups, replacing("no", GROUP_COLUMNS.partition(", ")[2]))
        runs = [self._codec.run(self._number(row.id), row) for row in self._rows.values()]
        self._file(db, "run", RUN_COLUMNS, runs, KNOWN)
        self._file(db, "node", NODE_COLUMNS, [self._codec.node(node) for node in self._nodes.values()], KNOWN)
        rows = [
            self._codec.call((no << BITS) + seq, call)
            for no, calls in [(self._number(run), calls) for run, calls in self._calls.items()]
            for seq, call in calls.items()
        ]
        if self._file(db, "call", CALL_COLUMNS, rows, _COMPLETED) < len(rows):
            refused += self._rewritten(db)
        self._file(db, "blob", "key, body", list(self._blobs.items()), KNOWN)
        filed = []
        for a in self._annotations.values():
            where = (self._number(a.run), _TARGET[a.target], self._series(db, a), a.seq, a.node)
            filed.append((*where, a.value, pack_floats(a.values), a.data))
        self._file(db, "annotation", f"{_PLACE}, value, vals, data", filed, replacing(_PLACE, "value, vals, data"))

    def _rewritten(self, db: Connection) -> Iterable[StoreError]:
        """Completed Calls that the buffer would have changed; the store kept its own."""
        for run, calls in self._calls.items():
            no = self._number(run) << BITS
            for seq, call in calls.items():
                (key, done) = db.execute("SELECT key, done FROM call WHERE at = ?", (no + seq,)).fetchone()
                if (key, done) != (call.key, call.done):
                    yield StoreError(
                        "a completed Call is never rewritten", remedy="Fork the run to change it.", at=f"{run}@{seq}"
                    )

    def _series(self, db: Connection, a: Annotation) -> int:
        names = (a.method, a.version, a.params, self._number(a.scope))
        sql = "SELECT no FROM series WHERE (method, version, params, scope) = (?, ?, ?, ?)"
        found = db.execute(sql, names).fetchone()
        if found is None:
            sql = "INSERT INTO series(method, version, params, scope) VALUES (?, ?, ?, ?) RETURNING no"
            found = db.execute(sql, names).fetchone()
        return int(found[0])
