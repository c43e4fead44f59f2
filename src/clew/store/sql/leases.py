"""Leases in a store in SQL: which process may write a run.

``Records.commit`` checks before each write that the lease is still held.
"""

from __future__ import annotations

from clew.store.owners import held
from clew.store.sql.dialect import replacing
from clew.store.sql.run_tables import Records

_TAKE = f"INSERT INTO lease(run, owner, until) VALUES (?, ?, ?) {replacing('run', 'owner, until')}"


class Leases(Records):
    """Part of a store in SQL."""

    def lease(self, run: str, owner: str, seconds: float) -> None:
        """Take or renew the right to write a run, until ``seconds`` from now.

        The first lease of a run that was made here waits for the next commit, which refuses it if another process was
        faster.

        Raises:
            LeaseHeld: another owner's lease has not expired and its process may live.
        """
        with self._lock:
            now = self._now()
            if run in self._made:
                self._made.discard(run)
                self._claims[run], self._held[run] = (owner, now + seconds), owner
                return
            self.row(run)
            self.commit()
            with self._write() as db:
                no = self._known(run)
                rows = db.execute("SELECT owner, until FROM lease WHERE run = ?", (no,)).fetchall()
                if rows and rows[0][0] != owner and rows[0][1] > now and not self._gone(rows[0][0]):
                    raise held(run, *rows[0])
                self._here(db, owner)
                db.execute(_TAKE, (no, owner, now + seconds))
            self._held[run] = owner
            self._lost.discard(run)

    def release(self, run: str, owner: str) -> None:
        """Give the right up, if it is still this owner's; with the next commit where writes still wait for one."""
        with self._lock:
            self._freed[run] = owner
            if not (self._calls or self._rows or self._annotations):
                self.commit()

    def leased(self) -> list[str]:
        """Runs whose lease has not expired."""
        self.commit()
        return [self._name(no) for (no,) in self._read("SELECT run FROM lease WHERE until > ?", (self._now(),))]
