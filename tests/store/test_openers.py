"""Who opens a store by the scheme of its address: one from outside, and what is said where nobody does."""

from __future__ import annotations

import pytest

from clew.core import registry
from clew.core.errors import MissingExtra, UnknownName
from clew.store import MemoryStore, open_store
from clew.store.address import beside, is_address, place_of
from clew.store.contract import Script, check_store

ADDRESS = "shelf://anna:s3cret@127.0.0.1/runs"


def test_a_store_from_outside_opens_by_its_scheme(monkeypatch):
    kept, told = MemoryStore(), []

    def opened(address, *, create=True, readonly=False):
        told.append((str(place_of(address)), create, readonly))
        return kept

    monkeypatch.setitem(registry._local, "stores", {"shelf": opened, "fresh": lambda address, **how: MemoryStore()})
    Script(open_store(place_of(ADDRESS)), "run0").play(2, 1.0)
    assert open_store(ADDRESS, create=False, readonly=True).run_ids() == ["run0"]
    shown = "shelf://anna@127.0.0.1/runs"
    assert told == [(shown, True, False), (shown, False, True)]
    assert beside(ADDRESS).parent.name.startswith("shelf-")
    check_store(lambda: open_store("fresh://127.0.0.1"))


def test_an_address_that_nobody_opens_names_no_password():
    with pytest.raises(UnknownName, match="no store is called 'shelf'") as caught:
        open_store(ADDRESS)
    assert "postgresql" in caught.value.remedy
    assert "s3cret" not in f"{caught.value}{caught.value.remedy}"


def test_postgresql_without_its_driver_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(MissingExtra, match="psycopg is not installed") as caught:
        open_store("postgresql://127.0.0.1:1/db")
    assert "clew[postgres]" in caught.value.remedy


@pytest.mark.parametrize("path", ["runs.db", "./a/b.db", ":memory:", "C:/runs.db", "/tmp/postgresql.db"])
def test_a_path_is_no_address(path):
    assert not is_address(path)
    assert place_of(path) == path


def test_a_file_may_be_opened_to_be_read_alone(tmp_path):
    with open_store(tmp_path / "s.db") as store:
        Script(store, "run0").play(1, 1.0)
    with open_store(tmp_path / "s.db", readonly=True) as store:
        assert store.readonly
        assert store.run_ids() == ["run0"]
