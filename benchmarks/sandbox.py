"""What the sandbox adds to a command: wall and CPU time of ``true`` inside, against ``true`` started plainly.

    python benchmarks/sandbox.py [--runs 200]

Both in turn, so that a busy machine slows both alike; medians, and the share of runs that stay under 30 ms
more than the median plain start. With ``--files`` the same with so many small files in and one out. With ``--doors``:
what a door adds to such a run, and to a request of HTTP on an open connection, against the same server's unix socket.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from clew.sandbox.sandbox import Limits, Sandbox


def timed(action: object) -> tuple[float, float]:
    """Wall seconds, and CPU-seconds of this process and what it started and waited for."""
    before = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    start = time.perf_counter()
    action()  # type: ignore[operator]
    wall = time.perf_counter() - start
    after = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    used = sum(b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime for a, b in zip(before, after, strict=True))
    return wall, used


SIZES = (200, 1 << 20)  # bytes of an answer
CLIENT = """
import json, socket, sys, time
path, sizes, runs = json.load(sys.stdin)
found = []
for size in sizes:
    s = socket.socket(socket.AF_UNIX) if path else socket.create_connection(("127.0.0.1", 8000))
    if path: s.connect(path)
    f = s.makefile("rb")
    for _ in range(runs):
        start = time.perf_counter()
        s.sendall(b"GET /%d HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n" % size)
        while f.readline().strip(): pass
        f.read(size)
        found.append((size, time.perf_counter() - start))
print(json.dumps(found))
"""


def serve(server: socket.socket) -> None:
    """Answer each GET with as many bytes as its path says, until the socket is closed."""

    def one(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            while first := lines.readline():
                while lines.readline().strip():
                    pass
                size = int(first.split()[1][1:])
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)

    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=one, args=(connection,), daemon=True).start()


def doors(box: Sandbox, runs: int) -> None:
    """Print what a door adds to a run, and to a request."""
    with tempfile.TemporaryDirectory() as place, socket.socket(socket.AF_UNIX) as server:
        path = Path(place, "socket")
        server.bind(str(path))
        server.listen()
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        without, having = [], []
        for _ in range(runs):
            without.append(timed(lambda: box.run(["true"])))
            having.append(timed(lambda: box.run(["true"], doors={8000: path})))
        wall, cpu = (statistics.median(t[i] for t in having) - statistics.median(t[i] for t in without) for i in (0, 1))
        print(f"a door adds {1000 * wall:.1f} ms to a run (median), CPU {1000 * cpu:.1f} ms")
        asked = json.dumps(["", SIZES, 200])
        verdict = box.run(["python3", "-c", CLIENT], stdin=asked, doors={8000: path}, limits=Limits(wall=60, cpu=60))
        order = json.dumps([str(path), SIZES, 200])
        plain = subprocess.run(["python3", "-c", CLIENT], input=order, capture_output=True, text=True, check=True)
        for size in SIZES:
            ways = [[s for n, s in json.loads(text) if n == size] for text in (plain.stdout, verdict.stdout)]
            past, through = (statistics.median(way) for way in ways)
            high = sorted(ways[1])[190]
            print(
                f"a request answered with {size} bytes: {1e6 * past:.0f} us at the socket, {1e6 * through:.0f} us "
                f"through a door (medians of 200; 95 % under {1e6 * high:.0f} us)"
            )
        server.shutdown(socket.SHUT_RDWR)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--files", type=int, default=0, help="files of 1 kB that go in")
    parser.add_argument("--doors", action="store_true", help="measure doors")
    options = parser.parse_args()
    box = Sandbox()
    if options.doors:
        doors(box, options.runs)
        return
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
