"""What only a store in a server can get wrong: its address, its rights, its texts, its derived tables."""

from __future__ import annotations

import json
import pickle
from urllib.parse import quote

import pytest

from clew.core.errors import BadInput, StoreBroken, StoreError, StoreNewer, StoreReadOnly, UnknownName
from clew.core.records import Annotation, RunRow
from clew.store import open_store
from clew.store.address import beside, place_of, read
from clew.store.contract import Script, fork_at
from clew.store.contract.script import make_node, same
from clew.store.sqlite import SQLiteStore
from clew.store.summary import document, says, summarise, words
from tests.postgres_server import PASSWORD


def filled(url: str, runs: int = 3):
    store = open_store(url)
    for number in range(runs):
        Script(store, f"run{number}", created=float(number)).play(2, float(number % 2))
    return store


# address


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgres://anna:s3cret@host:5433/db", "postgresql://anna@host:5433/db"),
        ("postgresql://anna:a%40b%2Fs3cret@host/db?sslmode=require", "postgresql://anna@host/db?sslmode=require"),
        ("postgresql://host/db?password=s3cret&schema=team_a", "postgresql://host/db?schema=team_a"),
        ("postgresql:///db?host=/run&schema=clew", "postgresql:///db?host=%2Frun"),
        ("postgresql://a,b:1/db", "postgresql://a,b:1/db"),
    ],
)
def test_an_address_is_shown_without_its_password(text, shown):
    place = place_of(text)
    assert str(place) == f"{place}" == json.loads(json.dumps(place)) == shown
    assert read(place).told == read(text).told  # it opens all the same
    assert read(pickle.loads(pickle.dumps(place))).told == read(text).told
    assert "s3cret" not in repr(place)
    assert beside(text) == beside(place)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://anna:s3/cret@host/db",
        "postgresql://anna:s3#cret@host/db",
        "postgresql://anna:s3?cret@host/db",
        "postgresql://anna:s3cret@host:port/db",
        "postgresql://anna:s3cret@[host/db",
        "postgresql://anna:s3cret@host/db?schema=Team",
        "postgresql://anna:s3cret@host/db?schema=a;drop",
    ],
)
def test_an_address_that_cannot_be_read_is_not_repeated(text):
    with pytest.raises(BadInput) as caught:
        open_store(text)
    assert caught.value.remedy
    assert "s3" not in str(caught.value)
    assert "cret" not in str(caught.value)


def reach(postgres, user: str, password: str, database: str = "postgres", **more: str) -> str:
    extra = "&".join(f"{key}={value}" for key, value in {"schema": "shared", **more}.items())
    return f"postgresql://{user}:{quote(password, safe='')}@127.0.0.1:{postgres.port}/{database}?{extra}"


@pytest.mark.whole
def test_who_is_not_let_in_hears_why_in_a_sentence(postgres):
    with filled(reach(postgres, "clew", PASSWORD)) as store:
        assert PASSWORD not in f"{store.path}{store.path!r}"
        assert len(store.run_ids()) == 3
    for url, word in (
        (reach(postgres, "clew", "wrong-s3cret"), "password"),
        (reach(postgres, "clew", PASSWORD, "nowhere"), "no such database"),
        (f"postgresql://clew:s3cret@127.0.0.1:{postgres.port}/postgres?sslmode=nonsense", "sslmode"),
        ("postgresql://clew:wrong-s3cret@127.0.0.1:1/db", "no server answers"),
        ("postgresql://clew:wrong-s3cret@nowhere.invalid/db", "no server answers"),
    ):
        with pytest.raises(StoreError, match=word) as caught:
            open_store(url)
        assert caught.value.remedy
        assert "s3cret" not in str(caught.value)
        assert PASSWORD not in str(caught.value)
        assert "\n" not in caught.value.message


def test_who_may_not_write_reads_and_who_may_nothing_hears_so(postgres):
    filled(reach(postgres, "clew", PASSWORD)).close()
    postgres.sql("CREATE ROLE reader LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA shared TO reader")
    postgres.sql("GRANT SELECT ON ALL TABLES IN SCHEMA shared TO reader; CREATE ROLE nobody_here LOGIN PASSWORD 'x'")
    with open_store(reach(postgres, "reader", "x")) as store:
        assert len(store.find("steps>1")) == 3
        assert store.verify() == []
        store.put_run(RunRow("new", "x"))
        with pytest.raises(StoreReadOnly) as caught:
            store.commit()
        assert "role" in caught.value.remedy
        store._rows.clear()
    with pytest.raises(StoreReadOnly, match="permission denied") as caught:
        open_store(reach(postgres, "nobody_here", "x"))
    assert "member" in caught.value.remedy
    with pytest.raises(StoreReadOnly, match="permission denied"):
        open_store(reach(postgres, "nobody_here", "x", schema="its_own"))


# shape


def test_a_store_of_a_newer_clew_and_what_is_no_store(postgres):
    url = postgres.url()
    with pytest.raises(UnknownName, match="no store"):
        open_store(url, create=False)
    filled(url).close()
    schema = read(url).schema
    postgres.sql(f"INSERT INTO {schema}.migration VALUES ('999-later', 0)")
    with pytest.raises(StoreNewer, match="999-later") as caught:
        open_store(url)
    assert "upgrade" in caught.value.remedy
    postgres.sql("CREATE SCHEMA theirs; CREATE TABLE theirs.things(x int)")
    with pytest.raises(StoreBroken, match="theirs"):
        open_store(postgres.url("theirs"))
    postgres.sql("CREATE DATABASE old ENCODING 'SQL_ASCII' TEMPLATE template0")
    with pytest.raises(StoreBroken, match="UTF8") as caught:
        open_store(postgres.url().replace("/postgres?", "/old?"))
    assert "createdb" in caught.value.remedy


def test_a_closed_store_says_so_and_had_written_what_waited(postgres):
    url = postgres.url()
    with filled(url) as store:
        Script(store, "last").open()
    with pytest.raises(StoreError, match="closed"):
        store.row("run0")
    with open_store(url) as again:
        assert len(again.calls("last")) == 1


# texts


def test_texts_that_postgresql_does_not_take(postgres):
    """NUL, lone surrogates and the character that escapes them, in every kind of text, as a file keeps them."""
    odd = "a\0b \ud800 c \uffff0000 \U0001f600 \\x41 %s ? $1"
    with open_store(postgres.url()) as store:
        run = Script(store, "r", task=odd, prompt=odd, agent=odd, taskset=odd, model=odd, origin=odd)
        run.open(odd)
        node = make_node(None, "user", odd, reasoning=odd)
        store.put_nodes([node])
        run.put("note", action=odd, error=odd, node_in=node.key)
        run.end()
        store.annotate([Annotation("run", odd, 1.0, "r", params=odd, data=odd)])
        kept, calls = store.row("r"), store.calls("r")
        store.commit()
        store._live.clear()
        assert store.row("r") == kept
        assert same(tuple(store.calls("r")), tuple(calls))
        assert store.node(node.key) == node
        assert [(a.method, a.params, a.data) for a in store.annotations(["r"])] == [(odd, odd, odd)]
        assert store.summary("r").task == odd
        assert store.summary("r").world == odd
        assert store.find('world:"%s ?"') == ["r"]
        assert store.verify() == []


# derived tables, against the slow twins


def test_summaries_and_searches_equal_those_of_the_calls_and_of_a_file(postgres, tmp_path):
    with filled(postgres.url(), 5) as store, SQLiteStore(tmp_path / "a.db") as file:
        forked = fork_at(store, store.run("run1"), 3, run="fork")
        forked.ask("the Fridge, it's OPEN; " + "x" * 5000, "> close_fridge now")
        forked.end()
        going = Script(store, "going", created=9.0)
        going.open("an open fridge")
        store.commit()
        file.merge(store)
        for made in store.summaries():
            assert made._replace(reward=None) == summarise(store.row(made.run), store.calls(made.run)), made
        assert sorted(file.summaries()) == sorted(store.summaries())
        for text in ("open fridge", "fridge it s open", "the fridge", "close fridge", "view 1", "x" * 5000, "nowhere"):
            wanted = {run for run in store.run_ids() if says(document(store, run), words(text))}
            assert store.search(words(text)) == wanted
            assert store.search(words(text)) == file.search(words(text))
        for query in ("steps>1 sort:-reward sort:id", "-world=toy", "task:TASK", "agent=play id:run", "parent:run1"):
            assert store.find(query) == file.find(query), query


def test_what_is_redacted_is_in_no_file_of_the_tables(postgres):
    with open_store(postgres.url()) as store:
        script = Script(store, "r")
        script.open("the word xyzzyplugh was said")
        script.end()
        store.commit()
        assert store.find("text:xyzzyplugh") == ["r"]
        postgres.sql("CHECKPOINT")

        def held() -> bool:
            files = (postgres.folder / "data" / "base").rglob("*")
            return any(b"xyzzyplugh" in file.read_bytes() for file in files if file.is_file())

        assert held()
        store.redact("r@0")
        postgres.sql("CHECKPOINT")
        assert not held()
        assert store.find("text:xyzzyplugh") == []
        assert store.verify() == []
