"""A real browser on a real `clew view`: starting both, and what a page may not do while a test looks at it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import clew
from tests.cli.shell import warm_line

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-software-rasterizer", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync"]  # fmt: skip
SHOTS = Path(__file__).parents[1] / "shots"


def chromium() -> str:
    """Path of a Chromium; tests that need one do not run where there is none."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("did not run: Chromium is not installed")
    return found


@contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    reason = "did not run: playwright is not installed"
    sync_api = pytest.importorskip("playwright.sync_api", reason=reason)
    path = chromium()
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@contextmanager
def served(store: Path, *options: str, folder: Path | None = None) -> Iterator[str]:
    """`clew view` on a store as a process of its own; gives its address without the last slash."""
    command = [*warm_line(), "view", str(store), "--port", "0", "--no-open", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder or store.parent)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r"http://\S+", line)
        assert match, f"clew view said {line!r}"
        yield match[0].split("?")[0].rstrip("/")
    finally:
        process.terminate()
        process.wait(20)
        if process.stdout:
            process.stdout.close()


def environment() -> dict[str, str]:
    """For processes that tests start: the same Clew as here."""
    return {**os.environ, "PYTHONPATH": str(Path(clew.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


class Watched:
    """A page, and everything it did that a page of Clew never does."""

    def __init__(self, browser: Any, base: str, width: int = 1280, height: int = 800, **more: Any) -> None:
        self.base = base
        self.context = browser.new_context(viewport={"width": width, "height": height}, **more)
        self.page = self.context.new_page()
        self.faults: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.faults.append(f"{error} {error.stack}"))
        self.page.on("dialog", lambda dialog: (self.faults.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.context.on("request", lambda request: self.requests.append(request.url))

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.text} {message.location.get('url')}")

    def open(self, route: str) -> Watched:
        """Go to a route of the page by its address, as from a bookmark."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.base}/{route}")
        self.page.wait_for_selector("main > :not(.loading)")
        return self

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    @property
    def route(self) -> str:
        return str(self.page.evaluate("location.hash"))

    def texts(self, selector: str) -> list[str]:
        """What the elements say that are in the document now."""
        return [text.strip() for text in self.page.locator(selector).all_inner_texts()]

    def fits(self) -> bool:
        """Whether nothing is wider than the window."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"))

    @property
    def light(self) -> bool:
        """Whether the page's ground is light."""
        paper = self.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", paper)[:3])) > 380

    def shot(self, name: str) -> None:
        SHOTS.mkdir(exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png")

    def close(self) -> None:
        """Close it, and fail if it wrote to the console, asked something of the user, or went elsewhere."""
        self.context.close()
        elsewhere = [u for u in self.requests if not u.startswith((self.base, "data:", "about:"))]
        assert not self.faults, self.faults
        assert not elsewhere, elsewhere


def until(found: Any, seconds: float = 10.0) -> Any:
    """Ask until the answer is true; the last answer where it never is."""
    limit = time.monotonic() + seconds
    while True:
        answer = found()
        if answer or time.monotonic() > limit:
            return answer
        time.sleep(0.05)


def run_of(store: Any, query: str = "name=quickstart.after* steps>3") -> str:
    """The newest run of a query; by itself one whose model can be loaded again."""
    return str(store.find(query, 1)[0])


def ask_of(store: Any, run: str) -> int:
    """The second ask of a run."""
    return int(next(call.seq for call in store.calls(run)[3:] if call.kind == "ask"))


def rows(look: Watched) -> Any:
    """The lines of the list that are in the document and filled."""
    return look.page.locator(".list .row:not(.waiting)")


FIGURE = re.compile(r"\d[\d,]*(?:\.(\d+))?(?:e([+-]\d+))?")


def shows(text, value):
    """Whether some figure of ``text`` is the size of ``value``, rounded to as many places as that figure has.

    How many those are hangs on the value, which hangs on weights that another CPU's arithmetic would give otherwise.
    """
    for figure in FIGURE.finditer(text):
        unit = 10.0 ** (int(figure[2] or 0) - len(figure[1] or ""))
        if abs(float(figure[0].replace(",", "")) - abs(value)) <= 0.5 * unit * (1 + 1e-6):
            return True
    return False
