"""The files of runs in the viewer: seconds of each address for a long run, very many changed files, a very large one.

    python benchmarks/viewer_files.py [--repeats 15] [--files 10000] [--steps 1000] [--megabytes 100] [--json FILE]

The server is `clew view` in a process of its own. A run of ``--steps`` acts changes one file of a folder of ``--files``
(100 a folder) each time; its last two acts make a text of ``--megabytes`` and change every file. "first" is the first
answer, before anything is remembered; other figures are medians over repeats with their least and greatest, over one
connection, body read to its end. Where the server answers in pieces, all of them are counted together.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx

from benchmarks.viewer import Times, served
from clew.store.contract import Script
from clew.store.sqlite import SQLiteStore
from clew.worlds.workspace import Scan, TreeShelf
from clew.worlds.workspace.tree_states import content_state

TEXT = "".join(f"line {i} of a small file of some code\n" for i in range(40))


def make(place: Path, files: int, steps: int, megabytes: int) -> int:
    """The run; gives the number of its last act."""
    store, shelf, work = SQLiteStore(place / "s.db"), TreeShelf(place / "files"), place / "work"
    paths = [work / f"d{i // 100:04}" / f"f{i:05}.py" for i in range(files)]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{path.name}\n{TEXT}")
    scan, states = Scan(work, shelf), dict[str, bytes]()
    script = Script(store, "long", taskset="workspace(folder='/nowhere')")

    def kept() -> dict[str, Any]:
        tree = scan.snapshot().tree
        snapshot = store.put_blob(json.dumps(["toy", tree, 9]).encode())
        return {"state": content_state(shelf, tree, states), "snapshot": snapshot}

    script.put("open", text="", **kept())
    for step in range(steps):
        path = paths[step * 7919 % files]
        path.write_text(path.read_text().replace("line 20 ", f"line 20 step {step} "))
        script.put("act", action=f"edit {path.name}", text="(exit status 0)", **kept())
    line = "a line of a text that is very long\n"
    (work / "large.txt").write_text(line * (megabytes * 1_000_000 // len(line)))
    script.put("act", action="make a large text", text="(exit status 0)", **kept())
    for path in paths:
        path.write_text(path.read_text() + "more\n")
    last = script.put("act", action="change all", text="(exit status 0)", **kept()).seq
    script.end()
    store.close()
    return last


def asked(last: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """By what is timed: the address and its query."""
    end, before, early = "long", f"long@{last}", f"long@{last // 2}"
    return {
        "where the run changed files": ("run/long/snapshots", {}),
        "lines beside 100 of its steps": ("run/long/changes", {"start": last // 2, "stop": last // 2 + 100}),
        "line beside a change of all files": ("run/long/changes", {"start": last, "stop": last + 1}),
        "the patch of a step": ("files/patch", {"a": f"long@{last // 2 - 1}", "b": early}),
        "a page of the patch of all files": ("files/patch", {"a": before, "b": end}),
        "the same, its last page": ("files/patch", {"a": before, "b": end, "from": "LAST"}),
        "one file of that patch": ("files/patch", {"a": before, "b": end, "path": "d0001/f00100.py"}),
        "200 paths of a comparison with the start": ("files/changed", {"a": "long@1", "b": end}),
        "the root of the tree": ("files/folder", {"place": end}),
        "a folder of 100 files": ("files/folder", {"place": end, "path": "d0001"}),
        "a small file": ("files/content", {"place": end, "path": "d0001/f00100.py"}),
        "a piece of the large text": ("files/content", {"place": end, "path": "large.txt", "from": 50_000_000}),
    }


def answers(place: Path, last: int, files: int, repeats: int) -> Times:
    """Seconds of each address, the first by itself."""
    times: Times = defaultdict(list)
    with served(place / "s.db") as base, httpx.Client(base_url=f"{base}api/", timeout=120) as client:
        client.get("store").raise_for_status()
        for nth in range(repeats + 1):
            for name, (path, query) in asked(last).items():
                begun, given = time.perf_counter(), {k: files - 20 if v == "LAST" else v for k, v in query.items()}
                while given is not None:
                    answer = client.get(path, params=given).raise_for_status()
                    more = answer.json().get("next") if path.endswith("changes") else None
                    given = None if more is None else {**given, "start": more}
                times[name if nth else f"{name}, first"].append(time.perf_counter() - begun)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("repeats", 15), ("files", 10_000), ("steps", 1_000), ("megabytes", 100)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        last = make(Path(folder), given.files, given.steps, given.megabytes)
        times = answers(Path(folder), last, given.files, given.repeats)
    for name, values in times.items():
        print(f"{name:<52} {statistics.median(values):7.3f} s [{min(values):.3f}, {max(values):.3f}] n={len(values)}")
    if given.json:
        given.json.write_text(json.dumps(times))


if __name__ == "__main__":
    main()
