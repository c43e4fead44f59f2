"""The small tables of a store in SQL: tags, reports, packed outcomes, metrics. Each write commits by itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from clew.core.errors import UnknownName
from clew.core.records import Report
from clew.store.names import check_name, new_id
from clew.store.protocol import Outcomes, pack_outcomes
from clew.store.sql.dialect import replacing
from clew.store.sql.row_codec import read_report, report_json
from clew.store.sql.run_tables import Records

_OUTCOME = f"""INSERT INTO outcome(method, cursor, seeds, outcomes, costs) VALUES (?, ?, ?, ?, ?)
{replacing("method, cursor", "seeds, outcomes, costs")}"""


class SmallTables(Records):
    """Part of a store in SQL."""

    def _number_of(self, run: str) -> int:
        """The number of a run that is in the file.

        Raises:
            UnknownName: it is not.
        """
        self.commit()
        no = self._known(run)
        if no is None or not self._read("SELECT 1 FROM run WHERE no = ?", (no,)):
            raise UnknownName(f"no run {run!r} in {self.path}", remedy="`clew log` lists the runs.")
        return no

    def tag(self, run: str, name: str) -> None:
        """Give a run a name. A name may be given to several runs."""
        with self._lock:
            no = self._number_of(run)
            with self._write() as db:
                db.execute("INSERT INTO tag(name, run) VALUES (?, ?) ON CONFLICT DO NOTHING", (check_name(name), no))

    def untag(self, run: str, name: str) -> None:
        """Take a name back.

        Raises:
            UnknownName: the run does not have it.
        """
        with self._lock:
            no = self._number_of(run)
            with self._write() as db:
                if not db.execute("DELETE FROM tag WHERE name = ? AND run = ?", (name, no)).rowcount:
                    raise UnknownName(f"run {run} has no tag {name!r}")

    def tags(self, run: str | None = None) -> dict[str, list[str]]:
        """Names, each with the runs that have it; of one run, only the names it has."""
        with self._lock:
            found: dict[str, list[str]] = {}
            for name, no in self._read("SELECT name, run FROM tag ORDER BY name, run"):
                found.setdefault(name, []).append(self._name(no))
        return {name: runs for name, runs in found.items() if run is None or run in runs}

    def put_report(self, report: Report, id: str = "") -> str:
        """Keep a claim; returns its id, a new one unless it has one."""
        name = id or new_id()
        with self._write() as db:
            db.execute("INSERT INTO report(id, body) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, report_json(report)))
        return name

    def reports(self) -> dict[str, Report]:
        """Claims by id, oldest first."""
        return {id: read_report(body) for id, body in self._read("SELECT id, body FROM report ORDER BY rowid")}

    def put_outcomes(
        self, method: str, cursor: str, seeds: Sequence[int], outcomes: Sequence[float], costs: Sequence[float]
    ) -> None:
        """Keep (seed, outcome, cost) of samples that never became runs, in one row (DESIGN.md rule 10)."""
        packed = pack_outcomes(seeds, outcomes, costs)
        blobs = [a.astype(a.dtype.newbyteorder("<")).tobytes() for a in packed]
        with self._write() as db:
            db.execute(_OUTCOME, (method, cursor, *blobs))

    def outcomes(self, method: str, cursor: str) -> Outcomes:
        """The same, as arrays.

        Raises:
            UnknownName: none were kept there.
        """
        sql = "SELECT seeds, outcomes, costs FROM outcome WHERE method = ? AND cursor = ?"
        rows = self._read(sql, (method, cursor))
        if not rows:
            raise UnknownName(f"no outcomes of {method!r} at {cursor} in {self.path}")
        seeds, outcomes, costs = rows[0]
        return Outcomes(np.frombuffer(seeds, "<i8"), np.frombuffer(outcomes, "<f4"), np.frombuffer(costs, "<f4"))

    def outcome_places(self) -> list[tuple[str, str]]:
        """(method, cursor) of each packed table."""
        return [tuple(row) for row in self._read("SELECT method, cursor FROM outcome")]

    def put_metrics(self, training: str, step: int, values: Mapping[str, float]) -> None:
        """Keep a training's numbers at one step. A value that is not finite is left out, since absent says as much."""
        rows = [(check_name(training), step, name, float(v)) for name, v in values.items() if math.isfinite(v)]
        with self._write() as db:
            self._file(db, "metric", "training, step, name, value", rows, replacing("training, step, name", "value"))

    def metrics(self, training: str) -> dict[int, dict[str, float]]:
        """Step -> name -> value, steps in order."""
        found: dict[int, dict[str, float]] = {}
        sql = "SELECT step, name, value FROM metric WHERE training = ? ORDER BY step"
        for step, name, value in self._read(sql, (training,)):
            found.setdefault(step, {})[name] = value
        return found

    def trainings(self) -> list[str]:
        """Names of trainings, in order."""
        return [str(name) for (name,) in self._read("SELECT DISTINCT training FROM metric ORDER BY training")]

    def progress(self) -> dict[str, tuple[int, int]]:
        """Per training its last step and how many numbers were kept of it: differs when something was added."""
        sql = "SELECT training, max(step), count(*) FROM metric GROUP BY training ORDER BY training"
        return {str(name): (step, count) for name, step, count in self._read(sql)}
