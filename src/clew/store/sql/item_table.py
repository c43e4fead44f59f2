"""The entries of memories in a store in SQL. Each write is one transaction by itself."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from clew.store.entries import Entry, Numbered, Vector, check_entries, check_vectors, tombstone
from clew.store.sql.dialect import Connection, replacing
from clew.store.sql.row_codec import ours, readable
from clew.store.sql.run_tables import Records

_PUT = """
INSERT INTO entry(key, memory, item, at, what, body) SELECT ?1, ?2, ?3, ?4, ?5, ?6
WHERE ?5 = 'deleted' OR NOT EXISTS (SELECT 1 FROM entry WHERE item = ?3 AND what = 'deleted') ON CONFLICT DO NOTHING"""
_PUT_VECTOR = f"""
INSERT INTO vector(item, model, text, body) SELECT ?1, ?2, ?3, ?4
WHERE EXISTS (SELECT 1 FROM entry WHERE item = ?1 AND what = 'add') {replacing("item, model", "text, body")}"""
_LOT = 500  # bound variables of one statement are few


class ItemTable(Records):
    """Part of a store in SQL."""

    def put_entries(self, entries: Iterable[Entry]) -> int:
        """Add entries in one transaction; gives how many were new. What is said of a deleted item is passed over.

        Raises:
            BadInput: one cannot be kept; none is then.
        """
        found = [one for one in check_entries(entries) if one.what != "deleted"]
        if not found:
            return 0
        with self._write() as db:
            return self._put(db, found)

    def _put(self, db: Connection, found: Sequence[Entry]) -> int:
        rows = [tuple(self._text(value) if isinstance(value, str) else value for value in one) for one in found]
        return db.executemany(_PUT, rows).rowcount

    def entries(self, memory: str | None = None, since: int = 0) -> list[Numbered]:
        """Entries with a greater number than ``since``, of one memory or of all, in the order in which they came."""
        sql = "SELECT no, key, memory, item, at, what, body FROM entry WHERE no > ?"
        if memory is None:
            return [_read(row) for row in self._read(f"{sql} ORDER BY no", (since,))]
        return [_read(row) for row in self._read(f"{sql} AND memory = ? ORDER BY no", (since, self._text(memory)))]

    def memories(self) -> list[str]:
        """Names of the memories that hold an item, in order."""
        found = self._read("SELECT DISTINCT memory FROM entry WHERE what = 'add'")
        return sorted(readable(name) for (name,) in found)

    def bury_entries(self, tombstones: Iterable[Entry]) -> list[str]:
        """Put tombstones, remove all else that was said of their items, and overwrite it; gives the ids of
        those that were there.

        Raises:
            StoreError: another process reads the store; the content leaves it when that one is done.
        """
        found = [one for one in check_entries(tombstones) if one.what == "deleted"]
        if not found:
            return []
        with self._lock:
            with self._write() as db:
                self._erasing(db)
                held = self._held_items([one.item for one in found])
                gone = [(self._text(item),) for item in held]
                db.executemany("DELETE FROM entry WHERE item = ? AND what != 'deleted'", gone)
                db.executemany("DELETE FROM vector WHERE item = ?", gone)
                self._put(db, found)
            if held:
                self._scrub("deleted")
        return sorted(held)

    def _held_items(self, items: Sequence[str]) -> dict[str, str]:
        """Those of some items of which anything is said, each with its memory."""
        held: dict[str, str] = {}
        for start in range(0, len(items), _LOT):
            lot = items[start : start + _LOT]
            marks = ", ".join("?" * len(lot))
            sql = f"SELECT DISTINCT item, memory FROM entry WHERE what != 'deleted' AND item IN ({marks})"
            held |= {
                readable(item): readable(memory) for item, memory in self._read(sql, [self._text(item) for item in lot])
            }
        return held

    def forget(self, items: Iterable[str]) -> list[str]:
        """Delete items for good: no byte of them is left in the store, but a tombstone. Gives the ids of
        those that were there.

        Raises:
            StoreError: as ``bury_entries``.
        """
        with self._lock:
            held = self._held_items(sorted(set(items)))
            return self.bury_entries(tombstone(memory, item, time.time()) for item, memory in held.items())

    def put_vectors(self, vectors: Iterable[Vector]) -> int:
        """Keep vectors in one transaction, each in the place of what its model made of its item before; gives how many
        were kept. Those of items that are not there are passed over.

        Raises:
            BadInput: one cannot be kept; none is then.
        """
        found = check_vectors(vectors)
        if not found:
            return 0
        with self._write() as db:
            rows = [(self._text(a), self._text(b), text, body) for a, b, text, body in found]
            return db.executemany(_PUT_VECTOR, rows).rowcount

    def vectors(self, model: str, items: Sequence[str]) -> list[Vector]:
        """What a model made of some items, as far as that is kept, in their order."""
        found: dict[str, Vector] = {}
        for start in range(0, len(items), _LOT):
            lot = [self._text(item) for item in items[start : start + _LOT]]
            marks = ", ".join("?" * len(lot))
            sql = f"SELECT item, text, body FROM vector WHERE model = ? AND item IN ({marks})"
            for row in self._read(sql, (self._text(model), *lot)):
                item, text, body = row
                found[readable(item)] = Vector(readable(item), model, bytes(text), bytes(body))
        return [found[item] for item in items if item in found]


@ours("entry")
def _read(row: tuple[int, bytes, str | bytes, str | bytes, float, str, str | bytes]) -> Numbered:
    no, key, memory, item, at, what, body = row
    return Numbered(no, Entry(bytes(key), readable(memory), readable(item), float(at), str(what), readable(body)))
