"""Redactions that leave something behind must not say that nothing is left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from clew.cli import verbs
from clew.store.contract.script import Script
from clew.store.sqlite import SQLiteStore

CASE = (
    '{"task":"t","messages":[{"role":"user","content":"my secret is ZEBRAQUARTZ77 ok"},'
    '{"role":"assistant","content":"I note ZEBRAQUARTZ77 and more"},{"role":"user","content":"thanks"},'
    '{"role":"assistant","content":"bye","tool_calls":[{"id":"1","type":"function",'
    '"function":{"name":"f","arguments":"{\\"k\\":\\"ZEBRAQUARTZ77\\"}"}}]},'
    '{"role":"tool","tool_call_id":"1","content":"ZEBRAQUARTZ77"},{"role":"assistant","content":"end"}]}\n'
)
WORD = "ZEBRAQUARTZ77"
GONE = "finds nothing of it"


@pytest.fixture
def clew(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLEW_STORE", raising=False)

    def call(*args, code: int | None = 0):
        done = CliRunner().invoke(verbs, [str(a) for a in args])
        assert code is None or done.exit_code == code, done.output
        return done

    return call


@pytest.fixture
def imported(clew, tmp_path):
    (tmp_path / "x.jsonl").write_text(CASE)
    clew("import", "x.jsonl", "--store", "s.db")
    return json.loads(clew("log", "--store", "s.db", "--json").output)[0]["run"]


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("s.db*") if path.is_file())


@pytest.mark.parametrize("way", ["text", "run", "query", "each"])
def test_a_redacted_import_is_read_by_every_reader(clew, imported, tmp_path, way):
    """The truth: it is gone, and the rest is still of use."""
    if way != "each":  # a note that quotes a word of a call is no repetition of the call
        clew("label", imported, "--note", f"says {WORD}", "--by", "ann", "--store", "s.db")
    clew("log", f"text:{WORD}", "--store", "s.db")  # fills the index of words
    if way == "each":
        store = SQLiteStore(tmp_path / "s.db")
        places = [f"{imported}@{seq}" for seq in range(6)] + [node.key.hex() for node in store.each_node()]
        store.close()
        for place in places:
            clew("store", "redact", place, "--yes", "--store", "s.db")
        assert WORD.encode() not in bytes_of(tmp_path)
    given = {"text": ["--text", WORD], "run": [imported], "query": [f"text:{WORD}"], "each": ["--text", WORD]}[way]
    told = clew("store", "redact", *given, "--yes", "--store", "s.db").output
    assert "to be erased: " in told
    assert way not in ("text", "each") or GONE in told
    assert WORD.encode() not in bytes_of(tmp_path)
    assert "(redacted)" in clew("show", imported, "--store", "s.db").output
    for name in ("o.jsonl", "o.parquet", "o.atif.json", "o.otlp.jsonl", "o.csv", "o.eval", "o.clew"):
        clew("export", name, "--store", "s.db", code=None if name == "o.eval" else 0)
    assert json.loads((tmp_path / "o.jsonl").read_text())["messages"][0]["content"] == "(redacted)"
    clew("diff", imported, imported, "--store", "s.db")
    said = clew("store", "verify", "--store", "s.db").output
    assert ("no faults" if way in ("text", "each") else "not tested: all that it recorded is redacted") in said
    assert "calls and messages are redacted" in said
    for verb in (["replay", imported], ["fork", f"{imported}@5", "--model", "echo"]):
        refused = clew(*verb, "--store", "s.db", code=None)
        assert refused.exit_code != 0
        assert "was redacted" in refused.output
        assert "restore" not in refused.output
    assert clew("store", "redact", *given, "--yes", "--store", "s.db", code=None).exit_code in (0, 2)


def test_a_name_of_a_file_in_a_training_is_told_as_left(clew, imported, tmp_path):
    (tmp_path / "trainings" / "t").mkdir(parents=True)
    (tmp_path / "trainings" / "t" / "rows.jsonl").write_text(f"{WORD}\n")
    told = clew("store", "redact", "--text", WORD, "--yes", "--store", "s.db", code=1).output
    assert GONE not in told
    assert "trainings/t/rows.jsonl" in told


def test_the_id_of_a_run_is_told_as_left(clew, tmp_path):
    store = SQLiteStore(tmp_path / "s.db")
    Script(store, "r-zebra77").play(1)
    store.close()
    told = clew("store", "redact", "--text", "zebra77", "--yes", "--store", "s.db", code=1).output
    assert GONE not in told
    assert "still there" in told


def test_a_reader_that_holds_the_log_keeps_redact_from_passing(clew, imported, tmp_path, monkeypatch):
    """Another process reads an old state of the file: the bytes cannot leave it yet."""
    monkeypatch.setattr("clew.store.sqlite.database.BUSY", 0.1)
    other = SQLiteStore(tmp_path / "s.db")
    other._db.execute("BEGIN")
    other._db.execute("SELECT count(*) FROM node").fetchall()
    done = clew("store", "redact", "--text", WORD, "--yes", "--store", "s.db", code=None)
    assert done.exit_code != 0
    assert GONE not in done.output
    other._db.execute("COMMIT")
    other.close()
    assert GONE in clew("store", "redact", "--text", WORD, "--yes", "--store", "s.db").output
    assert WORD.encode() not in bytes_of(tmp_path)


def test_other_runs_with_the_same_words_are_told(clew, imported, tmp_path):
    """A run is erased whole; another that says the same in 32 characters or more is not hidden from who asks."""
    store = SQLiteStore(tmp_path / "s.db")
    for name in ("r1", "r2"):
        script = Script(store, name)
        script.open("a text that is long enough to be told from others by itself")
        script.end()
    store.close()
    told = clew("store", "redact", "r1", "--yes", "--store", "s.db").output
    assert "rows of other runs hold one of the same texts" in told
    assert "rows of other runs" not in clew("store", "redact", "r2", "--yes", "--store", "s.db").output


def test_forks_of_programs_and_snapshots_are_searched(clew, imported, tmp_path):
    place = tmp_path / "s.db.forks" / imported / "src"
    place.mkdir(parents=True)
    (place / "a.py").write_text(f"# {WORD}\n")
    (place / "b.py").write_text("# else\n")
    told = clew("store", "redact", "--text", WORD, "--yes", "--store", "s.db").output
    assert "1 files in folders of forks" in told
    assert [path.name for path in place.iterdir()] == ["b.py"]
    clew("store", "redact", imported, "--yes", "--store", "s.db")
    assert not place.exists()


def test_a_line_that_means_nothing_is_refused(clew, imported):
    for words in (["--text", "abc"], ["--text", WORD, imported], [], ["--text", WORD, "--files", "x"], ["no-such-run"]):
        assert clew("store", "redact", *words, "--yes", "--store", "s.db", code=None).exit_code == 2


def test_importing_the_file_again_is_not_silent(clew, imported, tmp_path):
    clew("store", "redact", "--text", WORD, "--yes", "--store", "s.db")
    again = clew("import", "x.jsonl", "--store", "s.db").output
    assert "messages of 1 of these runs were redacted in this store and stay so" in again
    (tmp_path / "other.jsonl").write_text(CASE.replace(WORD, "nothing"))
    assert "redacted" not in clew("import", "other.jsonl", "--store", "other.db").output
    clew("store", "redact", "--text", WORD, "--yes", "--store", "s.db")
    assert WORD.encode() not in bytes_of(tmp_path)
