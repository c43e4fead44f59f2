"""A store that is let go without being closed lets its file go."""

from __future__ import annotations

import gc
import weakref

from clew.store import open_store


def test_a_store_that_nobody_holds_is_closed(tmp_path):
    store = open_store(tmp_path / "store.db")
    store.find("sort:stars")
    gone = weakref.ref(store)
    del store
    gc.collect()
    assert gone() is None
