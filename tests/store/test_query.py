"""What a query means where the clock or a file's edge decides; the language itself is checked by the contract."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import numpy as np
import pytest

from clew.core.errors import BadQuery
from clew.core.records import Annotation
from clew.store import MemoryStore
from clew.store.contract import Script
from clew.store.sqlite import SQLiteStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    kept = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "runs.db")
    for name, ago in (("minutes", 600.0), ("hours", 3 * 3600.0), ("days", 2 * 86400.0), ("weeks", 30 * 86400.0)):
        Script(kept, name, created=time.time() - ago).play(1)
    yield kept
    if isinstance(kept, SQLiteStore):
        kept.close()


@pytest.mark.parametrize(
    ("query", "runs"),
    [
        ("after:2h", {"minutes"}),
        ("before:2h", {"hours", "days", "weeks"}),
        ("after:4h", {"minutes", "hours"}),
        ("after:1d", {"minutes", "hours"}),
        ("after:1w", {"minutes", "hours", "days"}),
        ("after:300s", set()),
        ("after:15m", {"minutes"}),
        ("after:5w", {"minutes", "hours", "days", "weeks"}),
        ("before:5w", set()),
    ],
)
def test_so_long_ago_lies_in_the_past(store, query, runs):
    assert set(store.find(query)) == runs


def test_a_date_is_a_local_midnight(store):
    tomorrow = (datetime.now() + timedelta(days=1)).date().isoformat()
    long_ago = (datetime.now() - timedelta(days=10)).date().isoformat()
    assert store.find(f"after:{tomorrow}") == []
    assert set(store.find(f"before:{tomorrow}")) == {"minutes", "hours", "days", "weeks"}
    assert set(store.find(f"before:{long_ago}")) == {"weeks"}


@pytest.mark.parametrize("value", ["9" * 5000 + "d", "0001-01-01", "2026-13-01", "2h2h", "-2h", "h", "x" * 9999])
def test_a_time_that_is_none_is_refused_in_a_short_sentence(store, value):
    with pytest.raises(BadQuery, match="it is no date") as caught:
        store.find(f"after:{value}")
    assert len(str(caught.value)) < 200


def test_a_time_before_all_times_selects_all(store):
    assert len(store.find("after:99999999999999999999w")) == 4


def test_values_of_methods_are_compared_wherever_they_stand(store):
    ask = next(call.seq for call in store.calls("hours") if call.kind == "ask")
    tokens = np.array([np.nan, 0.2, 0.9], np.float32)
    store.annotate(
        [
            Annotation("run", "gate-two", 0.4, "minutes"), Annotation("call", "g2po", -1.5, "hours", ask),
            Annotation("call", "g2po", 0.5, "days", 1), Annotation("run", "Mine.v2", 2.0, "weeks"),
            Annotation("tokens", "cliff", None, "hours", ask, values=tokens),
        ]
    )  # fmt: skip
    found = {
        "g2po<-1": {"hours"}, "g2po>-2": {"hours", "days"}, "-g2po>-2": {"minutes", "weeks"}, "g2po!=0.5": {"hours"},
        "cliff>.8 g2po<0": {"hours"}, "cliff>=.95": set(), "gate-two=0.4": {"minutes"}, "Mine.v2>1": {"weeks"},
    }  # fmt: skip
    assert {query: set(store.find(query)) for query in found} == found


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("g2op<1", "no method of this name has annotated a run here"), ("step>4", "Near: steps"),
        ("g2po<x", "there is no such field"), ("g2po:1", "there is no such field"), ("g2po<", "it has no value"),
    ],
)  # fmt: skip
def test_a_name_that_is_neither_field_nor_method_is_refused(store, query, told):
    with pytest.raises(BadQuery) as caught:
        store.find(query)
    assert told in f"{caught.value}\n{caught.value.remedy}"
