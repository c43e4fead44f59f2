"""Lists of runs: one summary per run in a derived table, and queries over the summaries in SQL.

An ended run never changes, so it is summarised once and kept in the store. Runs that go on, and all runs of a
store that cannot be written, are summarised in a temporary table, and again whenever their last Calls changed. A page
of a list reads the rows that it shows and no others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, get_type_hints

from clew.core.errors import StoreBroken, StoreError
from clew.core.records import Fault, RunRow, Segment
from clew.store import labels
from clew.store.protocol import Folds, Page, Summary, rewards
from clew.store.query import DATES, NUMBERS, Term, beside, column, elsewhere, moment, parse, turned
from clew.store.slices import Slice, Unfinished
from clew.store.sql.dialect import marks, replacing
from clew.store.sql.row_codec import BITS, RUN_COLUMNS, readable
from clew.store.sql.run_tables import ENDED, Records
from clew.store.verify import guarded

_FIELDS = [name for name in Summary._fields if name not in ("run", "reward")]
_COLUMNS = ", ".join(f'"{name}"' for name in _FIELDS)
_REPLACED = replacing("run", _COLUMNS)
_PUT_FRESH = f"INSERT INTO fresh_2(run, {_COLUMNS}) VALUES ({marks('run, ' + _COLUMNS)}) {_REPLACED}"
_COUNT = """
SELECT max(CASE kind WHEN 7 THEN action END), max(CASE WHEN kind IN (1, 2) THEN 2 * at + 2 - kind END) & 1,
  count(CASE kind WHEN 2 THEN 1 END), count(*),
  CAST(coalesce(sum(coalesce(length(logprobs) / 4, completion)), 0) AS BIGINT), coalesce(sum(cost), 0.0),
  coalesce(max(CASE WHEN started > 0 THEN started + seconds END) - min(CASE WHEN started > 0 THEN started END), 0.0)
FROM call WHERE at >= ? AND at < ?"""
_SETUP = "SELECT setup FROM call WHERE at >= ? AND at < ? AND setup IS NOT NULL ORDER BY at LIMIT 1"
_LIGHT = f"SELECT {RUN_COLUMNS.replace(', task,', ', NULL,')} FROM run WHERE no = ?"
# of several verdicts the one with the highest version, parameters and scope counts, as in `base.rewards`
_REWARD = """(SELECT value FROM annotation JOIN series ON series.no = series JOIN ident ON ident.no = scope
  WHERE annotation.run = listed.run AND target = 3 AND method = 'reward' AND value IS NOT NULL
  ORDER BY version DESC, params DESC, ident.id DESC LIMIT 1)"""
_KINDS = get_type_hints(Summary)
_ALL = 1 << 62  # more runs than there are
_ID = "(SELECT id FROM ident WHERE no = listed.run)"


class Listing(Records):
    """Part of a store in SQL."""

    def __init__(self) -> None:
        super().__init__()
        self._marks: dict[int, tuple[Any, ...]] = {}  # runs of the fresh table, and what their last Calls looked like
        self._last = (-1, -1)  # what the store looked like when it was last read: others' commits, own changes
        self._newest = -1  # highest number of a run
        self._tick = 0  # readings so far that found something changed
        self._touched: dict[int, int] = {}  # runs that changed, by the tick that found it, latest last

    # what changed

    def changed(self, since: int | None = None) -> tuple[int, list[str]]:
        """A mark, and the runs begun, continued or ended after an earlier mark, by any process; none without one."""
        with self._lock:
            self._refresh()
            found: list[int] = []
            for no in reversed(self._touched):
                if since is None or self._touched[no] <= since:
                    break
                found.append(no)
            return self._tick, [self._name(no) for no in reversed(found)]

    def _refresh(self) -> None:
        """Bring the two tables up to date, if anybody wrote since the last time.

        Raises:
            Unfinished: the time of a slice is up; what was counted is kept.
        """
        self.commit()
        others = self._others()
        if (others, self._changes()) == self._last:
            return
        self._aside(self._table("TEMP TABLE", "fresh_2"))
        missing = self._without_summary()
        touched = [no for no in self._marks if no not in missing]  # another process summarised them: they ended
        self._drop_fresh(touched)
        touched += [no for no in self._newer() if no not in missing]  # begun, ended and summarised since the last time
        self._touch(touched)
        counted: list[int] = []
        time, waiting = Slice(), [no for no in sorted(missing) if self._marks.get(no) != ENDED]
        left = len(waiting)
        for no in waiting:
            known = self._marks.get(no)
            if known is None or known != self._mark(no):
                if counted and time.over:
                    break
                self._summarise(no)
                counted.append(no)
            left -= 1
        kept = self.readonly or self._keep()
        self._touch(counted)
        if left:
            total = int(self._read("SELECT count(*) FROM run")[0][0])
            raise Unfinished("list", total - left, total)
        self._last = (others if kept else -1, self._changes())

    def _summarise(self, no: int) -> None:
        """Count a run and put it into the temporary table."""
        made = self._count(self._light(no))
        self._marks[no] = ENDED
        if not made.stop:
            self._marks[no] = self._mark(no)  # before it is counted, so that nothing slips between
            made = self._count(self._light(no))
        row = (no, *(self._text(v) if isinstance(v, str) else v for v in made[1:-1]))
        self._aside(_PUT_FRESH, [row])

    def _table(self, kind: str, name: str) -> str:
        """The SQL that makes a table of summaries, unless it is there."""
        columns = ", ".join(self._declared(f'"{field}"', _KINDS[field]) for field in _FIELDS)
        return f"CREATE {kind} IF NOT EXISTS {name}(run INTEGER PRIMARY KEY, {columns})"

    def _touch(self, numbers: Sequence[int]) -> None:
        """Note that these runs changed."""
        self._tick += bool(numbers)
        for no in numbers:
            self._touched.pop(no, None)
            self._touched[no] = self._tick

    def adopt(self, other: Listing) -> None:
        """Take over what another connection to this store counted of ended runs and could not keep in it."""
        with other._lock:
            rows = other._read("SELECT * FROM fresh_2 WHERE stop != ''") if other._marks else []
        with self._lock:
            self._aside(self._table("TEMP TABLE", "fresh_2"))
            self._aside(_PUT_FRESH, rows)
            self._marks |= {row[0]: ENDED for row in rows}

    def _without_summary(self) -> set[int]:
        """Numbers of the runs that have no summary in the store."""
        lacks = "WHERE no NOT IN (SELECT run FROM summary_2)" if self._has_table("summary_2") else ""
        return {no for (no,) in self._read(f"SELECT no FROM run {lacks}")}

    def _newer(self) -> list[int]:
        """Runs beyond the highest number so far; none the first time, when all are."""
        before, self._newest = self._newest, self._read("SELECT coalesce(max(no), 0) FROM run")[0][0]
        return [no for (no,) in self._read("SELECT no FROM run WHERE no > ?", (before,))] if before >= 0 else []

    def _keep(self) -> bool:
        """Put the summaries of ended runs into the store; False where that failed, as on a full or busy disk."""
        ended = [no for (no,) in self._read("SELECT run FROM fresh_2 WHERE stop != ''")]
        if ended:
            try:
                with self._write() as db:
                    db.execute("DROP TABLE IF EXISTS summary_1")  # counted steps otherwise
                    db.execute(self._table("TABLE", "summary_2"))
                    columns = f"run, {_COLUMNS}"
                    taken = f"SELECT {columns} FROM fresh_2 WHERE stop != ''"
                    db.execute(f"INSERT INTO summary_2({columns}) {taken} {_REPLACED}")
            except StoreError:
                return False
            self._drop_fresh(ended)
        return True

    def _drop_fresh(self, numbers: Sequence[int]) -> None:
        self._aside("DELETE FROM fresh_2 WHERE run = ?", [(no,) for no in numbers])
        for no in numbers:
            self._marks.pop(no, None)

    def _light(self, no: int) -> RunRow:
        """The row of a run without its task, which may be long."""
        rows = self._read(_LIGHT, (no,))
        if not rows:
            raise StoreBroken(f"{self.path}: no run has the number {no}", remedy="Restore a copy of the store.")
        return self._codec.read_run(rows[0])

    def _count(self, row: RunRow) -> Summary:
        """``summarise``, counted in SQL."""
        shared = row.lineage[-1].stop if row.lineage else 0
        path = [*row.lineage, Segment(row.id, shared, 1 << BITS)]
        places = [((no << BITS) + s.start, (no << BITS) + s.stop) for s in path for no in [self._known(s.run) or 0]]
        counts = [self._read(_COUNT, place)[0] for place in places]
        stops = ["", *(readable(stop) for stop, *_ in counts if stop is not None)]
        names = (row.id, row.taskset, row.task_id, row.agent, row.model or self._first_model(places), row.origin)
        acts, calls, tokens = (sum(c[column] for c in counts) for column in (2, 3, 4))
        asking = next((c[1] for c in reversed(counts) if c[1] is not None), 0)  # 1: the last step has no act
        along = (acts + asking, calls, tokens)
        return Summary(*names, row.parent, row.group, row.seed, row.created, stops[-1], *along, *counts[-1][5:])

    def _first_model(self, places: list[tuple[int, int]]) -> str:
        for place in places:
            for (setup,) in self._read(_SETUP, place):
                return str(json.loads(self.blob(setup))[0])
        return ""

    # lists

    def page(self, query: str = "", limit: int | None = None, start: int = 0) -> Page:
        """The runs a query selects, newest first or as it sorts, from the ``start``-th on.

        Raises:
            BadQuery: the query does not parse.
        """
        with self._lock:
            where, order, values = self._select(query)
            tail = f"WHERE {where} ORDER BY {order} LIMIT ? OFFSET ?"
            with self._moment():
                total = int(self._read(f"SELECT count(*) FROM {self._listed()} WHERE {where}", values)[0][0])
                return Page(self._listing(tail, [*values, _ALL if limit is None else limit, start]), total)

    def folds(self, query: str = "", limit: int | None = None, start: int = 0) -> Folds:
        """The groups that hold a run the query selects, in the order in which it finds their first.

        Raises:
            BadQuery: the query does not parse.
        """
        with self._lock:
            where, order, values = self._select(query)
            with self._moment():
                return self._folds(where, order, values, limit, start)

    def _folds(self, where: str, order: str, values: list[Any], limit: int | None, start: int) -> Folds:
        sql = f'SELECT run, "group" FROM {self._listed()} WHERE {where} ORDER BY {order}'
        names: list[str | int] = list(dict.fromkeys(group or run for run, group in self._read(sql, values)))
        chosen = names[start : None if limit is None else start + limit]
        groups, alone = ([n for n in chosen if isinstance(n, kind)] for kind in (str, int))
        members: dict[str | int, list[Summary]] = {name: [] for name in chosen}
        tail = f"""WHERE {self._in('"group"')} OR {self._in("run")} ORDER BY run"""
        for row in self._listing(tail, [self._list(groups), self._list(alone)]):
            members[row.group or self._known(row.run) or 0].append(row)
        return Folds(list(members.values()), len(names))

    def summaries(self) -> list[Summary]:
        """One Summary per run in order of creation."""
        with self._lock:
            self._refresh()
            with self._moment():
                return self._listing("ORDER BY run", ())

    def summary(self, run: str) -> Summary:
        """What a list shows of one run, as it stands now.

        Raises:
            UnknownName: no such run.
        """
        with self._lock:
            self.row(run)
            self._refresh()
            with self._moment():
                return self._listing("WHERE run = ?", (self._known(run),))[0]

    def _select(self, query: str) -> tuple[str, str, list[Any]]:
        """WHERE, ORDER BY and their values."""
        asked = parse(query)
        self._refresh()
        where, values = ["TRUE"], []
        for term in asked.terms:
            condition, bound = self._condition(term)
            where.append(f"NOT {condition}" if term.negated else condition)
            values += bound
        order = []
        if any(field == "stars" for field, _ in asked.order):
            self._aside("CREATE TEMP TABLE IF NOT EXISTS starred(run INTEGER PRIMARY KEY, mean DOUBLE PRECISION)")
            self._aside("DELETE FROM starred")
            known = [(self._known(run), mean) for run, mean in labels.stars(self).items()]
            self._aside("INSERT INTO starred VALUES (?, ?)", [row for row in known if row[0] is not None])
        for field, down in asked.order:
            place = _place(field)
            order.append(f"{place} IS NULL, {place} {'DESC' if down else 'ASC'}")
        return " AND ".join(where), ", ".join([*order, "created DESC", "run DESC"]), values

    def _condition(self, term: Term) -> tuple[str, list[Any]]:
        """One term as SQL that is never NULL, and the values it binds."""
        field, op, value = term.field, term.op, term.value
        if field in NUMBERS:
            return f"coalesce({_place(field)} {op} ?, FALSE)", [float(value)]
        if field in DATES:
            return f"(created {'>=' if field == 'after' else '<'} ?)", [moment(term)]
        if beside(field):
            numbers = [self._known(run) for run in elsewhere(term, self)]
            return f"({'NOT ' if turned(term) else ''}{self._in('run')})", [self._list(numbers)]
        condition, values = self._fitting(_place(field), field, op, value)
        return f"({'NOT ' if op == '!=' else ''}{condition})", values

    def _listed(self) -> str:
        """Both tables as one. Another process may have summarised a run since ours was counted: then its row counts."""
        fresh = f"SELECT run, {_COLUMNS} FROM fresh_2"
        if not self._has_table("summary_2"):
            return f"({fresh}) AS listed"
        other = f"{fresh} WHERE run NOT IN (SELECT run FROM summary_2)"
        return f"(SELECT run, {_COLUMNS} FROM summary_2 UNION ALL {other}) AS listed"

    def _listing(self, tail: str, values: Sequence[Any]) -> list[Summary]:
        rows = self._read(f"SELECT run, {_COLUMNS} FROM {self._listed()} {tail}", values)
        names = [self._name(row[0]) for row in rows]
        judged = rewards(self, names)
        return [
            Summary._make((name, *(readable(v) if isinstance(v, bytes) else v for v in row[1:]), judged.get(name)))
            for name, row in zip(names, rows, strict=True)
        ]

    def check(self) -> list[Fault]:
        """What the database itself finds wrong, and summaries that are not what their run says."""
        faults = [Fault(self.path, said) for said in self._damage()]
        return faults + list(guarded("the list of runs", self._stale))

    def _stale(self) -> Iterator[Fault]:
        for made in self.summaries():
            yield from guarded(made.run, partial(self._uncounted, made))

    def _uncounted(self, made: Summary) -> Iterator[Fault]:
        if made.stop and made._replace(reward=None) != self._count(self.row(made.run)):
            yield Fault(made.run, "its summary is out of date; `clew store verify --rebuild` remakes it")


def _place(field: str) -> str:
    """The SQL of what a field of the language reads."""
    name = column(field)
    return {"reward": _REWARD, "run": _ID, "stars": "(SELECT mean FROM starred WHERE starred.run = listed.run)"}.get(
        name, f'listed."{name}"'
    )
