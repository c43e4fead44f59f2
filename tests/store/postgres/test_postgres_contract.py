"""The PostgreSQL store under the contract of all stores."""

from __future__ import annotations

import pytest

from clew.store.contract import CHECKS


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(check, postgres):
    from clew.store.postgres.postgres_store import PostgresStore

    opened = []

    def make():
        opened.append(PostgresStore(postgres.url()))
        return opened[-1]

    check(make)
    for store in opened:
        store.close()
