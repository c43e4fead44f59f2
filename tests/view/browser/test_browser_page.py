"""The page as a whole: keys, addresses, sizes, themes, what is live, and what is written to be hostile."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import clew.view
from clew.core.registry import build
from clew.harness import Runner
from clew.models.fakes import Scripted
from tests.view.browser.browsing import Watched, environment, rows, run_of, served, until

pytestmark = pytest.mark.whole

STATIC = Path(clew.view.__file__).parent / "static"
SLOW = """
import sys
from clew.core.registry import build
from clew.harness import Runner
from clew.models.fakes import Scripted
taskset = build("tasksets", "slow(of='household(rooms=2,steps=12)',seconds=0.5)")
model = Scripted({"": lambda request: "go kitchen"})
Runner("clew.harness.agents:player", taskset, model, sys.argv[1]).collect(taskset.sample(1), 1)
"""


def test_the_page_is_worked_by_keys_alone(look, store):
    look.open("#/runs?q=name%3Dquickstart/*")
    rows(look).first.wait_for()
    newest = look.texts(".row .c-run")
    look.press("j", "j")
    assert look.page.locator(".row[aria-selected=true] .c-run").inner_text() == newest[1]
    look.press("k", "Enter")
    assert until(lambda: look.route.startswith(f"#/run/{newest[0]}"))
    look.page.wait_for_selector(".call")
    look.press("j", "j")
    assert until(lambda: look.route.endswith("@1"))
    look.press("?")
    look.page.get_by_role("dialog").wait_for()
    assert "Fork here" in look.page.get_by_role("dialog").inner_text()
    look.press("Escape")
    look.press("g")
    assert until(lambda: look.route.startswith("#/group/"))
    look.press("b")
    assert until(lambda: look.route.startswith(f"#/run/{newest[0]}@1"))
    look.page.wait_for_selector(".call")  # the page's own focus comes after its content, and would take Tab's away
    look.page.wait_for_selector(
        ".inspect button"
    )  # where Tab goes from the transcript; before, it would leave the page
    look.press("Tab")
    seen = "s => s.outlineStyle !== 'none' || s.boxShadow !== 'none'"
    active = "document.activeElement !== document.body"
    assert until(lambda: look.page.evaluate(f"{active} && ({seen})(getComputedStyle(document.activeElement))")), (
        "focus is to be seen"
    )


def test_a_view_that_comes_late_does_not_take_the_place_of_the_next(look, store):
    run = run_of(store, "name=quickstart/*")
    look.open(f"#/run/{run}@1")
    look.page.wait_for_selector(".call[aria-current]")
    held = []
    look.page.route("**/api/group/**", lambda route: held.append(route))  # answered when the run is shown again
    look.press("g")
    assert until(lambda: held or look.page.wait_for_timeout(20))
    look.press("b")
    look.page.wait_for_selector(".call")
    for late in held:
        late.continue_()
    look.page.wait_for_timeout(500)
    assert look.page.locator(".call").count() > 0
    assert look.route.startswith(f"#/run/{run}")


def test_two_runs_of_the_list_are_compared_by_d(look, store):
    look.open("#/runs")
    rows(look).first.wait_for()
    a, b = look.texts(".row .c-run")[:2]
    look.press("j", "d", "j", "d")
    assert until(lambda: look.route == f"#/diff/{a}/{b}")
    look.page.wait_for_selector(".pair")


@pytest.mark.parametrize(
    ("scheme", "size"), [("light", (1280, 800)), ("dark", (390, 844))], ids=["light-desk", "dark-phone"]
)
def test_every_view_fits_and_follows_the_theme(chrome, site, store, size, scheme):
    run = run_of(store)
    group = next(g for g in map(store.group, store.groups()) if g.name.startswith("quickstart/"))
    fork = store.find("origin=fork", 1)
    other = fork[0] if fork else store.find("", 2)[1]
    views = {
        "runs": ("#/runs", ".row .c-run"), "groups": ("#/runs?fold=1", ".row .c-run"),
        "run": (f"#/run/{run}@3", ".call"),
        "diff": (f"#/diff/{run}/{other}", ".pair"), "group": (f"#/group/{group.id}", ".graph svg"),
        "training": ("#/training/quickstart,second", "figure svg"), "reports": ("#/reports", ".report"),
    }  # fmt: skip
    look = Watched(chrome, site, *size, color_scheme=scheme)
    for name, (route, wanted) in views.items():
        look.open(route)
        look.page.wait_for_selector(wanted)
        assert until(look.fits), name
        assert until(lambda: look.light == (scheme == "light")), name
        look.shot(f"{name}-{size[0]}-{scheme}")
    look.close()


def test_modules_are_asked_for_at_once():
    """The page names every module, so that a first view does not wait for one after the other; and each stays small."""
    modules = {path.name: path.read_text() for path in STATIC.glob("*.js")}
    page = (STATIC / "index.html").read_text()
    assert set(re.findall(r'modulepreload" href="/static/(\w+\.js)"', page)) | {"main.js"} == set(modules)
    assert [name for name, text in modules.items() if text.count("\n") > 300] == []
    markup = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(")
    assert [name for name, text in modules.items() if markup.search(text)] == []


def test_the_theme_can_be_chosen_and_is_kept(look):
    look.open("#/runs")
    button = look.page.get_by_role("button", name="Theme: auto")
    button.click()
    look.page.get_by_role("button", name="Theme: light").click()
    assert look.page.evaluate("document.documentElement.dataset.theme") == "dark"
    look.page.reload()
    assert look.page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


def test_a_read_only_server_offers_no_fork(chrome, lab, store):
    run = run_of(store)
    with served(Path(".clew/store.db"), "--read-only", folder=lab) as base:
        look = Watched(chrome, base).open(f"#/run/{run}@1")
        look.page.wait_for_selector(".call")
        assert look.page.get_by_role("button", name="Fork").count() == 0
        assert "read only" in look.page.locator("#store").inner_text()
        look.press("f")
        assert look.page.locator(".forkbox").is_hidden()
        look.close()


def test_a_live_run_is_followed_as_it_is_made(look, lab):
    """A slow run of another process: its Calls arrive on its page while it runs."""
    look.open("#/runs")
    rows(look).first.wait_for()
    known = set(look.texts(".row .c-run"))
    line = [sys.executable, "-c", SLOW, str(lab / ".clew/store.db")]
    with subprocess.Popen(line, env=environment()) as other:
        new = until(lambda: set(look.texts(".row .c-run")) - known, 20)
        assert new, "the run did not appear"
        look.open(f"#/run/{new.pop()}")
        look.page.wait_for_selector(".call")
        first = look.page.locator(".call").count()
        assert until(lambda: look.page.locator(".call").count() > first, 15), "no Call arrived"
        other.kill()


# What is written to be hostile


EVIL = (
    '<script>window.hit=1;alert(1)</script><img src=x onerror="window.hit=2"><a href=javascript:alert(3)>x</a>'
    "\x1b[31mred\x1b[0m\x1b]0;title\x07 \u202egnirts desrever\u202c \u2066iso\u2069 \u200b\ufeff \ud800 lone \x00 nul "
    "https://example.invalid/pixel.png '\"` ${7*7} {{7*7}} ]]> --> </textarea></style></title>"
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A store in which everything that can be written by others is hostile, and one message has 10 MB."""
    path = tmp_path_factory.mktemp("hostile") / "store.db"
    taskset = build("tasksets", "household(rooms=2,goals=('open',),steps=3)")
    big = EVIL + "A" * 10_000_000 + "THE-END"
    said = iter([EVIL, big, *["go kitchen"] * 20])
    runner = Runner("clew.harness.agents:player", taskset, Scripted({"": lambda request: next(said)}), path)
    group = runner.collect(taskset.sample(1), n=1, name=EVIL[:80])
    run = group.runs[0].id
    runner.store.close()
    return path, run


def test_a_hostile_transcript_changes_nothing_but_what_it_shows(chrome, hostile):
    path, run = hostile
    with served(path) as base:
        look = Watched(chrome, base)
        for route in (
            "#/runs",
            "#/runs?fold=1",
            f"#/run/{run}@1",
            f"#/run/{run}@3",
            "#/runs?q=%3Cscript%3E",
            "#/<script>",
        ):
            look.open(route)
            look.page.wait_for_timeout(500)
            assert look.page.evaluate("window.hit") is None
            assert look.page.locator("main script, main img[src=x], main a[href^=javascript]").count() == 0
            assert look.page.title().endswith("clew")
        look.open(f"#/run/{run}@1")
        body = look.page.locator(".call[data-seq='1'] .part.as-model .body")
        text = body.inner_text()
        assert "<script>window.hit=1" in text
        for symbol in ("␛[31m", "⟨RLO⟩", "⟨PDF⟩", "⟨LRI⟩", "⟨ZWSP⟩", "⟨BOM⟩", "␀", "␇"):
            assert symbol in text, symbol
        style = look.page.locator(".call .said").first.evaluate("el => getComputedStyle(el).unicodeBidi")
        assert "isolate" in style
        big = look.page.locator(".call[data-seq='3'] .part.as-model .body")
        big.scroll_into_view_if_needed()
        shown = len(big.inner_text())
        assert shown < 40_000
        assert "cut, 10.0 M characters in all" in big.inner_text()
        big.get_by_role("button", name="Show 100 k characters more").click()
        assert until(lambda: len(big.inner_text()) > shown + 90_000)
        look.shot("hostile-1280-light")
        assert look.fits()
        look.close()
