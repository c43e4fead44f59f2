"""`clew diagnose` on a repository of 3,000 files: wall time, CPU time and memory, cold and from a warm index.

    python benchmarks/diagnose.py [--files 3000] [--rounds 5]

The repository is made of the Python files that are installed here (standard library, then this environment), copied
into a fresh git repository below one package, smallest folders first, so that it needs no network. The report names
identifiers of one of them. Each figure is of a whole process from its start, its children counted; memory is the sum of
the largest resident sets of the process and of its workers. Bytecode is there beforehand, as in an
installed package.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

REPORT = (
    "`ConfigParser.read_dict` loses a key with an empty value when `allow_no_value` is set: DuplicateOptionError is "
    "raised for the default section although `optionxform` maps both options to one"
)


def build(folder: Path, files: int) -> float:
    """A git repository of so many Python files; gives its size in MB."""
    roots = [Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib"))]
    taken = 0
    size = 0
    for root in roots:
        for place in sorted(root.rglob("*.py")):
            inside = place.relative_to(root)
            if taken == files or "site-packages" in inside.parts or place.stat().st_size > 1_000_000:
                continue
            target = folder / "package" / root.name / inside
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(place.read_bytes())
            taken, size = taken + 1, size + place.stat().st_size
    if taken < files:
        raise SystemExit(f"only {taken} Python files are installed here; give --files {taken}")
    for words in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    return size / 1e6


def once(repo: Path, index: Path, store: Path, report: Path) -> tuple[float, float, float]:
    """Wall and CPU seconds of one process and its children, and MB of the largest of them."""
    line = [sys.executable, "-m", "clew.cli", "diagnose", str(repo), "--report", str(report), "--index", str(index),
            "--store", str(store)]  # fmt: skip
    began = time.perf_counter()
    ours = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    ours["PYTHONPYCACHEPREFIX"] = str(index.parent / "bytecode")
    process = subprocess.Popen(
        line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True, env=ours
    )
    peak = 0
    while process.poll() is None:
        peak = max(peak, _resident(process.pid))
        time.sleep(0.02)
    wall = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(process.stderr.read().decode() if process.stderr else "failed")
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, spent.ru_utime + spent.ru_stime, peak / 1e6


def _resident(session: int) -> int:
    """Bytes resident in a session's processes together."""
    total = 0
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(place.name)) == session:
                total += int((place / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError):
            continue
    return total


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        repo, report = folder / "repo", folder / "report.txt"
        repo.mkdir()
        report.write_text(REPORT)
        size = build(repo, given.files)
        print(f"{given.files} files, {size:.1f} MB")
        small = folder / "small"
        small.mkdir()
        build(small, 50)
        once(small, folder / "small.db", folder / "s.db", report)
        figures: dict[str, list[tuple[float, float, float]]] = {"cold": [], "warm": [], "one file changed": []}
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)  # git's, so far
        before = spent.ru_utime + spent.ru_stime
        for round in range(given.rounds):
            for kind, found in figures.items():
                index = folder / f"{round}.db"
                if kind == "one file changed":
                    changed = next((repo / "package").rglob("configparser.py"))
                    changed.write_text(changed.read_text() + f"\nROUND = {round}\n")
                wall, cpu, peak = once(repo, index, folder / "s.db", report)
                found.append((wall, cpu - before, peak))
                before = cpu
        for kind, found in figures.items():
            for what, unit, values in zip(
                ("wall", "CPU", "memory"), ("s", "s", "MB"), zip(*found, strict=True), strict=True
            ):
                middle = statistics.median(values)
                print(
                    f"{middle:.2f} [{min(values):.2f}, {max(values):.2f}] {unit} {what}, {kind}, {given.rounds} rounds"
                )


if __name__ == "__main__":
    main()
