"""Files of a run: snapshots and restores of a folder against git's, branches ready to run, growth over steps and kills.

    python benchmarks/workspace.py [--files 10000] [--rounds 15] [--steps 1000] [--kills 50] [--seed 0] [--json FILE]

One folder of ``--files`` small files (100 a folder) is worked on by both in turn: in each round one file is changed and
git takes its tree (``git add -A`` with the untracked cache and a settled index, then ``git write-tree``; the repository
lies outside the folder), another is changed and ``Scan.snapshot`` takes ours; then ``git checkout-index -a --prefix=``
and ``restore`` write all files into fresh folders. Wall and process time, medians [least, greatest]; ratios to git are
of the same round. Ours is called in one process, as the gateway does it; git starts anew each time, as it must.

Then: 64 branches of one state of 200 files (and of others), restored from the shelf, one after the other; the bytes
that the shelf grows by in ``--steps`` steps of one changed file, against the bytes of that file and of the listings on
its path; and what a shelf holds more than one that was never disturbed after ``--kills`` kills -9 at random moments of
snapshots, when it is opened again.

Nothing is deleted before the end: ext4 steps over every inode that was freed in the last seconds when it makes a file,
so that what is timed would be the deleting of the round before, for git as for ours. ``--place`` says on which disk.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from clew.worlds.workspace import Scan, TreeShelf, restore

MARKS = {"snapshot": 1.3, "restore": 1.5, "branches": 2.0}
SCANNING = """
import sys
from pathlib import Path
from clew.worlds.workspace import Scan, TreeShelf
print("ready", flush=True)
print(Scan(Path(sys.argv[1]), TreeShelf(Path(sys.argv[2]))).snapshot().state, flush=True)
"""


def fill(root: Path, files: int, dice: random.Random) -> list[Path]:
    """Files of 200 bytes to 8 kB, 100 a folder, long settled."""
    made = []
    for number in range(files):
        path = root / f"part{number // 1000:03}" / f"inner{number // 100:04}" / f"file{number:06}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dice.randbytes(dice.randrange(100, 4000)).hex().encode())
        made.append(path)
    return made


def change(path: Path, dice: random.Random) -> int:
    """Write a file anew; gives its size."""
    path.write_bytes(data := dice.randbytes(dice.randrange(100, 4000)).hex().encode())
    return len(data)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and process seconds, those of child processes included."""

    def spent() -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime + one.ru_stime for one in used)

    cpu, began = spent(), time.perf_counter()
    work()
    return time.perf_counter() - began, spent() - cpu


class Git:
    """The peer: a repository outside the folder, with the settings that make it fastest here."""

    def __init__(self, root: Path, place: Path) -> None:
        self.root, self.place = root, place
        self.env = {"PATH": os.environ["PATH"], "HOME": str(place.parent), "GIT_CONFIG_NOSYSTEM": "1"}
        self.env |= {"GIT_DIR": str(place), "GIT_WORK_TREE": str(root)}
        self.call("init", "-q")
        self.call("config", "core.untrackedCache", "true")
        self.call("config", "gc.auto", "0")
        for _ in range(2):
            self.call("add", "-A")
            self.call("status", "--porcelain")
            time.sleep(1.1)  # an index is settled when no file in it is as young as it is itself

    def call(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=self.root, env=self.env, capture_output=True, text=True, check=True)
        return done.stdout

    def snapshot(self) -> None:
        self.call("add", "-A")
        self.call("write-tree")

    def restore(self, into: Path) -> None:
        self.call("checkout-index", "-a", f"--prefix={into}/")


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "greatest": max(values)}


def told(each: dict[str, float], unit: float = 1e3) -> str:
    return f"{unit * each['median']:7.1f} [{unit * each['least']:.1f}, {unit * each['greatest']:.1f}]"


def against_git(place: Path, files: int, rounds: int, dice: random.Random) -> list[dict[str, object]]:
    """Snapshots and restores, ours and git's in turn."""
    root = place / "work"
    paths = fill(root, files, dice)
    time.sleep(1.1)
    git, shelf = Git(root, place / "git"), TreeShelf(place / "shelf")
    scan = Scan(root, shelf)
    first, _ = timed(scan.snapshot)
    scan.snapshot()
    times: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for number in range(rounds):
        takers = [("git", git.snapshot), ("clew", scan.snapshot)]
        for who, take in takers if number % 2 else takers[::-1]:
            change(dice.choice(paths), dice)
            time.sleep(0.05)
            times.setdefault(("snapshot", who), []).append(timed(take))
        tree = scan.snapshot().tree
        for who in ("git", "clew") if number % 2 else ("clew", "git"):
            into = place / f"back-{who}{number}"
            work = partial(git.restore, into) if who == "git" else partial(restore, shelf, tree, into)
            times.setdefault(("restore", who), []).append(timed(work))
    print(f"{files} files; the first snapshot, of all of them: {first:.2f} s")
    found: list[dict[str, object]] = []
    for what in ("snapshot", "restore"):
        rows = {who: times[what, who] for who in ("git", "clew")}
        for who, row in rows.items():
            wall, cpu = (spread([one[at] for one in row]) for at in (0, 1))
            found.append({"what": what, "who": who, "wall": wall, "cpu": cpu, "n": len(row)})
            print(f"{what:9} {who:5} wall ms {told(wall):30} process ms {told(cpu):30}", flush=True)
        ratio = spread([ours[0] / peer[0] for ours, peer in zip(rows["clew"], rows["git"], strict=True)])
        found.append({"what": what, "ratio": ratio, "mark": MARKS[what]})
        held = "held" if ratio["median"] <= MARKS[what] else "MISSED"
        print(f"{what:9} ratio of wall times {told(ratio, 1).strip()}, mark {MARKS[what]}: {held}", flush=True)
    return found


def branches(place: Path, files: int, count: int, dice: random.Random) -> dict[str, object]:
    """Seconds until so many folders of one state are there."""
    root, shelf = place / f"small{files}", TreeShelf(place / f"shelf{files}")
    fill(root, files, dice)
    tree = Scan(root, shelf).snapshot().tree
    again = TreeShelf(shelf.folder)

    def ready() -> None:
        for number in range(count):
            restore(again, tree, place / f"branches{files}" / f"{number:03}")

    wall, cpu = timed(ready)
    print(f"{count} branches of {files} files ready in {wall:.2f} s, process {cpu:.2f} s", flush=True)
    return {"what": "branches", "files": files, "branches": count, "wall": wall, "cpu": cpu}


def growth(place: Path, files: int, steps: int, dice: random.Random) -> dict[str, object]:
    """Bytes on the shelf against the bytes that changed."""
    root, shelf = place / "growing", TreeShelf(place / "shelf-growing")
    paths = fill(root, files, dice)
    time.sleep(0.05)
    scan = Scan(root, shelf)
    scan.snapshot()
    before, contents, listings = held(shelf), 0, 0
    for _ in range(steps):
        path = dice.choice(paths)
        contents += change(path, dice)
        key = scan.snapshot().tree
        for name in ("", *path.relative_to(root).parts[:-1]):
            key = next(e.key for e in shelf.listing(key) if e.name == name) if name else key
            listings += len(shelf.get(key, b"clew.folder.1"))
    grown = held(shelf) - before
    share = grown / (contents + listings)
    print(f"{steps} steps of one changed file in {files}: the shelf grew by {grown:,} bytes; changed contents")
    print(f"{contents:,} and listings on their paths {listings:,}: {share:.3f} of what changed", flush=True)
    return {"what": "growth", "steps": steps, "grown": grown, "contents": contents, "listings": listings}


def held(shelf: TreeShelf) -> int:
    """Bytes of everything in a shelf's folder."""
    return sum(path.stat().st_size for path in shelf.folder.rglob("*") if path.is_file())


def kills(place: Path, files: int, count: int, dice: random.Random) -> dict[str, object]:
    """What is left after kills in the midst of snapshots that a shelf without kills has not."""
    root = place / "killed"
    fill(root, files, dice)
    ended = killed = 0
    while killed < count:
        process = subprocess.Popen(
            [sys.executable, "-c", SCANNING, root, place / "shelf-killed"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(dice.random() * 0.3)
        was = process.poll()
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += was is None
        if was is not None:
            ended += 1
            shutil.rmtree(place / "shelf-killed")
    names = []
    for name in ("shelf-killed", "shelf-clean"):
        shelf = TreeShelf(place / name)
        Scan(root, shelf).snapshot()
        files_of = [path for path in shelf.folder.rglob("*") if path.is_file() and path.name != "lock"]
        names.append({path.relative_to(shelf.folder): path.stat().st_size for path in files_of})
    more = {name: size for name, size in names[0].items() if name not in names[1]}
    equal = names[0] == names[1]
    print(
        f"{killed} kills in the midst of snapshots of {files} files ({ended} had ended before): {len(more)} files and"
    )
    print(f"{sum(more.values())} bytes more than a shelf without kills; equal: {equal}", flush=True)
    return {"what": "kills", "kills": killed, "more": len(more), "bytes": sum(more.values()), "equal": equal}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("files", 10_000), ("rounds", 15), ("steps", 1000), ("kills", 50), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--place", type=Path, help="folder on the disk that is measured  [default: the temporary one]")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    dice = random.Random(options.seed)
    with tempfile.TemporaryDirectory(dir=options.place) as folder:
        place = Path(folder)
        found = against_git(place, options.files, options.rounds, dice)
        found += [branches(place, files, 64, dice) for files in (50, 200, 1000)]
        found.append(growth(place, options.files, options.steps, dice))
        found.append(kills(place, min(options.files, 2000), options.kills, dice))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
