"""A store file as somebody else made it: whether it may be opened at all, and every value that lies in it.

Portable runs are read and written through this. It opens files for reading only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from clew.core.errors import StoreBroken
from clew.store.sqlite.database import our_errors
from clew.store.sqlite.migrations import same_shape


def check_shape(path: Path) -> None:
    """Refuse a file that holds other tables, indexes or code than Clew makes.

    Raises:
        StoreBroken, StoreError: it is refused, or no store.
    """
    with our_errors(str(path)), closing(_open(path)) as db:
        if not same_shape(db):
            raise StoreBroken("holds tables that Clew never makes", remedy="Do not use it.")


def values(path: Path) -> Iterator[tuple[str, str | bytes]]:
    """Every text and binary value of a file, with the names of its table and column."""
    with our_errors(str(path)), closing(_open(path)) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            found = db.execute(f'SELECT * FROM "{table}"')
            names = [column[0] for column in found.description]
            for row in found:
                yield from (
                    (f"{table}.{name}", v) for name, v in zip(names, row, strict=True) if isinstance(v, str | bytes)
                )


def _open(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA cell_size_check = ON")
    db.text_factory = lambda data: data.decode("utf-8", "surrogatepass")
    return db
