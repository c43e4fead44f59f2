"""Portable runs: what goes along, what is scrubbed and what is not, and files of others, each refused in a sentence."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import subprocess
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from clew.core.errors import BadInput, ClewError
from clew.core.keys import BLOB, digest, encode
from clew.core.records import Annotation, GroupRow
from clew.core.values import Inner, ToolSpec
from clew.exchange import files
from clew.exchange.portable import Credentials, container, pack, unpack
from clew.exchange.portable.credentials import SHAPES, unpacked
from clew.serve import noted_files
from clew.serve.gateway import run_files
from clew.store import MemoryStore, Run, open_store
from clew.store.contract import Script, fork_at
from clew.store.contract.script import SETUP, same
from clew.worlds.workspace import Scan, TreeShelf
from clew.worlds.workspace.tree_shelf import CONTENT, FILE, FOLDER, LISTING, Entry

KEY = "sk-proj-" + "Ab3dEf6h" * 3
PEM = f"{'MIIEpAIBAAKCAQEA' * 4}\n" * 8
Made = dict[str, bytes]
PLANTED = {
    "sk-": KEY,
    "ghp_": "ghp_" + "a1B2c3D4e5" * 4,
    "gho_": "gho_" + "a1B2c3D4e5" * 4,
    "ghu_": "ghu_" + "a1B2c3D4e5" * 4,
    "ghs_": "ghs_" + "a1B2c3D4e5" * 4,
    "ghr_": "ghr_" + "a1B2c3D4e5" * 4,
    "github_pat_": "github_pat_11ABCDEFG0abcdefghijkl_0123456789",
    "glpat-": "glpat-a1B2c3D4e5a1B2c3D4e5",
    "AKIA": "AKIAQ3EGRZ2LTNABCDEF",
    "ASIA": "ASIAQ3EGRZ2LTNABCDEF",
    **{f"xox{kind}-": f"xox{kind}-123456789012-abcdefABCDEF" for kind in "abeprs"},
    "AIza": "AIza" + "a1B2c3D" * 5,
    "hf_": "hf_" + "aBcDeFgHiJ" * 3 + "kLmN",
    "npm_": "npm_" + "a1B2c3" * 6,
    "pypi-AgE": "pypi-AgEIcHlwaS5vcmc" + "a1B2c3D4e5" * 5,
    "gsk_": "gsk_" + "a1B2c3D4e5" * 5,
    **{mark: f"{mark}51HabcdEFGHijkl0123" for mark in ("sk_live_", "rk_live_", "sk_test_")},
    "eyJ": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "Bearer ": "Bearer abcdef0123456789.xyz",
    "bearer ": "bearer abcdef0123456789.xyz",
    "PRIVATE KEY-----": f"{'-' * 5}BEGIN RSA PRIVATE KEY-----\n{PEM}{'-' * 5}END RSA PRIVATE KEY-----",
}
INNOCENT = (
    "call_9fQ2xLkP7vB3nM5tR8wY1zAc",  # ids of tool calls, messages and requests
    "toolu_01A09q90qw90lq917835lq9",
    "chatcmpl-9x8y7z6w5v4u3t2s1r0qponm",
    "resp_68af4030baa48193b0b43b4c2a176a1a0e6967589f080e78",
    "req_011CSHoEeqs5C35K2UUqR7Fy",
    "da39a3ee5e6b4b0d3255bfef95601890afd80709",  # digests
    "sha512-Kd0hfP0g1ZqUeYlQ4vEwN7pR2xTjW8bLmC6yS3aFhGzI9oD5uVkXtBnMrQsPwEiJyHcAgLfZxUvOe1T4d7K==",
    "the risk-averse-and-well-known-strategies of desk-sharing-arrangements-2024",
    "sk-learn-contrib-imbalanced-and-more",
    "Authorization: Bearer YOUR_TOKEN_HERE_PLEASE",
    "-----BEGIN PRIVATE KEY----- <your key> -----END PRIVATE KEY-----",
    "4fzk2wabcdef@12+3",
)


@pytest.mark.parametrize("mark", [shape.mark.decode() for shape in SHAPES])
def test_every_shape_is_found_masked_and_found_in_a_packed_file(mark):
    known, text = Credentials(), PLANTED[mark]
    said = json.dumps({"out": f"it is {text}, so"})
    assert known.first(said)
    assert json.loads(known.masked(said)) == {"out": "it is [credential], so"}
    assert not known.first(known.masked(said))
    for file in (gzip.compress(encode(said)), zlib.compress(encode(said))):
        assert known.first_in_file(file)
        assert not known.first(file)


@pytest.mark.parametrize("text", INNOCENT)
def test_what_only_looks_random_is_left_alone(text):
    assert Credentials().first(text) == ""
    assert Credentials().masked(text) == text


def test_values_of_the_environment_count_where_they_are_named_as_secrets():
    environment = {
        "DB_PASSWORD": "correct-horse-42",
        "MY_API_KEY": 'odd"value\\0123',
        "HUB_TOKEN": "abcdefghijk1",
        "TOKENIZERS_PARALLELISM": "false-0123456",
        "SSH_KEY": "/home/a/.ssh/id_ed25519",
        "MONKEY": "banana-banana-1",
        "PASSWORD": "short1",
        "SECRET_NAME": "development-only",
        "HOME": "/home/someone-123",
    }
    known = Credentials.of_environment(environment)
    assert known.first("so: correct-horse-42.") == "the value of DB_PASSWORD"
    assert known.first(json.dumps({"a": 'odd"value\\0123'})) == "the value of MY_API_KEY"
    assert known.masked(json.dumps(['odd"value\\0123'])) == '["[credential]"]'
    assert known.first("abcdefghijk1") == "the value of HUB_TOKEN"
    for text in ("false-0123456", "/home/a/.ssh/id_ed25519", "banana-banana-1", "short1", "development-only"):
        assert known.first(text) == "", text


def test_objects_of_git_are_looked_into_packed_or_not(tmp_path):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "-q", "."], cwd=tmp_path, check=True)
    for n in range(4):
        (tmp_path / "notes.txt").write_text("a line of notes\n" * 200 + f"{n}\n" + (KEY if n == 2 else ""))
        subprocess.run([*git, "add", "-A"], cwd=tmp_path, check=True)
        subprocess.run([*git, "commit", "-qm", str(n)], cwd=tmp_path, check=True)
    known = Credentials()

    def hits() -> list[str]:
        found = [p for p in (tmp_path / ".git" / "objects").rglob("*") if p.is_file()]
        return [p.suffix for p in found if known.first_in_file(p.read_bytes())]

    assert hits() == [""]
    subprocess.run([*git, "gc", "-q"], cwd=tmp_path, check=True)
    assert hits() == [".pack"]
    pack_ = next((tmp_path / ".git").rglob("*.pack")).read_bytes()
    for cut in (b"PACK", pack_[:40], pack_[:-30], pack_[:12] + os.urandom(300)):
        assert isinstance([*unpacked(cut)], list)


def full(path: Path) -> tuple[Run, Run]:
    """A store with a run, a fork of it and a stranger, with annotations, a tag, groups and a child."""
    store = open_store(path)
    base = Script(store, "base22").play(3, 1.0)
    fork = fork_at(store, base, 3)
    fork.act("x", "y", snapshot=store.put_blob(b"snap"))
    fork.end()
    other = Script(store, "other2").play(2, 0.0)
    store.put_group(GroupRow("gtree2", "tree", "task-1", (base.id, fork.run)))
    store.put_group(GroupRow("giid22", "iid", "task-1", (base.id, other.id)))
    store.annotate([Annotation("group", "spread", 0.5, run=name) for name in ("gtree2", "giid22")])
    store.annotate([Annotation("node", "liked", 1.0, node=next(store.each_node()).key)])
    store.tag(fork.run, "kept")
    store.put_metrics("training", 0, {"x": 1.0})
    store.put_outcomes("m", "base22@1", [1], [1.0], [0.0])
    store.commit()
    return base, Run(store, fork.run)


def test_a_fork_comes_with_its_parent_and_nothing_else(tmp_path):
    base, fork = full(tmp_path / "a.db")
    here = fork.store
    done = pack(here, [fork.id], tmp_path / "f.clew")
    assert (done.told.runs, done.told.along, done.told.erased, done.told.masked) == ([fork.id], [base.id], [], [])
    there = open_store(tmp_path / "b.db")
    assert unpack(there, tmp_path / "f.clew").new["runs"] == 2
    assert set(there.run_ids()) == {base.id, fork.id}
    for run in (base, fork):
        assert there.row(run.id) == here.row(run.id)
        assert same(tuple(there.calls(run.id)), tuple(here.calls(run.id)))
        assert same(sorted(there.annotations([run.id])), sorted(here.annotations([run.id])))
    assert there.blob(there.calls(fork.id)[3].snapshot) == b"snap"
    assert there.group("gtree2") == here.group("gtree2")
    assert there.group("giid22").runs == (base.id,)
    assert [a.run for a in there.annotations(target="group")] == ["gtree2"], "a part of a group has no value of it"
    assert len(there.annotations(target="node")) == 1
    assert there.tags() == here.tags()
    assert there.outcome_places() == [("m", "base22@1")]
    assert there.trainings() == []
    assert there.verify() == []
    assert not any(unpack(there, tmp_path / "f.clew").new.values())
    again = fork_at(there, fork, 3)
    again.act("z", "w")
    again.end()
    assert there.verify() == []


def test_members_of_one_group_that_come_in_two_files_are_one_group_again(tmp_path):
    base, _ = full(tmp_path / "a.db")
    there = open_store(tmp_path / "b.db")
    for name in ("base22", "other2"):
        pack(base.store, [name], tmp_path / f"{name}.clew")
        unpack(there, tmp_path / f"{name}.clew")
    assert there.group("giid22") == base.store.group("giid22")


def test_unzipped_it_is_a_store_and_its_shelf(tmp_path):
    _, path = with_files(tmp_path)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "open")
    store, shelf = open_store(tmp_path / "open" / "runs.db"), TreeShelf(tmp_path / "open" / "files")
    run = store.run("base22")
    assert shelf.listing(next(iter(noted_files.trees(run.store, [run.id]))))[0].name == "a"


def test_what_no_key_covers_is_masked_and_what_one_covers_is_erased(tmp_path):
    store = open_store(tmp_path / "a.db")
    script = Script(store, "said22", config=json.dumps({"key": KEY, "n": 3}), meta=json.dumps({"env": [KEY]}))
    script.open()
    script.ask("view", "fine")
    script.act("cat .env", f"KEY={KEY}")
    script.ask("more", "yes", inner=(Inner("small", text=f"with {KEY}"),))
    script.ask("and", f"I will use {KEY}")
    script.act("go", "gone", snapshot=store.put_blob(gzip.compress(encode(KEY))))
    script.end()
    store.annotate([Annotation("run", "note", run="said22", data=json.dumps({"why": KEY}))])
    store.commit()
    done = pack(store, ["said22"], tmp_path / "f.clew")
    calls = store.calls("said22")
    replied = [c.node_out and KEY in store.node(c.node_out).message.text for c in calls]
    hit = [c.seq for c, bad in zip(calls, replied, strict=True) if bad or c.snapshot or KEY in str((c.text, c.inner))]
    assert len(hit) == 4
    assert [place for place in done.told.erased if "@" in place] == sorted(f"said22@{seq}" for seq in hit)
    assert set(done.told.masked) == {"said22", "note of said22"}
    with zipfile.ZipFile(tmp_path / "f.clew") as archive:
        assert not any(encode(KEY) in archive.read(name) for name in archive.namelist())
    there = open_store(tmp_path / "b.db")
    unpack(there, tmp_path / "f.clew")
    assert there.verify() == []
    assert [c.key for c in there.calls("said22")] == [c.key for c in calls]
    assert json.loads(there.row("said22").config) == {"key": "[credential]", "n": 3}
    assert json.loads(there.annotations(["said22"], "note")[0].data) == {"why": "[credential]"}
    assert there.calls("said22")[1].node_out == calls[1].node_out
    assert there.node(calls[1].node_out) == store.node(calls[1].node_out), "what holds none stays"
    assert KEY in store.row("said22").config
    assert store.tombstones() == {}, "the store itself stays as it is"


def test_a_credential_that_cannot_be_taken_out_ends_the_export(tmp_path):
    store = open_store(tmp_path / "a.db")
    script = Script(store, "tool22")
    script.open()
    told = SETUP._replace(tools=(ToolSpec("look", f"use {KEY}", {"type": "object"}),))
    first = script.ask("view", "fine")
    same_place = {name: getattr(first, name) for name in ("conversation", "node_in", "node_out", "logprobs", "head")}
    script.put("ask", **same_place, setup=told, finish="stop")
    script.end()
    store.commit()
    with pytest.raises(BadInput, match=r"the record holds a key of OpenAI.* \(blob.body\)"):
        pack(store, ["tool22"], tmp_path / "f.clew")
    assert not (tmp_path / "f.clew").exists()
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".clew")] == []


def test_what_was_redacted_stays_redacted_and_erases_nothing_elsewhere(tmp_path):
    base, fork = full(tmp_path / "a.db")
    pack(base.store, [fork.id], tmp_path / "whole.clew")
    base.store.redact(f"{base.id}@1")
    pack(base.store, [fork.id], tmp_path / "part.clew")
    there, fresh = open_store(tmp_path / "b.db"), MemoryStore()
    unpack(there, tmp_path / "whole.clew")
    unpack(there, tmp_path / "part.clew")
    assert there.tombstones() == {}
    assert there.node(there.calls(base.id)[1].node_out).message.text
    unpack(fresh, tmp_path / "part.clew")
    assert fresh.tombstones() == base.store.tombstones() != {}
    assert there.verify() == fresh.verify() == []


def with_files(place: Path) -> tuple[Run, Path]:
    """A run with a snapshot of two folders, and its portable run."""
    store, shelf = open_store(place / "s.db"), TreeShelf(place / "files")
    (place / "work" / "a" / "b").mkdir(parents=True)
    (place / "work" / "a" / "b" / "x.txt").write_text("xyz")
    (place / "work" / "zeros").write_bytes(bytes(3 << 20))
    found = Scan(place / "work", shelf).snapshot()
    run = Script(store, "base22").play(2, 1.0)
    store.annotate([run_files.noted(run.id, "end", {"tree": found.tree, "state": found.state, "left": 0})])
    store.commit()
    pack(store, [run.id], place / "f.clew", shelf=shelf)
    return run, place / "f.clew"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_files(tmp_path_factory.mktemp("good"))[1]


def members(path: Path) -> Made:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(path: Path, made: Made, twice: str = "") -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, data in [*made.items(), *([(twice, made[twice])] if twice else [])]:
            archive.writestr(name, data)


def told(made: Made, **changes: object) -> None:
    made["manifest.json"] = json.dumps(json.loads(made["manifest.json"]) | changes).encode()


def sealed(made: Made, place: Path, change: Callable[[sqlite3.Connection], object]) -> None:
    """Change the store inside, and let the manifest say that it is so."""
    (place / "in.db").write_bytes(made["runs.db"])
    with sqlite3.connect(place / "in.db") as db:
        change(db)
    db.close()
    made["runs.db"] = (place / "in.db").read_bytes()
    told(made, store=digest(BLOB, made["runs.db"]).hex())


def sql(statement: str) -> Callable[[Made, Path], None]:
    return lambda made, place: sealed(made, place, lambda db: db.executescript(statement))


def snapshot(made: Made, place: Path, tree: str, shelf: TreeShelf) -> None:
    """Let the run have another snapshot, with all objects of a shelf."""
    data = json.dumps({"tree": tree, "state": tree, "left": 0})
    sealed(made, place, lambda db: db.execute("UPDATE annotation SET data = ? WHERE data LIKE '%tree%'", (data,)))
    for name in [name for name in made if name.startswith("files/")]:
        del made[name]
    for path in shelf.folder.glob("[0-9a-f][0-9a-f]/*"):
        made[f"files/{path.parent.name}/{path.name}"] = path.read_bytes()
    told(made, objects=len(made) - 2)


def folder(shelf: TreeShelf, entries: list[tuple[str, str]]) -> str:
    return shelf.put_listing([Entry(name, FOLDER, 0o755, 0, key, key, 0) for name, key in entries])[0]


def deep(made: Made, place: Path) -> None:
    shelf = TreeShelf(place / "deep")
    key = folder(shelf, [])
    for _ in range(400):
        key = folder(shelf, [("d", key)])
    snapshot(made, place, key, shelf)


def wide(made: Made, place: Path) -> None:
    """A million files in thirty objects: each folder names the next one twice."""
    shelf = TreeShelf(place / "wide")
    content = shelf.put(b"x", CONTENT)
    key, _ = shelf.put_listing([Entry("f", FILE, 0o644, 0, content, content, 1)])
    for _ in range(30):
        key = folder(shelf, [("a", key), ("b", key)])
    snapshot(made, place, key, shelf)


def upwards(made: Made, place: Path) -> None:
    shelf = TreeShelf(place / "up")
    content = shelf.put(b"x", CONTENT)
    row = json.dumps(["../../evil", "f", 0o644, 0, content, content, 1])
    snapshot(made, place, shelf.put(encode(row), LISTING), shelf)


def altered(made: Made, place: Path) -> None:
    name = next(name for name in made if made[name] == b"xyz")
    made[name] = b"abc"


def missing(made: Made, place: Path) -> None:
    del made[next(name for name in made if made[name] == b"xyz")]
    told(made, objects=len(made) - 2)


def besides(made: Made, place: Path) -> None:
    made["files/00/" + "0" * 30] = b"more"
    told(made, objects=len(made) - 2)


def circle(made: Made, place: Path) -> None:
    """Two messages, each the other's parent; a tombstone on each keeps the proof from looking."""

    def change(db: sqlite3.Connection) -> None:
        keys = [key for (key,) in db.execute("SELECT key FROM node LIMIT 2")]
        for key, parent in (keys, keys[::-1]):
            db.execute("UPDATE node SET parent = ? WHERE key = ?", (parent, key))
            db.execute("INSERT INTO tombstone VALUES (?, 0, x'')", (key.hex(),))

    sealed(made, place, change)


BAD: dict[str, tuple[Callable[[Made, Path], None], str]] = {
    "a name that leads out": (lambda made, _: made.update({"../evil": b"x"}), "a member that no portable run has"),
    "an absolute name": (lambda made, _: made.update({"/tmp/evil": b"x"}), "a member that no portable run has"),
    "an object's name with more": (
        lambda made, _: made.update({"files/../" + "0" * 30: b"x"}),
        "a member that no portable run has",
    ),
    "no manifest": (lambda made, _: made.pop("manifest.json"), "holds no runs of Clew"),
    "no store": (lambda made, _: made.pop("runs.db"), "holds no runs of Clew"),
    "a manifest that is no JSON": (lambda made, _: made.update({"manifest.json": b"{"}), "a manifest that is none"),
    "a manifest of another": (lambda made, _: told(made, format="zip"), "no portable run of Clew"),
    "a newer one": (lambda made, _: told(made, version=99), "written by a newer Clew"),
    "a manifest with other types": (lambda made, _: told(made, runs=[1]), "lacks what every manifest says"),
    "a manifest that is huge": (
        lambda made, _: told(made, more="x" * (17 << 20)),
        "a member of more than 16,777,216 bytes",
    ),
    "a manifest of other runs": (lambda made, _: told(made, runs=["other"]), "does not hold the runs that it says"),
    "an object altered": (altered, "which was altered"),
    "an object missing": (missing, "lacks an object"),
    "an object besides": (besides, "objects that no snapshot names"),
    "a store altered": (
        lambda made, _: made.update({"runs.db": made["runs.db"][:-1] + b"x"}),
        "runs that were altered",
    ),
    "a store that is none": (
        lambda made, _: (made.update({"runs.db": b"x" * 5000}), told(made, store=digest(BLOB, b"x" * 5000).hex())),
        "runs that cannot be read",
    ),
    "a call altered": (sql("UPDATE call SET text = 'other' WHERE text != ''"), "a record that was altered"),
    "a message altered": (sql("UPDATE node SET text = 'other'"), "a record that was altered"),
    "a trigger": (
        sql("CREATE TRIGGER t AFTER INSERT ON call BEGIN DELETE FROM run; END"),
        "the trigger 't', which Clew never makes",
    ),
    "a view": (sql("CREATE VIEW v AS SELECT 1"), "the view 'v', which Clew never makes"),
    "a table besides": (sql("CREATE TABLE more(x)"), "tables that Clew never makes"),
    "a computed column": (sql("ALTER TABLE tag ADD COLUMN y AS (length(name))"), "tables that Clew never makes"),
    "an id that is a path": (sql("UPDATE ident SET id = '../x' WHERE id = 'base22'"), "a run whose id is none"),
    "no JSON where it should be": (sql("UPDATE run SET config = '[1'"), "a record that is damaged"),
    "a list for an object": (sql("UPDATE run SET meta = '[]'"), "of which it does not say how it was started"),
    "a tag that is none": (sql("INSERT INTO tag SELECT 'a b', max(no) FROM run"), "'a b' cannot be a name"),
    "a training": (sql("INSERT INTO metric VALUES ('t', 0, 'x', 1.0)"), "memories or trainings"),
    "a conversation in a circle": (circle, "a conversation without a beginning"),
    "files noted as none": (sql("UPDATE annotation SET data = '[]' WHERE data LIKE '%tree%'"), "is damaged"),
    "a tree that is no key": (
        sql("""UPDATE annotation SET data = '{"tree": "../../etc"}' WHERE data LIKE '%tree%'"""),
        "is damaged",
    ),
    "folders in folders": (deep, "more folders in folders than Clew takes"),
    "a million names in thirty objects": (wide, "larger than any that Clew takes"),
    "a file that leads out": (upwards, "names what no folder holds"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_hostile_file_is_refused_in_a_sentence_and_nothing_is_taken(good, tmp_path, what):
    change, said = BAD[what]
    made = members(good)
    change(made, tmp_path)
    write(tmp_path / "bad.clew", made)
    store, shelf = open_store(tmp_path / "t.db"), TreeShelf(tmp_path / "shelf")
    with pytest.raises(ClewError) as caught:
        unpack(store, tmp_path / "bad.clew", shelf)
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 300
    assert store.run_ids() == []
    assert [p for p in shelf.folder.rglob("*") if p.is_file() and p.name != "lock"] == []
    assert not (tmp_path.parent / "evil").exists()


def test_memories_never_come_in(good, tmp_path):
    made = members(good)
    (tmp_path / "in.db").write_bytes(made["runs.db"])
    with sqlite3.connect(tmp_path / "in.db") as db:
        db.execute("INSERT INTO entry VALUES (1, x'00', 'shop', 'item', 0.0, 'add', '{}')")
    db.close()
    made["runs.db"] = (tmp_path / "in.db").read_bytes()
    told(made, store=digest(BLOB, made["runs.db"]).hex())
    write(tmp_path / "bad.clew", made)
    with pytest.raises(ClewError):
        unpack(store := open_store(tmp_path / "t.db"), tmp_path / "bad.clew")
    assert store.memories() == []
    assert store.run_ids() == []


def test_the_good_file_is_taken_with_its_files(good, tmp_path):
    store, shelf = open_store(tmp_path / "t.db"), TreeShelf(tmp_path / "shelf")
    done = unpack(store, good, shelf)
    assert done.objects == 5
    with zipfile.ZipFile(good) as archive:
        stored = [e.compress_type == zipfile.ZIP_STORED for e in archive.infolist() if e.file_size == 3 << 20]
    assert stored == [True], "what packs too well is not packed, so that a reader's bound never meets it"
    tree = next(iter(noted_files.trees(store, ["base22"])))
    assert [path for path, _ in shelf.walk(tree)] == ["a", "a/b", "a/b/x.txt", "zeros"]


def tried(path: Path, data: bytes) -> ClewError | None:
    """What is said of a file; None where it is taken, whole and sound."""
    path.write_bytes(data)
    store = MemoryStore()
    try:
        unpack(store, path)
    except ClewError as error:
        return None if store.run_ids() else error
    return ClewError("taken unsound\n") if store.verify() else None


def test_torn_doubled_and_locked_zips_are_refused(good, tmp_path):
    data, path = good.read_bytes(), tmp_path / "bad.clew"
    torn = [data[:-1], data[: len(data) // 2], data[:10], b"", data + b"x"]
    torn += [data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :] for at in range(40, len(data), len(data) // 40)]
    refused = [error for piece in torn if (error := tried(path, piece)) is not None]
    assert len(refused) > 30
    assert all("\n" not in error.message for error in refused)
    write(path, members(good), twice="runs.db")
    with pytest.raises(ClewError, match="holds a member twice"):
        unpack(MemoryStore(), path)
    locked = bytearray(data)
    at = locked.rindex(b"PK\1\2")
    locked[at + 8] |= 1
    path.write_bytes(locked)
    with pytest.raises(ClewError, match="locked"):
        unpack(MemoryStore(), path)


def test_a_zip_that_unpacks_to_much_more_than_it_is_ends_early(good, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "UNPACKED", 1 << 20)
    made = members(good)
    made["runs.db"] = bytes(64 << 20)
    for name in [name for name in made if name.startswith("files/")]:
        del made[name]
    told(made, objects=0)
    write(tmp_path / "bad.clew", made)
    with pytest.raises(ClewError, match="unpacks to more than"):
        unpack(MemoryStore(), tmp_path / "bad.clew")


def test_a_list_of_members_that_is_too_long_is_never_read(good, tmp_path, monkeypatch):
    monkeypatch.setattr(container, "DIRECTORY", 100)
    with pytest.raises(ClewError, match="lists more members"):
        unpack(MemoryStore(), good)


def test_a_run_that_differs_under_one_id_is_refused(good, tmp_path):
    store = open_store(tmp_path / "t.db")
    script = Script(store, "base22")
    script.open("Another door.")
    store.commit()
    with pytest.raises(ClewError, match="differ") as caught:
        unpack(store, good)
    assert caught.value.at == "base22@0"


def test_a_credential_in_the_settings_of_a_run_is_masked_whatever_it_looks_like(tmp_path):
    odd, plain = "my-odd-key-4711", "hunter2"
    store = open_store(tmp_path / "a.db")
    config = {"api_key": odd, "deep": [{"password": plain, "tokens": "many", "n": 3}], "key": "door"}
    script = Script(store, "said22", config=json.dumps(config))
    script.open()
    script.ask("view", f"I was given {odd}")
    script.ask("more", "fine")
    script.end()
    store.commit()
    pack(store, ["said22"], tmp_path / "f.clew")
    with zipfile.ZipFile(tmp_path / "f.clew") as archive:
        held = b"".join(archive.read(name) for name in archive.namelist())
    assert encode(odd) not in held
    assert encode(plain) not in held
    there = open_store(tmp_path / "b.db")
    unpack(there, tmp_path / "f.clew")
    kept = json.loads(there.row("said22").config)
    assert kept["api_key"] == kept["deep"][0]["password"] == "[credential]"
    assert kept["deep"][0] == {"password": "[credential]", "tokens": "many", "n": 3}
    assert kept["key"] == "door"
    assert there.verify() == []
