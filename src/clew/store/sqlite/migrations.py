"""The shape of a store file, as named steps. Steps are only ever added, and each is idempotent.

A file carries the names of the steps applied to it; a name that is not known here means a newer Clew wrote the file.
Derived tables are no part of this: ``listing.py`` and ``word_index.py`` make and remake them.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable

from clew.core.errors import StoreBroken, StoreNewer, StoreReadOnly

APPLICATION = 0x434C4557  # "CLEW" in the file's header

# Repeated strings (run ids, roles, tokenizers, finish reasons) are numbers of `ident`; 0 is the empty string.
# `call.at` is run << 24 | seq, so that one B-tree holds the Calls of a run side by side and needs no second index.
# Equal settings, tool schemas, legal lists and tasks are one row of `blob`, named by digest.
GROUND = """
CREATE TABLE IF NOT EXISTS ident(no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE);
INSERT OR IGNORE INTO ident VALUES (0, '');
CREATE TABLE IF NOT EXISTS blob(key BLOB PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS node(
  key BLOB PRIMARY KEY, parent BLOB NOT NULL, role INTEGER NOT NULL, text TEXT NOT NULL, more TEXT, ids BLOB,
  tokenizer INTEGER NOT NULL, text_key BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS run(
  no INTEGER PRIMARY KEY, agent TEXT, taskset TEXT, model TEXT, task_id TEXT, task BLOB, agent_digest TEXT,
  config TEXT, seed INTEGER, grp TEXT, ord TEXT, parent TEXT, changes TEXT, lineage TEXT, spawned_by TEXT,
  origin TEXT, created REAL, meta TEXT);
CREATE TABLE IF NOT EXISTS call(
  at INTEGER PRIMARY KEY, kind INTEGER NOT NULL, request BLOB, after INTEGER, done INTEGER NOT NULL, key BLOB,
  conversation INTEGER, node_in BLOB, node_out BLOB, action TEXT, text TEXT, reward REAL, terminal INTEGER,
  legal BLOB, state BLOB, snapshot BLOB, child INTEGER, head INTEGER, forced INTEGER, logprobs BLOB, entropies BLOB,
  seed INTEGER, setup BLOB, packed TEXT, finish INTEGER, prompt INTEGER, completion INTEGER, cached INTEGER,
  cost REAL, started REAL, seconds REAL, attempts TEXT, error TEXT);
CREATE TABLE IF NOT EXISTS grp(no INTEGER PRIMARY KEY, kind TEXT, task_id TEXT, runs TEXT, name TEXT);
CREATE TABLE IF NOT EXISTS series(
  no INTEGER PRIMARY KEY, method TEXT, version TEXT, params TEXT, scope INTEGER,
  UNIQUE(method, version, params, scope));
CREATE TABLE IF NOT EXISTS annotation(
  run INTEGER, target INTEGER, series INTEGER, seq INTEGER, node BLOB, value REAL, vals BLOB, data TEXT,
  PRIMARY KEY(run, target, series, seq, node)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lease(run INTEGER PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL);
CREATE TABLE IF NOT EXISTS tag(name TEXT, run INTEGER, PRIMARY KEY(name, run)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS report(id TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS outcome(
  method TEXT, cursor TEXT, seeds BLOB, outcomes BLOB, costs BLOB, PRIMARY KEY(method, cursor));
CREATE TABLE IF NOT EXISTS metric(
  training TEXT, step INTEGER, name TEXT, value REAL, PRIMARY KEY(training, step, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tombstone(place TEXT PRIMARY KEY, at REAL NOT NULL, issue BLOB NOT NULL)
"""

SETTINGS = {"sampling", "limits", "snapshot_every", "name", "fork_limits"}  # what Clew once kept in `run.meta`


def _ground(db: sqlite3.Connection) -> None:
    for statement in GROUND.split(";\n"):
        db.execute(statement)


def _settings(db: sqlite3.Connection) -> None:
    """A column for what a run was started with; `meta` keeps what an importer knew."""
    if "settings" not in {column for _, column, *_ in db.execute("PRAGMA table_info(run)")}:
        db.execute("ALTER TABLE run ADD COLUMN settings TEXT NOT NULL DEFAULT '{}'")
    for no, text in db.execute("SELECT no, meta FROM run WHERE meta != '{}' AND settings = '{}'").fetchall():
        try:
            meta = json.loads(text)
            ours = {name: meta.pop(name) for name in SETTINGS & meta.keys()}
        except (ValueError, AttributeError):  # no JSON object, so Clew did not write it
            continue
        if ours:
            both = (json.dumps(ours, sort_keys=True), json.dumps(meta), no)
            db.execute("UPDATE run SET settings = ?, meta = ? WHERE no = ?", both)


def _memory(db: sqlite3.Connection) -> None:
    """Entries of agents' memories. Numbers are never given again, so that a reader can ask for what is new."""
    db.execute(
        "CREATE TABLE IF NOT EXISTS entry(no INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB NOT NULL UNIQUE, "
        "memory TEXT NOT NULL, item TEXT NOT NULL, at REAL NOT NULL, what TEXT NOT NULL, body TEXT NOT NULL)"
    )
    db.execute("CREATE INDEX IF NOT EXISTS entry_item ON entry(item, what)")


def _vectors(db: sqlite3.Connection) -> None:
    """What embedding models made of items: gone with the item, and made again where it is lacking."""
    db.execute(
        "CREATE TABLE IF NOT EXISTS vector(no INTEGER PRIMARY KEY, item TEXT NOT NULL, model TEXT NOT NULL, "
        "text BLOB NOT NULL, body BLOB NOT NULL, UNIQUE(item, model))"
    )


def _kept(db: sqlite3.Connection) -> None:
    """Which tokens truncation left at each sampled one; NULL where nothing was cut off."""
    if "kept" not in {column for _, column, *_ in db.execute("PRAGMA table_info(call)")}:
        db.execute("ALTER TABLE call ADD COLUMN kept BLOB")


Step = tuple[str, Callable[[sqlite3.Connection], None]]
STEPS: tuple[Step, ...] = (
    ("001-ground", _ground),
    ("002-settings", _settings),
    ("003-memory", _memory),
    ("004-vectors", _vectors),
    ("005-kept", _kept),
)


def applied(db: sqlite3.Connection) -> list[str] | None:
    """Names of the steps a file has been through; None for an empty file.

    Raises:
        StoreBroken: an SQLite file of something else.
    """
    kinds = dict(db.execute("SELECT name, type FROM sqlite_master WHERE type != 'index'"))
    tables = {name for name, kind in kinds.items() if kind == "table"}
    if not kinds:
        return None
    if "migration" not in tables or db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise StoreBroken("an SQLite file, but not a store of Clew", remedy="Name another file with --store.")
    code = sorted(name for name, kind in kinds.items() if kind != "table")
    if code:  # a trigger or a view would run with each of our own statements
        raise StoreBroken(f"holds the {kinds[code[0]]} {code[0]!r}, which Clew never makes", remedy="Do not use it.")
    return [str(name) for (name,) in db.execute("SELECT name FROM migration ORDER BY rowid")]


def migrate(db: sqlite3.Connection, writable: bool, steps: tuple[Step, ...] = STEPS) -> list[str]:
    """Bring a file to the present shape; returns the names of the steps that were missing.

    Raises:
        StoreNewer: the file knows a step that this version does not.
        StoreReadOnly: steps are missing and the file cannot be written.
        StoreBroken: an SQLite file of something else.
    """
    done = applied(db)
    known = [name for name, _ in steps]
    unknown = [name for name in done or () if name not in known]
    if unknown:
        raise StoreNewer(
            f"written by a newer Clew (it knows {', '.join(unknown)})", remedy="pip install --upgrade clew"
        )
    missing = [name for name in known if name not in (done or ())]
    if not missing:
        return []
    if not writable:
        raise StoreReadOnly(
            f"needs the steps {', '.join(missing)} and cannot be written", remedy="Open a writable copy once."
        )
    db.execute("BEGIN IMMEDIATE")
    try:
        if done is None:
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute("CREATE TABLE IF NOT EXISTS migration(name TEXT PRIMARY KEY, at REAL)")
        for name, step in steps:
            if name in missing:
                step(db)
            db.execute("INSERT OR IGNORE INTO migration VALUES (?, ?)", (name, time.time()))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return missing


def same_shape(db: sqlite3.Connection) -> bool:
    """Whether a file's tables and indexes are those that its steps make, to the letter, and it holds nothing besides.

    A file of others may hold tables with computed columns, checks or virtual tables, which run with our statements.
    """
    done = applied(db) or []
    fresh = sqlite3.connect(":memory:", isolation_level=None)
    try:
        migrate(fresh, True, STEPS[: len(done)])
        return done == [name for name, _ in STEPS[: len(done)]] and _shape(db) == _shape(fresh)
    finally:
        fresh.close()


def _shape(db: sqlite3.Connection) -> set[tuple[str, str, str]]:
    return {*db.execute("SELECT type, name, ifnull(sql, '') FROM sqlite_master")}
