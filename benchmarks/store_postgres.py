"""Bar 9 of issue 22: the same Calls into an SQLite file and into a PostgreSQL server, in turn, and read again.

    python benchmarks/store_postgres.py [--repeats 5] [--calls 10000] [--writers 4] [--json]

The server is a throw-away one of this machine, with PostgreSQL's own settings: each commit waits for the disk, where
SQLite's survive the death of the process only, as always in Clew. Times are wall, since the server's work is none of
this process; its own CPU time stands beside. Ratios are PostgreSQL over SQLite within one repeat, their median with
least and greatest. A commit of many rows reaches the server by COPY, one of few by single statements.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.store import STEPS, script, timed, write
from clew.store import open_store
from clew.store.base import Keeper
from tests.postgres_server import Server, binaries

WRITER = """
import sys
sys.path.insert(0, sys.argv[3])
from benchmarks.store import script, write
from clew.store import open_store
runs = script(int(sys.argv[2]), int(sys.argv[4]))
store = open_store(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
write(store, runs, 16)
store.close()
"""

Figures = dict[str, list[float]]


def once(
    store: Keeper,
    other: Keeper,
    third: Keeper,
    fourth: Keeper,
    calls: int,
    note: Callable[[str, Callable[[], int]], None],
) -> None:
    """All that is timed, in three empty stores of one kind."""
    per_run = 2 * STEPS + 2
    runs = script(max(1, calls // per_run))
    few = runs[: max(1, len(runs) // 8)]
    note("put, a commit after each Call", lambda: write(store, few, 1))
    note("put, 26 commits of as many Calls", lambda: write(third, runs, max(1, calls // 26)))
    note("put, one commit (COPY)", lambda: write(other, runs, calls))

    def read() -> int:
        return sum(len(other.calls(row.id)) for row, _ in runs)

    note("get all Calls", read)

    def walk() -> int:
        tips = [calls[-3][1].node_out for _, calls in runs]
        return sum(len(other.thread(tip)) for tip in tips)

    note("get all conversations", walk)
    note("merge into an empty store", lambda: fourth.merge(other)["calls"])
    note("first list", lambda: len(other.find("steps>5")))
    note("list again", lambda: len(other.find("steps>5 sort:-tokens", 20)))
    note("first search (index made)", lambda: len(other.find("text:fridge")))
    note("search again", lambda: len(other.find('text:"apple 7"')))
    note("verify", lambda: len(other.verify()) + calls)


def side_by_side(place: str, writers: int, calls: int) -> float:
    """Calls a second that several processes write at once."""
    runs = max(1, calls // (2 * STEPS + 2) // writers)
    open_store(place).close()
    root = str(Path(__file__).resolve().parents[1])
    told = [[sys.executable, "-c", WRITER, place, str(runs), root, str(n * 100_000)] for n in range(writers)]
    children = [subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for line in told]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    began = time.perf_counter()
    for child in children:
        child.communicate("go\n")
        assert child.returncode == 0
    return writers * runs * (2 * STEPS + 2) / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--calls", type=int, default=10_000, help="Calls per repeat")
    parser.add_argument("--writers", type=int, default=4, help="processes that write at once")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if (programs := binaries()) is None:
        sys.exit("PostgreSQL is not installed: apt-get install postgresql")
    server = Server(programs)
    found: dict[str, dict[str, Figures]] = {"wall, s": {}, "CPU of this process, s": {}}
    rates: Figures = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            for repeat in range(options.repeats):
                kinds: dict[str, Callable[[str], str]] = {
                    "sqlite": lambda name, repeat=repeat: str(Path(folder) / f"{repeat}-{name}.db"),  # type: ignore[misc]
                    "postgresql": lambda _: server.url(),
                }
                for kind in sorted(kinds, reverse=bool(repeat % 2)):

                    def note(what: str, work: Callable[[], int], kind: str = kind) -> None:
                        cpu, wall, count = timed(work)
                        assert count, what
                        found["wall, s"].setdefault(what, {}).setdefault(kind, []).append(wall)
                        found["CPU of this process, s"].setdefault(what, {}).setdefault(kind, []).append(cpu)

                    stores = [open_store(kinds[kind](name)) for name in "abcd"]
                    once(*stores, options.calls, note)
                    for store in stores:
                        store.close()
                    place = kinds[kind]("e")
                    rates.setdefault(kind, []).append(side_by_side(place, options.writers, options.calls // 2))
    finally:
        server.stop()
    if options.json:
        print(json.dumps(found | {"rates": rates}))
        return
    print(f"{server.version}, {os.cpu_count()} cores, {options.repeats} repeats of {options.calls} Calls")
    for title, rows in found.items():
        print(f"{title:<42} {'sqlite':>9} {'postgresql':>11}  ratio [least, greatest]")
        for what, kinds_ in rows.items():
            one, two = kinds_["sqlite"], kinds_["postgresql"]
            ratios = [b / max(a, 1e-9) for a, b in zip(one, two, strict=True)]
            spread = f"{statistics.median(ratios):5.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"
            print(f"  {what:<40} {statistics.median(one):>9.3f} {statistics.median(two):>11.3f}  {spread}")
    for kind, values in rates.items():
        print(f"{options.writers} writers at once, {kind}: {statistics.median(values):,.0f} Calls/s")


if __name__ == "__main__":
    main()
