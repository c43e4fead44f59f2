"""A run with hundreds of forks: they are grouped by place, the first are shown, and the run at hand always is."""

from __future__ import annotations

import re

import pytest

from clew.core.records import Annotation
from clew.store import Run
from clew.store.contract import Script, fork_at
from clew.store.sqlite import SQLiteStore
from tests.view.browser.browsing import Watched, served, until

pytestmark = pytest.mark.whole

MANY, PLACES, LINE = 215, 40, 700


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A run with 215 forks at Call 3, one with a fork at each of 40 Calls, and 700 runs each forked from the last."""
    path = tmp_path_factory.mktemp("forks") / "forks.db"
    store = SQLiteStore(path)
    source = Script(store, "source", created=1.0).play(4, 1.0)
    for number in range(MANY):
        fork = fork_at(store, source, 3, run=f"fork{number:03}", created=2.0 + number)
        fork.act("> other", f"result {number}")
        fork.end()
        store.annotate([Annotation("run", "reward", float(number % 2), fork.run)])
    fork_at(store, source, 5, run="alone", created=300.0).end()
    last = Run(store, f"fork{MANY - 1}")
    fork_at(store, last, 4, run="grandchild", created=301.0).end()
    long = Script(store, "wide", created=400.0).play(PLACES, 1.0)
    for number in range(PLACES):
        fork_at(store, long, number + 2, run=f"wide{number:02}", created=401.0 + number).end()
    above = Script(store, "line000", created=500.0).play(2, 1.0)
    for number in range(1, LINE):
        fork = fork_at(store, above, 3, run=f"line{number:03}", created=500.0 + number)
        fork.act("> on", f"further {number}")
        fork.end()
        store.commit()
        above = Run(store, fork.run)
    store.close()
    with served(path) as address:
        yield address


def seen(look):
    return look.texts(".tree a .id")


def forks_tab(look, width):
    if width < 700:
        look.page.get_by_role("tab", name="Outline").click()


@pytest.mark.parametrize(
    ("scheme", "size"), [("light", (1280, 800)), ("dark", (390, 844))], ids=["light-desk", "dark-phone"]
)
def test_many_forks_of_a_place_are_folded(chrome, base, size, scheme):
    look = Watched(chrome, base, *size, color_scheme=scheme).open("#/run/source@3")
    look.page.wait_for_selector(".call")
    forks_tab(look, size[0])
    assert look.page.locator(".tree").inner_text().count("@3\n") >= 1
    assert seen(look) == ["source", *(f"fork{number:03}" for number in range(10)), "alone"]
    head = look.page.locator(".tree .place").inner_text()
    assert "215 forks" in head
    assert "mean 0.498" in head or "mean 0.5" in head
    assert "218 runs in the family" in look.page.locator(".treebox h2").inner_text()
    assert look.fits()
    look.shot(f"forks-{size[0]}-{scheme}")
    other = look.page.get_by_role("button", name="Show the other 205 forks")
    assert other.evaluate("el => getComputedStyle(el).opacity") == "1", "it is seen before the pointer is on it"
    other.click()
    assert until(lambda: len(seen(look)) == MANY + 3)
    look.close()


def test_the_run_at_hand_is_never_folded_away(chrome, base):
    look = Watched(chrome, base).open("#/run/grandchild")
    look.page.wait_for_selector(".call")
    assert until(lambda: "grandchild" in seen(look))
    shown = seen(look)
    assert "fork214" in shown
    assert "fork100" not in shown
    assert look.page.locator(".tree .here .id").inner_text() == "grandchild"
    look.close()


def test_forks_at_many_places_are_folded(chrome, base):
    look = Watched(chrome, base).open("#/run/wide")
    look.page.wait_for_selector(".call")
    assert seen(look) == ["wide", *(f"wide{number:02}" for number in range(10))]
    look.page.get_by_role("button", name="Show the other 30 forks").click()
    assert until(lambda: len(seen(look)) == PLACES + 1)
    look.close()


def test_a_long_line_of_forks_is_shown(chrome, base):
    look = Watched(chrome, base).open(f"#/run/line{LINE - 1}")
    look.page.wait_for_selector(".call")
    assert f"{LINE} runs in the family" in look.page.locator(".treebox h2").inner_text()
    assert look.page.locator(".tree .here .id").inner_text() == f"line{LINE - 1}"
    look.page.get_by_role("button", name=re.compile("Show .* above")).click()
    assert until(lambda: "line100" in seen(look))
    look.close()


def test_every_fork_of_a_call_can_be_reached_from_it(chrome, base):
    look = Watched(chrome, base).open("#/run/source@3")
    forks = look.page.locator(".call[data-seq='3'] .forks")
    forks.wait_for()
    assert forks.locator("a").count() == 8
    forks.get_by_role("button", name="Show the other 207").click()
    assert until(lambda: forks.locator("a").count() == MANY)
    look.close()
