"""Bar 10 of issue 22: what a store of very many Calls costs, and what grows faster than the number of Calls.

    python benchmarks/store_scale.py [--calls 200000] [--store FILE|postgresql://...] [--json]

One store grows to a quarter, a half and all of ``--calls`` (10,000,000 for the whole bar). At each size every operation
runs in a process of its own, which says its wall time and its greatest memory. The last column is the exponent of the
growth from the first size to the last: 0 is constant, 1 is linear; what is above 1.15 is marked.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.store import STEPS, script, write
from clew.store import open_store

ROOT = Path(__file__).resolve().parents[1]
PER_RUN, BATCH = 2 * STEPS + 2, 200
WORK = {
    "open and show one run": "run = store.run('run000000007'); assert len(run.steps) == {steps}; run._repr_html_()",
    "first list (new runs are counted)": "store.page('', 20)",
    "list again": "store.page('', 20)",
    "query, filtered and sorted": "store.page('world=toy steps>5 sort:-tokens', 20)",
    "first search (new runs are indexed)": "store.page('text:fridge', 20)",
    "search": "store.page('text:\"apple 77\"', 20)",
    "export 1 of 100 runs to Parquet by day": (
        "from clew.exchange.day_files import append; from pathlib import Path\n"
        "append(store, store.run_ids()[::100], Path({folder!r}))"
    ),
    "gc (dry)": "store.gc()",
}
CHILD = """
import re, sys, time
from clew.store import open_store
began = time.perf_counter()
store = open_store({place!r})
{work}
took = time.perf_counter() - began
print(took, int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024)
"""


def measured(place: str, work: str) -> tuple[float, float]:
    """Wall seconds, and MiB at the most, of one operation in a fresh process."""
    told = CHILD.format(place=place, work=work)
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True, cwd=ROOT)
    wall, memory = map(float, done.stdout.split())
    return wall, memory


def size_of(place: str) -> int:
    """Bytes of the store on disk."""
    if place.startswith("postgresql://"):
        with open_store(place) as store:
            sql = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relnamespace = "
            return int(store._read(f"{sql} current_schema()::regnamespace")[0][0])  # type: ignore[attr-defined]
    return sum(file.stat().st_size for file in Path(place).parent.glob(f"{Path(place).name}*"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=200_000)
    parser.add_argument("--store", default="", help="an empty store  [default: a file that is removed]")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sizes, found, total = [options.calls // 4, options.calls // 2, options.calls], {}, 0
    with tempfile.TemporaryDirectory() as folder:
        place = options.store or str(Path(folder) / "large.db")
        for size in sizes:
            began, before = time.perf_counter(), total
            with open_store(place) as store:
                while total < size:
                    total += write(store, script(BATCH, total // PER_RUN), 2048)
            rate = (time.perf_counter() - began) / (total - before)
            found.setdefault("write (made and put), us per Call", []).append(rate * 1e6)
            for name, work in WORK.items():
                days = str(Path(folder) / f"days-{size}")
                wall, memory = measured(place, work.format(steps=STEPS, folder=days))
                found.setdefault(f"{name}, s", []).append(wall)
                found.setdefault(f"{name}, MiB at most", []).append(memory)
            found.setdefault("size, bytes per Call", []).append(size_of(place) / total)
    if options.json:
        print(json.dumps({"calls": sizes, "figures": found}))
        return
    print(f"{'Calls':<52}" + "".join(f"{size:>12,}" for size in sizes) + f"{'exponent':>10}")
    for name, values in found.items():
        growth = math.log(values[-1] / values[0]) / math.log(sizes[-1] / sizes[0])
        mark = "  grows faster than linearly" if growth > 1.15 else ""
        print(f"{name:<52}" + "".join(f"{value:>12.4g}" for value in values) + f"{growth:>10.2f}{mark}")


if __name__ == "__main__":
    main()
