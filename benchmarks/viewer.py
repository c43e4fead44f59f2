"""The viewer on a store of 100,000 Calls and a run of 10,000 steps: seconds of each address, and of a change to arrive.

    python benchmarks/viewer.py [--repeats 20] [--calls 100000] [--steps 10000] [--keep FOLDER] [--json]

The server is `clew view` in a process of its own. "first" is the first answer of a store whose lists were never made;
other figures are medians over repeats with their least and greatest, over one connection, body read to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np

from benchmarks.store import STEPS, script, write
from clew.core.records import Annotation
from clew.store.contract import Script
from clew.store.sqlite import SQLiteStore

Times = dict[str, list[float]]
LONG = "longrun"
SIDES = ("left", "right")  # models that are compared
COMPARED = 500  # runs of each


def make(path: Path, calls: int, steps: int) -> None:
    """Runs of 12 steps until there are ``calls`` Calls, judged; two sides of 500 runs over 250 tasks; then the long
    run, with values of one method."""
    store = SQLiteStore(path)
    per_run, batch, total = 2 * STEPS + 2, 200, 0
    while total < calls:
        runs = script(batch, total // per_run)
        total += write(store, runs, 128)
        store.annotate([Annotation("run", "reward", float(i % 3 == 0), row.id) for i, (row, _) in enumerate(runs)])
    for better, side in enumerate(SIDES):
        for i in range(COMPARED):
            run = Script(store, f"{side}{i:04}", task=f"task-{i // 2}", model=side, created=9e8 + i)
            run.play(STEPS, float(i * 7919 % 100 < 50 + 10 * better))
    long = Script(store, LONG, task="long", created=1e9 + 1)
    long.open("You are in the kitchen.")
    for step in range(steps):
        call = long.ask(f"On the table you see an apple {step} and a mug.\n> ", f"> take mug {step}", 8)
        long.act(f"> take mug {step}", f"You take the mug {step} from the table.", reward=0.0)
        grades = np.full(9, step / steps, np.float32)
        store.annotate(
            [
                Annotation("call", "g2po", step / steps - 0.5, LONG, call.seq, scope=LONG),
                Annotation("tokens", "grade", None, LONG, call.seq, values=grades),
            ]
        )
        if step % 64 == 0:
            store.commit()
    long.end()
    store.close()


@contextmanager
def served(path: Path) -> Iterator[str]:
    """`clew view` on a free port; gives its address once it answers."""
    line = [sys.executable, "-m", "clew.cli", "view", str(path), "--port", "0", "--no-open"]
    server = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"})
    assert server.stdout is not None
    try:
        yield next(word for word in server.stdout.readline().split() if word.startswith("http://"))
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


def addresses(steps: int) -> dict[str, Callable[[int], str]]:
    """What is asked in each repeat: other places each time, so that no answer was made before."""
    middle = [1 + (977 * i) % (2 * steps - 200) for i in range(1000)]
    return {
        "store": lambda i: "/api/store",
        "runs, first page": lambda i: "/api/runs?limit=100",
        "runs, a later page": lambda i: f"/api/runs?limit=100&after={100 * (i % 30)}",
        "runs, filtered and sorted": lambda i: f"/api/runs?limit=100&q=return%3C0.5+steps%3E{i % 5}+sort:-tokens",
        "runs, text search": lambda i: f"/api/runs?limit=100&q=text:%22apple+{i + 7}%22",
        "groups, first page": lambda i: "/api/groups?limit=100",
        "long run, head": lambda i: f"/api/run/{LONG}",
        "long run, first 100 Calls": lambda i: f"/api/run/{LONG}/calls?start=0&stop=100",
        "long run, 100 Calls anywhere": lambda i: f"/api/run/{LONG}/calls?start={middle[i]}&stop={middle[i] + 100}",
        "long run, one Call": lambda i: f"/api/run/{LONG}/call/{middle[i]}",
        "long run, strip of a method": lambda i: f"/api/run/{LONG}/marks?value=g2po",
        "long run, strip of token values": lambda i: f"/api/run/{LONG}/marks?value=grade",
        "long run, strip of logprobs": lambda i: f"/api/run/{LONG}/marks?value=logprob",
        "long run, search found far off": lambda i: f"/api/find?run={LONG}&text=apple+{steps - 1 - i}+and&from=0",
        "diff of two runs": lambda i: "/api/diff?a=run000000007&b=run000000008",
        "compare 2 x 500 runs": lambda i: f"/api/compare?a=model%3D{SIDES[i % 2]}&b=model%3D{SIDES[(i + 1) % 2]}",
        "overview of all runs": lambda i: "/api/overview",
        "overview of 500 runs": lambda i: f"/api/overview?q=model%3D{SIDES[i % 2]}",
        "long run, outline from anywhere": lambda i: f"/api/run/{LONG}/outline?start={middle[i]}",
        "export of 500 runs": lambda i: f"/api/export?format=csv&q=model%3D{SIDES[i % 2]}",
        "trainings": lambda i: "/api/trainings",
        "reports": lambda i: "/api/reports",
    }


def answers(path: Path, steps: int, repeats: int) -> Times:
    """Seconds of each address."""
    found: Times = {}
    with served(path) as address, httpx.Client(base_url=address, timeout=120) as client:

        def ask(name: str, place: str) -> None:
            began = time.perf_counter()
            while (answer := client.get(place)).status_code == 202:  # what it needs is made in slices
                place = re.sub(r"from=\d+", f"from={answer.json()['done']}", place)
            found.setdefault(name, []).append(time.perf_counter() - began)
            assert answer.status_code == 200, answer.text

        client.get("/static/d3.js")  # the connection is made
        ask("first: runs, summarised now", "/api/runs?limit=100")
        for name, place in addresses(steps).items():
            ask(f"first: {name}", place(0))
            for repeat in range(repeats):
                ask(name, place(repeat))
    return found


def arrivals(path: Path, repeats: int) -> Times:
    """Seconds from the commit of a run's first Call by another process to its event."""
    names = [f"new{time.time_ns()}x{repeat}" for repeat in range(repeats)]
    seen: dict[str, float] = {}
    committed: dict[str, float] = {}
    with served(path) as address, httpx.Client(base_url=address, timeout=120) as client:

        def listen() -> None:
            with client.stream("GET", "/api/events") as stream:
                for line in stream.iter_lines():
                    if line.startswith("data: ") and '"rows"' in line:
                        for row in json.loads(line[6:])["rows"]:
                            seen.setdefault(row["run"], time.perf_counter())
                        if names[-1] in seen:
                            return

        listener = threading.Thread(target=listen)
        listener.start()
        time.sleep(1.0)
        store = SQLiteStore(path)
        for name in names:
            writer = Script(store, name, created=time.time())
            writer.open("You are in the kitchen.")
            store.commit()
            committed[name] = time.perf_counter()
            time.sleep(0.37)
        listener.join(20)
        store.close()
    return {"a run's first Call to its event": [seen.get(name, float("inf")) - committed[name] for name in names]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--calls", type=int, default=100_000, help="Calls of the store, beside the long run's")
    parser.add_argument("--steps", type=int, default=10_000, help="steps of the long run")
    parser.add_argument("--keep", type=Path, help="folder in which the store is made and left")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = (options.keep or Path(folder)) / "viewer.db"
        if not path.exists():
            make(path, options.calls, options.steps)
        results = {
            "seconds of each address": answers(path, options.steps, options.repeats),
            "seconds until others' changes are told": arrivals(path, options.repeats),
        }
    if options.json:
        print(json.dumps(results))
        return
    print(f"python {platform.python_version()}, sqlite {sqlite3.sqlite_version}, {options.repeats} repeats")
    for title, rows in results.items():
        print(title)
        for name, values in rows.items():
            spread = f"[{min(values):.4f}, {max(values):.4f}]" if len(values) > 1 else ""
            print(f"  {name:<48} {statistics.median(values):>8.4f} {spread}")


if __name__ == "__main__":
    main()
