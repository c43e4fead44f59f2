"""Upkeep of a store in SQL: keys of all content, tombstones, removal, and the end of derived tables."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from clew.core.keys import encode
from clew.core.records import Node
from clew.core.values import REDACTED
from clew.store.protocol import Burial, Tables
from clew.store.sql.dialect import Connection, replacing
from clew.store.sql.row_codec import BITS, CALL_COLUMNS, EXTRA, NODE_COLUMNS, PARTS, RUN_COLUMNS, readable, report_json
from clew.store.sql.run_tables import KNOWN, Records

_TABLES = "ident blob node run call grp series annotation lease tag report outcome metric tombstone entry vector"
_OVER_NODE = replacing("key", NODE_COLUMNS.partition(", ")[2])
_OVER_CALL = replacing("at", CALL_COLUMNS.partition(", ")[2])
_OVER_RUN = replacing("no", RUN_COLUMNS.partition(", ")[2])
_BURY = f"INSERT INTO tombstone(place, at, issue) VALUES (?, ?, ?) {replacing('place', 'at, issue')}"


class Maintenance(Records):
    """Part of a store in SQL."""

    def each_node(self, but: Tables | None = None) -> Iterator[Node]:
        """Every node, in the order they were first written; none that the store ``but`` has."""
        self.commit()
        last = 0
        while True:
            rows = self._read(
                f"SELECT rowid, {NODE_COLUMNS} FROM node WHERE rowid > ? ORDER BY rowid LIMIT 2000", (last,)
            )
            if not rows:
                return
            last = rows[-1][0]
            held = set(but.node_keys([row[1] for row in rows])) if but is not None else set()
            yield from [self._codec.read_node(row[1:]) for row in rows if row[1] not in held]

    def node_keys(self, among: Sequence[bytes] | None = None) -> list[bytes]:
        """Every node's key, or those of some keys that the store has."""
        return self._keys("node", among, self._nodes)

    def blob_keys(self, among: Sequence[bytes] | None = None) -> list[bytes]:
        """Every blob's key, those of interned settings, schemas and lists included, or those of some keys."""
        return self._keys("blob", among, self._blobs)

    def _keys(self, table: str, among: Sequence[bytes] | None, waiting: Mapping[bytes, object]) -> list[bytes]:
        if among is None:
            self.commit()
            return [key for (key,) in self._read(f"SELECT key FROM {table}")]
        with self._lock:
            left = [key for key in dict.fromkeys(among) if key not in waiting]
            kept = {
                key
                for start in range(0, len(left), 500)  # bound variables of one statement are few
                for part in [left[start : start + 500]]
                for (key,) in self._read(f"SELECT key FROM {table} WHERE key IN ({', '.join('?' * len(part))})", part)
            }
            return [key for key in among if key in waiting or key in kept]

    def tombstones(self) -> dict[str, bytes]:
        """Places whose content was redacted (``run@seq``, or a node's hex key), Calls with their issue digest."""
        return dict(self._read("SELECT place, issue FROM tombstone"))

    def holding(self, words: Sequence[bytes]) -> dict[str, int]:
        """How many rows of each table hold one of some byte strings, and in which files of the store they stand."""
        found: dict[str, int] = {}
        for table in _TABLES.split():
            rows = self._read(f"SELECT * FROM {table}")
            texts = (
                [encode(v) if isinstance(v, str) else bytes(v) for v in row if hasattr(v, "__len__")] for row in rows
            )
            count = sum(any(word in text for text in row for word in words) for row in texts)
            found |= {table: count} if count else {}
        return found

    def used_blobs(self, runs: set[str], nodes: Container[bytes] | None = None) -> set[bytes]:
        """Blobs that the given runs and nodes use (None: all nodes), interned ones included."""
        with self._lock:
            marks = ", ".join(str(self._known(run)) for run in runs) or "NULL"
            sql = f"SELECT DISTINCT snapshot, setup, legal FROM call WHERE at >> {BITS} IN ({marks})"
            used = {key for row in self._read(sql) for key in row if key}
            used |= {key for (key,) in self._read(f"SELECT task FROM run WHERE no IN ({marks})") if key}
            for (setup,) in self._read(
                f"SELECT DISTINCT setup FROM call WHERE setup NOTNULL AND at >> {BITS} IN ({marks})"
            ):
                used |= self._codec.tool_keys(setup)
            shown = f"SELECT packed FROM call WHERE packed LIKE '{EXTRA}%' AND at >> {BITS} IN ({marks})"
            used |= {key for (packed,) in self._read(shown) for key in self._codec.shown_keys(packed)}
            for key, more in self._read(f"SELECT key, more FROM node WHERE more LIKE '%{PARTS}'"):
                if nodes is None or key in nodes:
                    used |= self._codec.image_keys(more)
            return used

    def bury(self, burial: Burial) -> None:
        """Replace content by tombstones, and overwrite it.

        Raises:
            StoreError: another process reads the store; the content leaves it when that one is done.
        """
        now = time.time()
        with self._lock:
            self.commit()
            with self._write() as db:
                self._erasing(db)
                loose = set(burial.blobs)
                for node in burial.nodes:
                    db.execute(_BURY, (node.key.hex(), now, b""))
                    for (more,) in db.execute("SELECT more FROM node WHERE key = ?", (node.key,)).fetchall():
                        loose |= self._codec.image_keys(more)
                emptied = [self._codec.node(node) for node in burial.nodes]
                self._file(db, "node", NODE_COLUMNS, emptied, _OVER_NODE)
                gone = [((self._number(run) << BITS) + call.seq, call) for run, call, _ in burial.calls]
                for (at, _), (run, call, issue) in zip(gone, burial.calls, strict=True):
                    db.execute(_BURY, (f"{run}@{call.seq}", now, issue))
                    loose.update(*db.execute("SELECT snapshot, legal, setup FROM call WHERE at = ?", (at,)).fetchall())
                    for (packed,) in db.execute("SELECT packed FROM call WHERE at = ?", (at,)).fetchall():
                        loose |= self._codec.shown_keys(packed)
                self._file(db, "call", CALL_COLUMNS, [self._codec.call(at, call) for at, call in gone], _OVER_CALL)
                told = [(self._number(row.id), row) for row in burial.rows]
                for no, _ in told:
                    loose.update(*db.execute("SELECT task FROM run WHERE no = ?", (no,)).fetchall())
                self._file(db, "run", RUN_COLUMNS, [self._codec.run(no, row) for no, row in told], _OVER_RUN)
                self._file(db, "blob", "key, body", list(self._blobs.items()), KNOWN)
                self._erase_rest(db, burial)
                self._drop_derived(db)
                self._blobs.clear()
                self._delete_unused(db, loose - {None, b""})
            self._live.clear()
            self._codec.forget()
            self._scrub("redacted")

    def _erase_rest(self, db: Connection, burial: Burial) -> None:
        """Reports, lines about items, and strings kept once that are no ids of runs or groups."""
        for id, report in burial.reports.items():
            db.execute("UPDATE report SET body = ? WHERE id = ?", (self._text(report_json(report)), id))
        for was, now in burial.entries:
            db.execute("UPDATE entry SET key = ?, body = ? WHERE key = ?", (now.key, self._text(now.body), was.key))
        if not burial.words:
            return
        ids = {no for table in ("run", "grp") for (no,) in db.execute(f"SELECT no FROM {table}").fetchall()}
        for no, text in db.execute("SELECT no, id FROM ident").fetchall():
            if no not in ids and any(word in encode(readable(text)) for word in burial.words):
                db.execute("UPDATE ident SET id = ? WHERE no = ?", (f"{REDACTED} {no}", no))
                self._no.pop(self._id.pop(no, ""), None)
        self._no[""], self._id[0] = 0, ""

    def _delete_unused(self, db: Connection, loose: set[bytes]) -> None:
        used = self.used_blobs(set(self.run_ids()))
        db.executemany("DELETE FROM blob WHERE key = ?", [(key,) for key in loose - used])

    def remove(self, runs: Iterable[str], nodes: Iterable[bytes], blobs: Iterable[bytes]) -> None:
        """Remove runs with all that is filed under them, nodes and blobs, and give the room back."""
        with self._lock:
            self.commit()
            with self._write() as db:
                for run in runs:
                    no = self._number(run)
                    db.execute("DELETE FROM call WHERE at >= ? AND at < ?", (no << BITS, (no + 1) << BITS))
                    for table, column in (("run", "no"), ("annotation", "run"), ("lease", "run"), ("tag", "run")):
                        db.execute(f"DELETE FROM {table} WHERE {column} = ?", (no,))
                db.executemany("DELETE FROM node WHERE key = ?", [(key,) for key in nodes])
                db.executemany("DELETE FROM annotation WHERE node = ? AND run = 0", [(key,) for key in nodes])
                self._drop_derived(db)
                self._delete_unused(db, set(blobs))
            self._seen.clear()
            self._codec.forget()
            self._scrub("removed")

    def rebuild(self) -> None:
        """Throw the derived tables away; each is filled again when it is next read."""
        with self._write() as db:
            self._drop_derived(db)

    def _drop_derived(self, db: Connection) -> None:
        """Derived tables hold content too; each is filled again when it is next read."""
        for name in ("summary_1", "summary_2", "worded_1", "words_1"):
            db.execute(f"DROP TABLE IF EXISTS {name}")
