"""Searches that are killed (SIGKILL) at 50 points each end in the same bytes as one that was not."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole

pytest.importorskip("scipy", reason="did not run: searches need scipy")

POINTS = int(os.environ.get("CLEW_KILLS", "0")) or 50
# The program forks a child for each life of a search; a child dies by SIGKILL at a write of the log: before it, in the
# midst of the line, or after it. What it prints is how many lives there were.
PROGRAM = """
import asyncio, os, random, signal, sys
from pathlib import Path
from clew.methods.coevolve.archive import Archive, ChainedLog
from tests.evolve.studios import searched
from clew.methods.theories.theory_loop import Rules, search
from clew.methods.theories.simulated_people import SimulatedPeople
from clew.methods.theories.theory_proposers import GrammarProposer

kind, folder, points, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
folder.mkdir(parents=True)
rng = random.Random(seed)
append = ChainedLog.append

def dying(at, how):
    left = at
    def write(log, event):
        nonlocal left
        left -= 1
        if left > 0:
            return append(log, event)
        if how == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        file, log._file = log._file, None
        try:
            append(log, event)
        finally:
            log._file = file
        import json
        from clew.core.keys import encode
        text = encode(json.dumps(event, sort_keys=True, separators=(",", ":"), allow_nan=False))
        line = log.head.hex().encode() + b" " + text + b"\\n"
        file.write(line[: len(line) // 2] if how == "midst" else line)
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    return write

def live():
    if kind == "agents":
        archive = Archive(folder)
        asyncio.run(searched(archive, budget={"outcomes": 96}))
        archive.close()
    else:
        log = ChainedLog(folder / "theories.log")
        rules = Rules(cycles=2, people=6, policy="blind")
        asyncio.run(search(log, SimulatedPeople("take_the_worst", 6), GrammarProposer(), rules))
        log.close()

if kind == "race":  # four workers at once, each of which tries until the search has ended; three are killed
    from clew.core.errors import BadInput
    kind, killed = "agents", 0

    def worker(lines):
        if lines:
            ChainedLog.append = dying(lines, "midst")
        while True:
            try:
                return live()
            except BaseException as error:
                if not isinstance(error, BadInput) or "another process" not in error.message:
                    print(repr(error), flush=True)
                    os._exit(1)
                print("refused", flush=True)

    def forked(lines):
        child = os.fork()
        if not child:
            worker(lines)
            os._exit(0)
        return child

    # Each of three dies at one of the first lines that it writes. The fourth may write as many as it likes, so that it
    # begins when one of them is dead: otherwise it can end the search before they have it.
    racing = {forked(rng.choice([1, 2, 3])) for _ in range(3)}
    while racing:
        child, status = os.wait()
        racing.remove(child)
        assert os.WIFSIGNALED(status) or not os.WEXITSTATUS(status)
        killed += os.WIFSIGNALED(status)
        if killed == 1 and os.WIFSIGNALED(status):
            racing.add(forked(0))
    print(1 + killed, 0)
    sys.exit()

lives = 0
while True:
    lives += 1
    child = os.fork()
    if not child:
        try:
            if lives <= points:
                # each life gets one event further at most, and many get none
                ChainedLog.append = dying(rng.choice([1, 1, 1, 2]), rng.choice(["before", "midst", "after"]))
            live()
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        print(lives, os.WEXITSTATUS(status))
        break
"""


def lived(kind: str, folder: Path, points: int, seed: int = 0) -> tuple[int, bytes]:
    """Lives of a search that dies so often, and the bytes of its log."""
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, kind, str(folder), str(points), str(seed)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, cwd=root)
    assert done.returncode == 0, done.stderr[-2000:]
    lives, code = done.stdout.split()[-2:]
    assert code == "0", done.stdout
    (log,) = folder.glob("*.log")
    return int(lives), log.read_bytes()


@pytest.mark.parametrize("kind", ["agents", "theories"])
def test_a_search_that_is_killed_again_and_again_ends_in_the_same_bytes(kind, tmp_path):
    once, whole = lived(kind, tmp_path / "whole", 0)
    assert once == 1
    deaths, seed = 0, random.Random(kind).randrange(1000)
    while deaths < POINTS:  # a search of theories has fewer events than that: several searches die
        lives, killed = lived(kind, tmp_path / f"killed{deaths}", POINTS - deaths, seed + deaths)
        assert killed == whole
        assert lives > 1
        deaths += lives - 1
    assert deaths >= POINTS


def test_workers_that_race_for_a_search_lose_nothing(tmp_path):
    """One process has the folder; the others are refused, try again, and go on where a killed one stopped."""
    _, whole = lived("agents", tmp_path / "whole", 0)
    for race in range(5):
        lives, ended = lived("race", tmp_path / f"race{race}", 1, race)
        assert ended == whole
        assert lives > 1
