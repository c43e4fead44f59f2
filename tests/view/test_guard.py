"""Who is let in, and what hostile content does: nothing but show itself."""

from __future__ import annotations

import json

import pytest

from clew.core.net import loopback
from clew.core.records import Annotation
from clew.store import MemoryStore
from clew.store.contract import Script
from tests.view.conftest import serving

HOSTILE = {
    "script": "<script>fetch('/api/fork',{method:'POST'})</script><img src=x onerror=alert(1)>",
    "ansi": "\x1b[2J\x1b]0;owned\x07 \x00 \r\n",
    "bidi": "\u202egnp.exe\u2066\u2069",
    "surrogate": "broken \ud800 half \udfff",
    "separators": "\u2028\u2029</script>",
    "large": "x" * 10_000_000,
}


def test_every_answer_carries_the_headers(seen):
    for path in ("/", "/static/d3.js", "/api/store", "/api/run/nobody", "/nowhere"):
        headers = seen.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8420", "127.0.0.1.evil.example", "localhost.evil", ""])
def test_a_name_that_was_made_to_point_here_is_refused(seen, host):
    assert seen.get("/api/store", headers={"host": host}).status_code == 403
    assert seen.get("/", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1", "https://127.0.0.1:9"])
def test_a_page_from_another_origin_cannot_ask_nor_fork(seen, origin):
    assert seen.get("/api/store", headers={"origin": origin}).status_code == 403
    assert seen.push("/api/fork", {"run": "keep", "seq": 1}, status=403, origin=origin)["kind"] == "Denied"
    assert seen.json("/api/jobs") == []


def test_a_form_and_a_cross_site_request_cannot_fork(seen):
    body = json.dumps({"run": "keep", "seq": 1})
    assert seen.post("/api/fork", content=body, headers={"content-type": "text/plain"}).status_code == 415
    assert seen.push("/api/fork", {"run": "keep", "seq": 1}, status=403, **{"sec-fetch-site": "cross-site"})
    assert seen.get("/api/runs", headers={"sec-fetch-site": "same-site"}).status_code == 403
    assert seen.get("/api/fork").status_code == 405


def test_same_origin_and_addresses_are_let_in(seen):
    port = seen.base_url.port
    assert seen.get("/api/store", headers={"origin": f"http://127.0.0.1:{port}"}).status_code == 200
    assert seen.get("/api/store", headers={"host": "localhost:1"}).status_code == 200
    assert seen.get("/api/store", headers={"host": "[::1]:8420"}).status_code == 200


def test_a_token_is_asked_for_and_becomes_a_cookie():
    with serving(MemoryStore(), token="s3cret é") as client:
        assert client.json("/api/store", status=401)["remedy"]
        assert client.get("/api/events").status_code == 401
        client.push("/api/fork", {}, status=401)
        assert client.get("/?token=wrong").cookies == {}
        assert client.json("/api/store", status=401)
        assert client.get("/api/store", headers={"authorization": "Bearer s3cret"}).status_code == 401
        given = client.get("/", params={"token": "s3cret é"})
        assert given.status_code == 303
        assert given.headers["location"] == "/"
        cookie = given.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert client.json("/api/store")["runs"] == 0
    with serving(MemoryStore(), token="plain-token") as client:
        assert client.get("/api/store", headers={"authorization": "Bearer plain-token"}).status_code == 200


@pytest.mark.parametrize(
    ("host", "mine"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("example.org", False)],
)  # fmt: skip
def test_loopback(host, mine):
    assert loopback(host) is mine


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("place", ["memory", "file"])
def test_hostile_text_travels_as_json_and_never_as_html(kind, place, tmp_path):
    from clew.store.sqlite import SQLiteStore

    text = HOSTILE[kind]
    store = MemoryStore() if place == "memory" else SQLiteStore(tmp_path / "s.db")
    script = Script(store, "aaa", task="t", model=text[:100])
    script.open(text)
    script.ask(text, text)
    script.act(text, text, error=text[:1000])
    script.end()
    store.annotate([Annotation("call", "m", 0.5, "aaa", 1, data=json.dumps({"why": text}))])
    store.commit()
    with serving(store if place == "memory" else tmp_path / "s.db") as client:
        answers = [client.get(p) for p in ("/api/runs", "/api/run/aaa", "/api/run/aaa/calls", "/api/run/aaa/call/1")]
        for answer in answers:
            assert answer.status_code == 200
            assert answer.headers["content-type"] == "application/json"
            assert answer.content.isascii()
        calls = answers[2].json()["calls"]
        assert calls[0]["text"] == text[:20_000]
        assert calls[1]["said"][0]["text"] == calls[1]["reply"]["text"] == text[:20_000]
        assert calls[0].get("cut", len(text)) == len(text)
        whole = client.get(f"/api/node/{calls[1]['reply']['key']}/text")
        assert whole.headers["content-type"] == "text/plain; charset=utf-8"
        assert whole.content == text.encode("utf-8", "replace")
    store.close()


OUTSIDE = ("../web.py", "..%2fweb.py", "%2e%2e/web.py", ".hidden.js", "none.js", "app.py", "a//b.js")


@pytest.mark.parametrize("name", OUTSIDE)
def test_only_files_of_the_page_are_served(seen, name):
    assert seen.get(f"/static/{name}").status_code == 404


def test_d3_is_served_without_importing_what_brings_it(seen, monkeypatch):
    import sys

    from clew.core.errors import MissingExtra
    from clew.view import assets

    got = seen.get("/static/d3.js")
    assert got.headers["content-type"].startswith("text/javascript")
    assert b"d3" in got.content[:2000]
    assert "mpld3" not in sys.modules
    assets.d3.cache_clear()
    monkeypatch.setattr(assets, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="D3"):
        assets.d3()
    assert seen.json("/static/d3.js", status=501)["remedy"] == 'Run pip install "clew[view]".'


def test_read_only_forks_nothing_and_writes_nothing(path, tmp_path):
    import shutil

    copy = tmp_path / "s.db"
    shutil.copy(path, copy)
    before = copy.read_bytes()
    with serving(copy, readonly=True) as client:
        assert client.json("/api/store")["can_fork"] is False
        assert client.json("/api/runs", q="text:count")["total"] == 8
        assert client.push("/api/fork", {"run": "keep", "seq": 1}, status=403)["remedy"]
        client.push("/api/jobs/x/stop", status=403)
        assert client.push("/api/fork/command", {"run": "keep", "seq": 1})["command"].startswith("clew fork")
    assert copy.read_bytes() == before


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"run": "keep", "seq": 1, "temperature": NaN}',
        b'{"run": "keep", "seq": 1, "top_p": Infinity}',
        b'{"run": "keep", "seq": 1, "temperature": -Infinity}',
        b'{"run": "keep", "reply": "' + b"x" * (9 << 20) + b'"}',
        b"\xff\xfe",
        b"[]",
    ],
    ids=["deep", "nan", "inf", "-inf", "large", "no text", "no object"],
)
def test_a_body_that_is_no_wish_is_refused_in_one_sentence(seen, body):
    for path in ("/api/fork", "/api/fork/command"):
        answer = seen.post(path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400, answer.text[:200]
        assert len(answer.json()["error"]) < 300
    assert seen.json("/api/jobs") == []


def test_a_query_of_many_terms_is_refused_by_its_number(seen):
    told = seen.json("/api/runs", q="steps>1 " * 101, status=400)
    assert told["error"] == "more than 100 terms"
    assert seen.json("/api/runs", q="steps>0 " * 100)["total"] == 8
