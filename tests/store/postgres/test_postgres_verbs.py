"""Verbs and the viewer over a PostgreSQL store, with a password that must never be shown."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from clew.store import open_store
from clew.store.contract import Script, fork_at
from tests.postgres_server import PASSWORD


@pytest.fixture
def url(postgres, request):
    place = (
        f"postgresql://clew:{quote(PASSWORD, safe='')}@127.0.0.1:{postgres.port}/postgres?schema={request.node.name}"
    )
    with open_store(place) as store:
        run = Script(store, "aaa222", created=1.0).play(3, 1.0)
        Script(store, "bbb222", created=2.0).play(2, 0.0)
        fork_at(store, run, 3, run="ccc222", created=3.0).end()
    return place


@pytest.mark.whole
def test_verbs(url, tmp_path, monkeypatch):
    from click.testing import CliRunner

    from clew.cli import verbs

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEW_STORE", url)
    shown = []

    def clew(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(verbs, words)
        assert done.exit_code == code, (words, done.output)
        shown.append(done.output)
        return done.output

    assert [row["run"] for row in json.loads(clew("log", "sort:id", "--json"))] == ["aaa222", "bbb222", "ccc222"]
    assert "result 1" in clew("show", "aaa")
    assert "aaa222" in clew("diff", "aaa", "ccc")
    assert "keep" in clew("store", "tag", "keep", "aaa")
    assert "aaa222" in clew("log", "tag:keep")
    assert "3 runs" in clew("export", "runs.jsonl")
    assert "3 runs" in clew("store", "merge", "--store", "copy.db", url)
    assert "erased" in clew("store", "redact", "bbb222@2", "--yes")
    assert "no faults" in clew("store", "verify", "--rebuild")
    assert "bbb222" in clew("store", "gc")
    assert "removed 2 runs" in clew("store", "gc", "--yes")
    assert "nothing new" not in clew("store", "merge", "copy.db")
    assert "no run is called" in clew("show", "zzz", code=2)
    assert "schema=empty" in clew("log", "--store", url.replace("=test_verbs", "=empty"), code=2)
    assert "runs" in clew("doctor")
    text = "\n".join(shown)
    assert PASSWORD not in text
    assert quote(PASSWORD, safe="") not in text


def test_the_viewer(url):
    pytest.importorskip("uvicorn", reason="did not run: the extra view is not installed")
    from tests.view.conftest import serving

    with serving(url) as page:
        pages = ["/", "/api/store", "/api/runs?q=sort:id", "/api/runs?q=text:view", "/api/run/aaa222", "/api/groups"]
        pages += ["/api/run/aaa222/calls?start=0&stop=5", "/api/run/aaa222/outline", "/api/diff?a=aaa222&b=ccc222"]
        told = [page.get(name) for name in pages]
        assert [answer.status_code for answer in told] == [200] * len(pages)
        assert "aaa222" in told[2].text
        assert not any(quote(PASSWORD, safe="") in answer.text or PASSWORD in answer.text for answer in told)
