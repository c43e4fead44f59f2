"""``PostgresStore``: a schema of a PostgreSQL server, written by any number of processes on any number of hosts.

Its parts are siblings over ``sql.run_tables.Records``, the same as in an SQLite store but for ``phrases``.
"""

from __future__ import annotations

from clew.store.base import Keeper
from clew.store.postgres.phrases import Phrases
from clew.store.postgres.transactions import Database
from clew.store.sql.item_table import ItemTable
from clew.store.sql.leases import Leases
from clew.store.sql.maintenance import Maintenance
from clew.store.sql.ranges import Ranges
from clew.store.sql.small_tables import SmallTables


class PostgresStore(Phrases, Maintenance, ItemTable, SmallTables, Leases, Ranges, Database, Keeper):
    """A store in a database server. Threads may share it; each process opens its own.

    Writes wait in memory until ``commit``, as in an SQLite store. A commit is atomic and survives the death of this
    process and of the server's. A lost connection is made anew by the next read or commit.

    Args:
        url: ``postgresql://USER@HOST:PORT/DATABASE``; ``?schema=NAME`` names one of several stores in a database.
            The tables are made if absent. The password is better left to ``~/.pgpass``.
        readonly: never write; also so where the user may not.
        create: whether the tables are made where they are absent.

    Raises:
        BadInput: no address. UnknownName: no store, and none is to be made.
        StoreNewer, StoreReadOnly, StoreBroken, StoreFull, StoreError: never an error of psycopg.
    """

    def __init__(self, url: str, *, readonly: bool = False, create: bool = True) -> None:
        super().__init__()
        self._connect(url, readonly, create)
