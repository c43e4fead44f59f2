"""Reads of many rows: the nodes of a path, many nodes at once, one number of each Call, names without their rows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from clew.core.errors import StoreBroken, StoreError, UnknownName
from clew.core.records import Node
from clew.store.protocol import Range
from clew.store.query import reaches
from clew.store.run import mean
from clew.store.sql.row_codec import NODE_COLUMNS, TARGETS, readable, unpack_floats
from clew.store.sql.run_tables import Records

_THREAD = f"""
WITH RECURSIVE path({NODE_COLUMNS}, depth) AS (
  SELECT {NODE_COLUMNS}, 1 FROM node WHERE key = ?1
  UNION ALL
  SELECT {", ".join("n." + name for name in NODE_COLUMNS.split(", "))}, depth + 1
  FROM path JOIN node n ON n.key = path.parent WHERE path.parent NOT IN (?4, ?2) AND depth < ?3)
SELECT {NODE_COLUMNS} FROM path ORDER BY depth"""
_OPS = {op: op for op in ("<", "<=", ">", ">=", "=", "!=")}
_PIECE = 4096  # nodes of a path that are read at once: a path may be a circle in a file that others made
_END = 1 << 62


class Ranges(Records):
    """Part of a store in SQL."""

    def thread(self, tip: bytes, stop: bytes = b"", limit: int | None = None) -> list[Node]:
        """Nodes of a path, its tip last, from its root or after the node ``stop``; at most ``limit`` from the tip.

        Raises:
            UnknownName: a node of the path is missing.
        """
        with self._lock:
            path: list[Node] = []
            left = _END if limit is None else limit
            while tip not in (b"", stop) and left > len(path) and (node := self._nodes.get(tip)) is not None:
                path.append(node)
                tip = node.parent
            passed = {node.key for node in path}
            while tip not in (b"", stop) and left > len(path):
                rows = self._read(_THREAD, (tip, stop, min(left - len(path), _PIECE), b""))
                if not rows or passed & {row[0] for row in rows} or len({row[0] for row in rows}) < len(rows):
                    raise _no_path(tip, bool(rows), self.path)
                path += map(self._codec.read_node, rows)
                passed.update(row[0] for row in rows)
                tip = path[-1].parent
            return path[::-1]

    def nodes(self, keys: Iterable[bytes]) -> dict[bytes, Node]:
        """Nodes by key; those the store does not have are left out."""
        with self._lock:
            wanted = dict.fromkeys(keys)
            found = {key: node for key in wanted if (node := self._nodes.get(key)) is not None}
            left = [key for key in wanted if key not in found]
            for start in range(0, len(left), 500):  # bound variables of one statement are few
                part = left[start : start + 500]
                sql = f"SELECT {NODE_COLUMNS} FROM node WHERE key IN ({', '.join('?' * len(part))})"
                found |= {row[0]: self._codec.read_node(row) for row in self._read(sql, part)}
            return found

    def conversations(self, run: str) -> list[int]:
        """Numbers of the conversations in which a run asked something."""
        sql = "SELECT DISTINCT conversation FROM call WHERE at >= ? AND at < ? AND kind = 1"
        with self._lock:
            found: set[int] = set()
            for start, stop, _ in self._places(run):
                found.update(chat for (chat,) in self._read(sql, (start, stop)))
            for s in self._path(run):
                calls = self._calls.get(s.run, {}).values()
                found.update(c.conversation for c in calls if c.kind == "ask" and s.start <= c.seq < s.stop)
            return sorted(found)

    def keys(self, run: str) -> list[bytes]:
        """Keys of a run's Calls in order of issue; two runs part where these do."""
        with self._lock:
            self.commit()
            sql = "SELECT key FROM call WHERE at >= ? AND at < ? ORDER BY at"
            return [key for start, stop, _ in self._places(run) for (key,) in self._read(sql, (start, stop))]

    def numbers(self, run: str, name: str) -> dict[int, float]:
        """One number of each Call of a run that has it, by seq: ``logprob`` or ``entropy`` (nats, mean over the sampled
        tokens) or ``reward``.
        """
        column = {"logprob": "logprobs", "entropy": "entropies", "reward": "reward"}[name]
        sql = f"SELECT at, {column} FROM call WHERE at >= ? AND at < ? AND {column} IS NOT NULL"
        found: dict[int, float] = {}
        with self._lock:
            self.commit()
            for start, stop, origin in self._places(run):
                for at, value in self._read(sql, (start, stop)):
                    number = value if name == "reward" else mean(unpack_floats(value))
                    if number is not None:
                        found[at - origin] = number
        return found

    def group_names(self) -> dict[str, str]:
        """The name of each group by its id, oldest first."""
        with self._lock:
            rows = self._read("SELECT ident.id, name FROM grp JOIN ident USING (no) ORDER BY no")
            found = {id: readable(name) for id, name in rows}
            return found | {id: row.name for id, row in self._groups.items()}

    def forks(self) -> dict[str, str]:
        """Where each forked run was forked (a cursor), by its id, oldest first."""
        with self._lock:
            rows = self._read("SELECT id, parent FROM run JOIN ident USING (no) WHERE parent != '' ORDER BY no")
            found = {id: readable(parent) for id, parent in rows}
            return found | {id: row.parent for id, row in self._rows.items() if row.parent}

    def annotated(self, method: str) -> set[str]:
        """Runs (and groups, where those were the target) of which a method says something."""
        sql = "SELECT DISTINCT run FROM annotation WHERE series IN (SELECT no FROM series WHERE method = ?)"
        with self._lock:
            found = {self._name(no) for (no,) in self._read(sql, (method,))}
            return found | {a.run for a in self._annotations.values() if a.method == method}

    def valued(self, method: str, op: str, bound: float) -> set[str]:
        """Runs (and groups) of which a method has a value that compares so with a number, on a token or a Call too."""
        series = "series IN (SELECT no FROM series WHERE method = ?)"
        plain = f"SELECT DISTINCT run FROM annotation WHERE {series} AND vals IS NULL AND value {_OPS[op]} ?"
        packed = f"SELECT run, vals FROM annotation WHERE {series} AND vals IS NOT NULL"
        with self._lock:
            self.commit()
            found = {no for (no,) in self._read(plain, (method, bound))}
            for no, vals in self._read(packed, (method,)):
                if no not in found and reaches(np.frombuffer(vals, "<f4"), op, bound):
                    found.add(no)
            return {self._name(no) for no in found}

    def ranges(self, run: str) -> list[Range]:
        """What each method's values on a run and its Calls reach from and to, by target and scope."""
        sql = """SELECT method, target, scope, min(value), max(value), count(value) FROM annotation
            JOIN series ON series.no = series WHERE run = ? AND vals IS NULL AND value IS NOT NULL
            GROUP BY method, target, scope"""
        with self._lock:
            self.commit()
            no = self._known(run)
            rows = self._read(sql, (no,))
            found = [Range(m, TARGETS[t], self._name(s), low, high, n) for m, t, s, low, high, n in rows]
            return sorted([*found, *self._token_ranges(no)])

    def _token_ranges(self, no: int | None) -> list[Range]:
        """The same of values that are packed, one per token."""
        sql = """SELECT method, target, scope, vals FROM annotation JOIN series ON series.no = series
            WHERE run = ? AND vals IS NOT NULL"""
        packed: dict[tuple[str, int, int], list[bytes]] = {}
        for method, target, scope, vals in self._read(sql, (no,)):
            packed.setdefault((method, target, scope), []).append(vals)
        found = []
        for (method, target, scope), parts in packed.items():
            values = np.frombuffer(b"".join(parts), "<f4")
            values = values[~np.isnan(values)]
            if len(values):
                low, high = float(values.min()), float(values.max())
                found.append(Range(method, TARGETS[target], self._name(scope), low, high, len(parts)))
        return found


def _no_path(tip: bytes, circle: bool, path: str) -> StoreError | UnknownName:
    if circle:
        return StoreBroken(f"{path}: node {tip.hex()} is its own ancestor", remedy="Restore a copy of the file.")
    return UnknownName(f"no node {tip.hex()} in {path}")
