"""The viewer's page in Chromium, on a store of 100,000 Calls and a run of 10,000 steps: seconds until a person sees it.

    python benchmarks/viewer_browser.py [--repeats 15] [--calls 100000] [--steps 10000] [--keep FOLDER] [--json]

Each time ends with the frame after what was waited for is in the document. Beside the wall time (median, least, most)
stand medians of the processor's time: of the server's process, and of the page's main thread. Marks: first view 1 s,
scrolling to a far place 0.15 s, opening a node 0.15 s, from another process's commit of a first Call to its row 1 s.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.viewer import LONG, make
from clew.store.contract import Script
from clew.store.sqlite import SQLiteStore

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
MARKS = {"first view": 1.0, "scroll": 0.15, "open": 0.15, "arrival": 1.0}

# Waits, frame by frame, until a condition holds; gives the milliseconds since `began`, or since the page was asked for.
AWAIT = """
window.until = (found, began = 0) => new Promise((done, fail) => {
  const look = () => {
    if (found()) requestAnimationFrame(() => done(performance.now() - began));
    else if (performance.now() - began > 20000) fail(new Error(`waited in vain for ${found}`));
    else requestAnimationFrame(look);
  };
  look();
});
window.filled = (box, item) => {
  const root = document.querySelector(box);
  if (!root || root.querySelector('.waiting')) return false;
  const view = root.getBoundingClientRect();
  return [...root.querySelectorAll(item)].some((el) => {
    const at = el.getBoundingClientRect();
    return at.bottom > view.top && at.top < view.bottom;
  });
};
"""
SCROLL = """([box, item, part]) => {
  const began = performance.now();
  const root = document.querySelector(box);
  root.scrollTop = part * (root.scrollHeight - root.clientHeight);
  root.dispatchEvent(new Event('scroll'));
  return until(() => filled(box, item), began);
}"""
OPEN = """() => {
  const root = document.querySelector('.transcript').getBoundingClientRect();
  const shown = [...document.querySelectorAll('.call')].filter((el) => {
    const at = el.getBoundingClientRect();
    return at.top > root.top && at.bottom < root.bottom && !el.hasAttribute('aria-current');
  });
  const call = shown[Math.floor(shown.length / 2)];
  const began = performance.now();
  call.querySelector('.role').click();
  return until(() => document.querySelector('.inspect h2 .id')?.textContent === '@' + call.dataset.seq, began);
}"""
SEEN = """id => {
  window.seen = until(() => document.getElementById('r-' + id), performance.now()).then(() => Date.now());
}"""


class Clocks:
    """Wall time, the server's processor time and the page's, each by name."""

    def __init__(self, server: int) -> None:
        self.server, self.page = server, None
        self.wall: dict[str, list[float]] = {}
        self.cpu: dict[str, list[tuple[float, float]]] = {}

    def spent(self) -> tuple[float, float]:
        fields = Path(f"/proc/{self.server}/stat").read_text().rsplit(")", 1)[1].split()
        server = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        metrics = self.page.send("Performance.getMetrics")["metrics"] if self.page else []
        return server, next((m["value"] for m in metrics if m["name"] == "TaskDuration"), 0.0)

    def time(self, name: str, act: Callable[[], float]) -> None:
        """``act`` gives milliseconds of wall time as the page measured them."""
        before = self.spent()
        self.wall.setdefault(name, []).append(act() / 1000)
        after = self.spent()
        self.cpu.setdefault(name, []).append((after[0] - before[0], after[1] - before[1]))


@contextmanager
def served(path: Path) -> Iterator[tuple[str, int]]:
    """`clew view` on a free port: its address, and the process."""
    line = [sys.executable, "-m", "clew.cli", "view", str(path), "--port", "0", "--no-open"]
    server = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"})
    assert server.stdout is not None
    try:
        yield next(word for word in server.stdout.readline().split() if word.startswith("http://")), server.pid
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


def fresh(browser: Any, clocks: Clocks) -> Any:
    """A page with an empty cache."""
    page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
    page.add_init_script(AWAIT)
    clocks.page = page.context.new_cdp_session(page)
    clocks.page.send("Performance.enable")
    return page


def first_view(browser: Any, clocks: Clocks, name: str, address: str, box: str, item: str) -> Any:
    page = fresh(browser, clocks)

    def view() -> float:
        page.goto(address)
        return float(page.evaluate("([box, item]) => until(() => filled(box, item))", [box, item]))

    clocks.time(name, view)
    return page


def views(browser: Any, path: Path, clocks: Clocks, base: str, repeats: int) -> None:
    """First views, scrolling to far places, opening nodes."""
    lists, calls = (".list", ".row"), (".transcript", ".call")
    for repeat in range(repeats):
        page = first_view(browser, clocks, "first view: list of runs", f"{base}#/runs", *lists)
        page.context.close()
        page = first_view(browser, clocks, "first view: the long run, at its start", f"{base}#/run/{LONG}", *calls)
        page.context.close()
        place = f"{base}#/run/{LONG}@{1 + 977 * (repeat + 1) % 15000}"
        page = first_view(browser, clocks, "first view: the long run, at a Call", place, *calls)
        page.context.close()
    page = first_view(browser, clocks, "first view: list of runs", f"{base}#/runs", *lists)
    for repeat in range(repeats):
        part = (0.37 * (repeat + 1)) % 1
        clocks.time("scroll: list of runs", lambda part=part: page.evaluate(SCROLL, [*lists, part]))
    page.goto(f"{base}#/run/{LONG}@1")
    page.evaluate("until(() => filled('.transcript', '.call'))")
    for repeat in range(repeats):
        part = (0.37 * (repeat + 1)) % 1
        clocks.time("scroll: the long run", lambda part=part: page.evaluate(SCROLL, [*calls, part]))
        clocks.time("open: a Call of the long run", lambda: page.evaluate(OPEN))
    page.context.close()


def arrivals(browser: Any, path: Path, clocks: Clocks, base: str, repeats: int) -> None:
    """From the commit of a run's first Call by this process, which the server is not, to its row."""
    page = first_view(browser, clocks, "first view: list of runs", f"{base}#/runs", ".list", ".row")
    page.wait_for_timeout(1500)
    store = SQLiteStore(path)
    for repeat in range(repeats):
        name = f"new{time.time_ns()}x{repeat}"
        page.evaluate(SEEN, name)
        writer = Script(store, name, created=time.time())
        writer.open("You are in the kitchen.")
        store.commit()
        committed = time.time() * 1000
        clocks.time("arrival: first Call to its row", lambda at=committed: page.evaluate("window.seen") - at)
        time.sleep(0.3 + 0.07 * repeat)
    store.close()
    page.context.close()


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--calls", type=int, default=100_000, help="Calls of the store, beside the long run's")
    parser.add_argument("--steps", type=int, default=10_000, help="steps of the long run")
    parser.add_argument("--keep", type=Path, help="folder in which the store is made and left")
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = (options.keep or Path(folder)) / "viewer.db"
        if not path.exists():
            make(path, options.calls, options.steps)
        browser = playwright.chromium.launch(executable_path=options.chromium, args=FLAGS)
        with served(path) as (base, server):
            clocks = Clocks(server)
            first_view(browser, clocks, "first view: list, by a server just started", f"{base}#/runs", ".list", ".row")
            views(browser, path, clocks, base, options.repeats)
            arrivals(browser, path, clocks, base, options.repeats)
        version = browser.version
        browser.close()
    if options.json:
        print(json.dumps({"wall": clocks.wall, "cpu": clocks.cpu}))
        return
    show(clocks, f"python {platform.python_version()}, Chromium {version}, {options.repeats} repeats")


def show(clocks: Clocks, title: str) -> None:
    print(title)
    print(f"{'seconds':<46}{'median':>8}{'least':>8}{'most':>8}{'mark':>7}{'server':>9}{'page':>7}")
    for name, wall in clocks.wall.items():
        server, page = (statistics.median(column) for column in zip(*clocks.cpu[name], strict=True))
        mark = MARKS[name.split(":")[0]]
        row = f"{statistics.median(wall):>8.3f}{min(wall):>8.3f}{max(wall):>8.3f}{mark:>7.2f}{server:>9.3f}{page:>7.3f}"
        print(f"{name:<46}{row}")


if __name__ == "__main__":
    main()
