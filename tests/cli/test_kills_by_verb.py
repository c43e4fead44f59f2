"""`kill -9` at random moments of each verb that writes: nothing that was committed is lost, and the same line ends it.

One kill of each verb by default; CLEW_KILLS multiplies them. CLEW_KILLS=9 makes 63.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clew.store import open_store
from clew.store.contract.script import Script
from clew.store.sqlite import SQLiteStore

KILLS = int(os.environ.get("CLEW_KILLS", "1"))
RUNS = 120
WORD = "Zebraquartz77"
CLEW = [sys.executable, "-c", "import clew.cli; clew.cli.main()"]
MODEL = """
import time
from clew.core.values import Completion, Message, Usage

class Slow:
    version, renderer, ref = 0, None, f"{__file__}:Slow"

    async def complete(self, request):
        time.sleep(0.01)
        return Completion(Message("assistant", "up"), usage=Usage(1, 1))
"""
AGENT = """
import json, os, urllib.request
messages = []
for step in range(20):
    messages.append({"role": "user", "content": f"step {step}"})
    body = json.dumps({"model": "any", "messages": messages}).encode()
    headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    messages.append(json.load(urllib.request.urlopen(request))["choices"][0]["message"])
"""
WORLD = ["--world", "counter(low=8, high=12, steps=14)", "--model", "slow.py:Slow"]


def line(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLEW, *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def bases(tmp_path_factory) -> Path:
    """Stores that the lines begin with: of many runs that say a word, of one run, of runs that were cut off."""
    folder = tmp_path_factory.mktemp("bases")
    (folder / "slow.py").write_text(MODEL)
    store = SQLiteStore(folder / "many.db")
    for number in range(RUNS):
        script = Script(store, f"r{number}", prompt=f"a task of {WORD}", created=1e9 + number * 40_000)
        script.open()
        script.ask(f"tell {number} of {WORD}", f"> {WORD} {number}")
        script.act(f"> {number}", f"did {WORD}", snapshot=store.put_blob(f"{WORD} {number}".encode()))
        script.end()
    store.commit()
    for number in range(5):
        store.tag(f"r{number}", "keep")
    store.close()
    made = line(folder, "run", "player", *WORLD, "--tasks", "1", "-n", "1", "--store", "one.db")
    assert made.returncode == 0, made.stdout + made.stderr
    process = begun(folder, folder / "cut.db", *run_words("cut.db"))
    until = time.monotonic() + 60
    while len(committed(folder / "cut.db")) < 20 and time.monotonic() < until:
        time.sleep(0.01)
    process.kill()
    process.wait()
    open_store(str(folder / "cut.db")).close()  # nothing of it is in the log any more
    return folder


def run_words(store: str) -> list[object]:
    return ["run", "player", *WORLD, "--tasks", "2", "-n", "3", "--store", store]


def begun(folder: Path, store: Path, *words: object) -> subprocess.Popen[bytes]:
    """A line that is at work on a store: it has opened it."""
    with (folder / "printed").open("wb") as printed:
        process = subprocess.Popen([*CLEW, *map(str, words)], cwd=folder, stdout=printed, stderr=printed)
    until = time.monotonic() + 120
    while not Path(f"{store}-wal").exists() and process.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.002)
    return process


def committed(path: Path) -> dict[int, bytes]:
    """Completed Calls of a store file, by place; none while there is no store."""
    if not path.exists():
        return {}
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10)
    try:
        return dict(db.execute("SELECT at, key FROM call WHERE done >= 0"))
    except sqlite3.OperationalError:
        return {}
    finally:
        db.close()


def ended(folder: Path) -> None:
    """Every run of the store goes on to its end."""
    resumed = line(folder, "resume", "--store", "s.db")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    store = open_store(str(folder / "s.db"))
    assert all(row.stop for row in store.summaries())
    store.close()


def exported(folder: Path) -> None:
    """The folder holds each run once, and nothing that was half-written."""
    again = line(folder, "export", "--to", "F", "--store", "s.db")
    assert again.returncode == 0, again.stdout + again.stderr
    import pyarrow.parquet

    files = [path for path in (folder / "F").rglob("*") if path.is_file() and path.name != ".lock"]
    assert not [path for path in files if path.name.startswith(".")]
    runs = [run for path in files for run in pyarrow.parquet.ParquetFile(path).read(["run"])["run"].to_pylist()]
    assert sorted(runs) == sorted(f"r{number}" for number in range(RUNS))


def erased(folder: Path) -> None:
    """The word is in no byte of the store or of what lies beside it."""
    again = line(folder, "store", "redact", "--text", WORD, "--yes", "--store", "s.db")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "finds nothing of it" in again.stdout
    for path in folder.glob("s.db*"):
        assert WORD.encode() not in path.read_bytes(), path.name


def removed(folder: Path) -> None:
    assert line(folder, "store", "gc", "--yes", "--store", "s.db").returncode == 0
    store = open_store(str(folder / "s.db"))
    assert sorted(store.run_ids()) == [f"r{number}" for number in range(5)]
    store.close()


def recorded(folder: Path) -> None:
    """The run of the program is there, and a fork of it can be made before any of its calls."""
    store = open_store(str(folder / "s.db"))
    assert len(store.run_ids()) <= 1
    store.close()


REDACT = ["store", "redact", "--text", WORD, "--yes", "--store", "s.db"]
# the store that it begins with, the seconds within which it is killed, the line, and what must hold afterwards
VERBS: dict[str, tuple[str, float, Callable[[Path], list[object]], Callable[[Path], None]]] = {
    "run": ("", 1.5, lambda _: run_words("s.db"), ended),
    "fork": ("one", 1.0, lambda folder: ["fork", f"{one_run(folder)}@3", "-n", "4", "--store", "s.db"], ended),
    "resume": ("cut", 1.0, lambda _: ["resume", "--store", "s.db"], ended),
    "gateway": (
        "",
        1.5,
        lambda _: ["gateway", "--model", "slow.py:Slow", "--store", "s.db", "--", sys.executable, "agent.py"],
        recorded,
    ),
    "export --to": ("many", 1.0, lambda _: ["export", "--to", "F", "--store", "s.db"], exported),
    "store redact": ("many", 0.6, lambda _: REDACT, erased),
    "store gc": ("many", 0.3, lambda _: ["store", "gc", "--yes", "--store", "s.db"], removed),
}


def one_run(folder: Path) -> str:
    store = open_store(str(folder / "s.db"))
    try:
        return store.run_ids()[0]
    finally:
        store.close()


@pytest.mark.whole
@pytest.mark.timeout(120 + 120 * KILLS)
@pytest.mark.parametrize("verb", VERBS)
def test_a_killed_line_loses_nothing_and_is_ended_by_the_next(bases, tmp_path, verb):
    if verb == "export --to":
        pytest.importorskip("pyarrow", reason="did not run: needs pyarrow")
    base, within, words, holds = VERBS[verb]
    draw, cut = random.Random(f"39 {verb}"), 0
    for number in range(6 * KILLS):  # some end before they are killed
        if cut == KILLS:
            break
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "slow.py").write_text(MODEL)
        (folder / "agent.py").write_text(AGENT)
        store = folder / "s.db"
        if base:
            for path in bases.glob(f"{base}.db*"):
                shutil.copy(path, folder / path.name.replace(f"{base}.db", "s.db"))
        given = words(folder)
        process = begun(folder, store, *given)
        time.sleep(draw.random() * within)
        before = committed(store)
        cut += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        after = committed(store)
        if verb != "store gc":
            assert before.items() <= after.items(), f"{len(before.items() - after.items())} Calls were lost"
        sound = line(folder, "store", "verify", "--json", "--store", "s.db")
        assert not json.loads(sound.stdout)["faults"], sound.stdout
        holds(folder)
        sound = line(folder, "store", "verify", "--json", "--store", "s.db")
        assert not json.loads(sound.stdout)["faults"], sound.stdout
    assert cut == KILLS, f"{cut} of {KILLS} lines were still at work when they were killed"
