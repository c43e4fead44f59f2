"""A text is erased from every table of a store in a PostgreSQL server."""

from __future__ import annotations

from clew.store.postgres.postgres_store import PostgresStore
from tests.store.test_redaction import SECRET, everywhere


def test_a_text_is_gone_from_every_table(postgres):
    store = PostgresStore(postgres.url())
    told, quiet = everywhere(store)
    keys = [[call.key for call in store.calls(run)] for run in (told, quiet)]
    assert sum(store.holding([b"Zebra"]).values()) >= 12
    assert store.redact_text(SECRET)
    assert store.holding([b"Zebra"]) == {}
    assert store.find("text:zebra") == []
    assert store.verify() == []
    assert [[call.key for call in store.calls(run)] for run in (told, quiet)] == keys
    store.redact_runs([quiet])
    assert store.verify() == []
    store.close()
