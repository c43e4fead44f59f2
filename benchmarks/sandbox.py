"""What the sandbox adds to a command: wall and CPU time of ``true`` inside, against ``true`` started plainly.

    python benchmarks/sandbox.py [--runs 200]

Both in turn, so that a busy machine slows both alike; medians, and the share of runs that stay under 30 ms
more than the median plain start. With ``--files`` the same with so many small files in and one out.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import time

from clew.sandbox.sandbox import Sandbox


def timed(action: object) -> tuple[float, float]:
    """Wall seconds, and CPU-seconds of this process and what it started and waited for."""
    before = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    start = time.perf_counter()
    action()  # type: ignore[operator]
    wall = time.perf_counter() - start
    after = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    used = sum(b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime for a, b in zip(before, after, strict=True))
    return wall, used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--files", type=int, default=0, help="files of 1 kB that go in")
    options = parser.parse_args()
    box = Sandbox()
    files = {f"package/m{i}.py": b"x" * 1000 for i in range(options.files)}
    keep = ["package/m0.py"] if files else []
    inside, plain = [], []
    for _ in range(options.runs):
        plain.append(timed(lambda: subprocess.run(["true"], check=True, capture_output=True)))
        inside.append(timed(lambda: box.run(["true"], files, keep=keep)))
    base = statistics.median(wall for wall, _ in plain)
    added = sorted(wall - base for wall, _ in inside)
    cpu = statistics.median(c for _, c in inside) - statistics.median(c for _, c in plain)
    under = sum(a < 0.030 for a in added) / len(added)
    print(f"as {'root' if os.geteuid() == 0 else 'an ordinary user'}, {options.runs} runs, {options.files} files in")
    low, middle, high = added[len(added) // 20], statistics.median(added), added[-1 - len(added) // 20]
    spread = f"{1000 * middle:.1f} ms (median; {1000 * low:.1f} to {1000 * high:.1f}: 5 to 95 %)"
    print(f"plain {1000 * base:.1f} ms; the sandbox adds {spread}, CPU {1000 * cpu:.1f} ms")
    print(f"under 30 ms: {under:.0%}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
