"""What the bulk path costs beside plain inserts of the same rows: an import, a merge, a small merge into a large store.

    python benchmarks/bulk.py [--runs 1000] [--repeats 3]

Each run holds 12 tool calls with their results. CPU is this process's own time; ``plain`` writes the same rows into the
same tables by ``executemany`` in one transaction, without keys, checks or JSON. Figures are medians over repeats.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from clew.exchange import import_file
from clew.store.sqlite import SQLiteStore
from clew.store.sqlite.migrations import migrate

TABLES = ("ident", "blob", "node", "run", "call", "grp", "annotation", "series")


def lines(path: Path, runs: int, start: int = 0) -> Path:
    """A file of message JSONL, as an agent of tools leaves it."""
    with open(path, "w") as file:
        for number in range(start, start + runs):
            messages = [{"role": "system", "content": "policy " * 200}, {"role": "user", "content": f"book {number}"}]
            for step in range(12):
                call = {"id": f"c{number}-{step}", "type": "function"}
                call["function"] = {"name": "find", "arguments": json.dumps({"flight": number, "step": step})}
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
                messages.append(
                    {"role": "tool", "tool_call_id": call["id"], "content": f"seat {step} of {number} " * 9}
                )
            messages.append({"role": "assistant", "content": f"done {number}"})
            file.write(json.dumps({"task_id": f"t{number // 4}", "reward": number % 2, "messages": messages}) + "\n")
    return path


def plain(folder: Path, store: Path) -> float:
    """CPU seconds of writing the rows of a store into an empty one."""
    with sqlite3.connect(store) as db:
        rows = {table: db.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES}
    db.close()
    target = folder / "plain.db"
    began = time.process_time()
    db = sqlite3.connect(target, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    migrate(db, True)
    db.execute("BEGIN")
    for table, values in rows.items():
        marks = ", ".join("?" * len(values[0])) if values else ""
        db.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", values) if values else None
    db.execute("COMMIT")
    db.close()
    took = time.process_time() - began
    target.unlink()
    return took


def cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def measured(folder: Path, runs: int) -> dict[str, float]:
    """CPU seconds of each way, and their ratio to plain inserts."""
    one, two, small = (folder / f"{name}.db" for name in ("one", "two", "small"))
    store, written = SQLiteStore(one), lines(folder / "in.jsonl", runs)
    found = {"import, CPU s": cpu(lambda: import_file(store, written))}
    store.close()
    found["plain inserts, CPU s"] = plain(folder, one)
    into, other = SQLiteStore(two), SQLiteStore(one)
    found["merge into an empty store, CPU s"] = cpu(lambda: into.merge(other))
    found["merge again, CPU s"] = cpu(lambda: into.merge(other))
    few = SQLiteStore(small)
    import_file(few, lines(folder / "few.jsonl", 4, runs))
    found["merge of 4 runs into the large store, CPU s"] = cpu(lambda: into.merge(few))
    for it in (into, other, few):
        it.close()
    with sqlite3.connect(one) as db:
        calls = db.execute("SELECT count(*) FROM call").fetchone()[0]
    db.close()
    found["import / plain"] = found["import, CPU s"] / found["plain inserts, CPU s"]
    found["merge / plain"] = found["merge into an empty store, CPU s"] / found["plain inserts, CPU s"]
    found["imported calls per CPU-second"] = calls / found["import, CPU s"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    results: dict[str, list[float]] = {}
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder:
            for name, value in measured(Path(folder), options.runs).items():
                results.setdefault(name, []).append(value)
    for name, values in results.items():
        print(f"{name:<48} {statistics.median(values):>10.4g} [{min(values):.4g}, {max(values):.4g}]")


if __name__ == "__main__":
    main()
