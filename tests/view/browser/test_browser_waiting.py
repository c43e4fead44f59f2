"""What the page shows while the server still makes what it needs, and how a search is stopped."""

from __future__ import annotations

import re
import shutil

import pytest

from clew.store.contract import Script
from clew.store.sqlite import SQLiteStore
from clew.view import stores
from tests.view.browser.browsing import Watched, rows, until
from tests.view.conftest import serving
from tests.view.test_waiting import rows_of

pytestmark = pytest.mark.whole

RUNS = 250


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A store that was never listed."""
    path = tmp_path_factory.mktemp("large") / "large.db"
    store = SQLiteStore(path)
    for number in range(RUNS):
        Script(store, f"run{number:03}", created=float(number)).play(2, 1.0)
    store.close()
    return path


@pytest.fixture
def site(kept, tmp_path, monkeypatch):
    """A viewer that indexes one run a request, as it does thousands of a large store; its file, and its address."""
    monkeypatch.setattr(stores, "SLICE", 0.0)
    path = tmp_path / "large.db"
    shutil.copy(kept, path)
    with serving(path) as client:
        yield path, str(client.base_url).rstrip("/")


def far(look):
    """How far the line says that the work is."""
    return float(look.page.locator("#wait progress").evaluate("bar => bar.value"))


@pytest.mark.parametrize(
    ("scheme", "size"), [("light", (1280, 800)), ("dark", (390, 844))], ids=["light-desk", "dark-phone"]
)
def test_a_store_that_is_indexed_says_so_and_a_search_is_stopped(chrome, site, size, scheme):
    path, base = site
    look = Watched(chrome, base, *size, color_scheme=scheme)
    look.page.goto(f"{base}/#/runs")
    line = look.page.locator("#wait .waitline")
    line.wait_for()
    assert re.search(rf"Indexing the store\s+\d+ of {RUNS} runs", line.inner_text())
    assert line.get_by_role("button").count() == 0, "every page needs the list"
    said = look.page.locator(".list").evaluate("el => getComputedStyle(el, '::before').content")
    assert said == '"Reading the list …"'
    look.shot(f"indexing-{size[0]}-{scheme}")
    assert look.fits()
    before = far(look)
    assert until(lambda: line.count() == 0 or far(look) > before)
    rows(look).first.wait_for()
    assert until(lambda: look.page.locator("#wait").is_hidden())
    assert look.page.locator(".count").inner_text() == f"{RUNS} runs"
    assert look.page.locator(".list").get_attribute("aria-busy") is None

    look.page.locator(".bar input[type=search]").fill("result 1")
    line.wait_for()
    assert "Searching the messages" in line.inner_text()
    assert look.page.locator(".bar input[type=search]").is_enabled()
    look.shot(f"searching-{size[0]}-{scheme}")
    line.get_by_role("button", name="Stop").click()
    look.page.locator(".notice", has_text="the search was stopped").wait_for()
    assert until(lambda: look.page.locator("#wait").is_hidden())
    look.page.wait_for_timeout(300)  # what was asked last comes to its end
    read = rows_of(path, "worded_1")
    look.page.wait_for_timeout(500)
    assert 0 < read == rows_of(path, "worded_1") < RUNS

    look.page.locator(".bar input[type=search]").fill("result 0")
    line.wait_for()
    look.page.locator(".bar input[type=search]").fill("")  # another list: nobody waits for the first any more
    rows(look).first.wait_for()
    look.page.wait_for_timeout(300)
    assert rows_of(path, "worded_1") < RUNS
    look.page.locator(".bar input[type=search]").fill("result 1")
    rows(look).first.wait_for()
    assert look.page.locator(".count").inner_text() == f"{RUNS} runs"
    look.close()


def test_a_run_opened_first_fills_once_the_store_is_indexed(chrome, site):
    _, base = site
    look = Watched(chrome, base)
    look.page.goto(f"{base}/#/run/run007@1")
    look.page.locator("#wait .waitline").wait_for()
    look.page.locator(".call[data-seq='1']").wait_for()
    assert until(lambda: look.page.locator("#wait").is_hidden())
    look.close()
