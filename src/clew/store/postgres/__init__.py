"""The store of a team, in a PostgreSQL server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clew.core.errors import need

if TYPE_CHECKING:
    from clew.store.postgres.postgres_store import PostgresStore


def opened(address: str, *, create: bool = True, readonly: bool = False) -> PostgresStore:
    """The store in a PostgreSQL server, as ``clew.stores`` opens it.

    Raises:
        MissingExtra: the driver is not installed. As ``PostgresStore``.
    """
    need("psycopg", "postgres")
    from clew.store.postgres.postgres_store import PostgresStore

    return PostgresStore(address, create=create, readonly=readonly)
