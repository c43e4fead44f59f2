"""Labels in a real browser: by keys alone, by two people in two tabs, hostile notes, and read-only."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from clew.cli import verbs
from clew.core.records import Annotation
from clew.store import open_store
from clew.store.labels import entries
from clew.store.sqlite import SQLiteStore
from tests.view.browser.browsing import Watched, served, until
from tests.view.conftest import fill

pytestmark = pytest.mark.whole

ATTACK = "<img src=x onerror=alert(1)>\u202e[a](javascript:alert(1))"


@pytest.fixture
def place(tmp_path):
    path = tmp_path / "store.db"
    store = SQLiteStore(path)
    fill(store)
    store.close()
    return path


@pytest.fixture
def base(place):
    with served(place) as address:
        yield address


@pytest.fixture
def run(place):
    with open_store(place) as store:
        return store.find("name=evening*")[0]


def enter(look, run, at=""):
    look.open(f"#/run/{run}{at}")
    look.page.get_by_text(run).first.wait_for()  # the page of the run before may still be there
    look.page.wait_for_selector(".call")
    return look


def give(look, *keys):
    """Open the row and press keys in it; the note of a label may be typed between."""
    look.press("a")
    look.page.wait_for_selector(".labelform:not([hidden])")
    for key in keys:
        look.page.keyboard.type(key[1:]) if key.startswith("=") else look.press(key)


def saved(look, text):
    assert until(lambda: text in look.page.locator("#toast").inner_text()), look.texts(".labelsaid")


def focused(look):
    return look.page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.className")


def test_by_keys_alone(chrome, base, place, run):
    look = enter(Watched(chrome, base), run)
    give(look, "4", "g", "n", "=too slow", "Enter")
    assert "Write your name first" in look.texts(".labelsaid")[0]
    assert focused(look) == "Your name"
    look.page.keyboard.type("ann")
    look.press("Enter")
    saved(look, f"{run} by ann")
    assert focused(look) == "Transcript", "keys mean the run's again"
    assert until(lambda: look.texts(".labellist li") == ["run good 4★ ann too slow"])
    look.press("j", "j")
    give(look)
    form = look.page.locator(".labelform")
    assert form.get_attribute("aria-label") == "Label Call 1"
    look.press("b")
    assert look.page.get_by_role("radio", name="bad").get_attribute("aria-checked") == "true"
    assert focused(look) == "bad"
    assert look.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    look.press("2", "2", "3", "Enter")
    saved(look, f"{run}@1 by ann")
    look.press("l")
    give(look, "]", "u", "Enter")
    saved(look, f"{run}@1+0:2 by ann")
    give(look, "t", "t", "t", "t", "Escape")
    assert focused(look) == "Transcript"
    assert look.texts(".call[aria-current] .tag.label") == ["bad 3★", "unsure"]
    look.open("#/runs").page.wait_for_selector(f"#r-{run} .tag.label")
    assert set(look.texts(f"#r-{run} .tag.label")) == {"4★", "good", "2 inside"}
    with open_store(place) as store:
        told = {e.place: (e.by, e.stars, e.verdict, e.note) for e in store.labels()}
        assert told == {
            run: ("ann", 4, "good", "too slow"),
            f"{run}@1": ("ann", 3, "bad", ""),
            f"{run}@1+0:2": ("ann", None, "unsure", ""),
        }
    enter(look, run)
    give(look, "x")
    saved(look, "Taken back")
    with open_store(place) as store:
        assert len(store.labels()) == 2
        assert len(entries(store)) == 4
    look.close()


def test_two_people_in_two_tabs_lose_nothing(chrome, base, place, run, tmp_path):
    with open_store(place) as store:
        runs = store.find("name=evening*")[:3]
    tabs = {by: enter(Watched(chrome, base), run) for by in ("ann", "bob")}
    for by, look in tabs.items():
        look.page.evaluate("by => localStorage.setItem('author', by)", by)
    for n, target in enumerate(runs):
        for by, look in tabs.items():
            enter(look, target)
            give(look, str(1 + n), "g" if by == "ann" else "b", "Enter")
            saved(look, f"{target} by {by}")
    heard = [f"run good {len(runs)}★ ann", f"run bad {len(runs)}★ bob"]
    assert until(lambda: tabs["ann"].texts(".labellist li") == heard), "the other tab's label comes by itself"
    for look in tabs.values():
        look.close()
    file = tmp_path / "labels.jsonl"
    done = CliRunner().invoke(verbs, ["export", "--labels", str(file), "--store", str(place)])
    assert done.exit_code == 0, done.output
    found = [json.loads(line) for line in file.read_text().splitlines()]
    wanted = {(t, by, n + 1, v) for n, t in enumerate(runs) for by, v in (("ann", "good"), ("bob", "bad"))}
    assert {(e["run"], e["by"], e["stars"], e["verdict"]) for e in found} == wanted
    assert len(found) == 6
    assert all(e["stands"] for e in found)


@pytest.mark.parametrize(
    ("scheme", "size"), [("light", (1280, 800)), ("dark", (390, 844))], ids=["light-desk", "dark-phone"]
)
def test_hostile_notes_are_text_and_everything_fits(chrome, base, place, run, size, scheme):
    with open_store(place) as store:
        store.label(run, by="mallory <b>x</b>", verdict="bad", note=ATTACK + "\n" + "x" * 3000)
        store.label(f"{run}@1+0", by="ann", stars=3, note="first token")
        store.annotate([Annotation("call", "told", None, run, 1, data='{"why": "no value"}')])
    look = enter(Watched(chrome, base, *size, color_scheme=scheme), run, "@1")
    assert until(lambda: len(look.texts(".labellist li")) == 2)
    assert "mallory <b>x</b>" in look.texts(".labellist li")[0]
    assert "⟨RLO⟩" in look.texts(".labellist li")[0]
    assert not look.page.locator(".labellist img, .labellist b, .labellist li a[href^=javascript]").count()
    look.page.get_by_role("button", name="Label a").click()
    look.page.wait_for_selector(".labelform:not([hidden])")
    assert look.fits()
    assert not look.page.locator("main .notice.error").all_inner_texts()
    assert until(lambda: '{"why":"no value"}' in "".join(look.page.locator(".inspect td").all_text_contents()))
    small = look.page.locator(".labelform button").evaluate_all(
        "all => all.filter((one) => one.offsetHeight < 20).length"
    )
    assert small == 0
    look.shot(f"labels-{size[0]}-{scheme}")
    look.close()


def test_a_server_that_writes_nothing_says_so(chrome, place, run):
    with served(place, "--read-only") as address:
        look = enter(Watched(chrome, address), run)
        look.press("a")
        assert until(lambda: "read-only" in look.page.locator("#toast").inner_text())
        look.close()


def test_verdicts_of_ones_own_have_letters(chrome, place, run):
    with served(place, "--verdicts", "helpful,harmless,harmful") as address:
        look = enter(Watched(chrome, address), run)
        look.page.evaluate("localStorage.setItem('author', 'ann')")
        enter(look, run)
        look.press("a")
        look.page.wait_for_selector(".labelform:not([hidden])")
        assert look.texts(".labelform [aria-label=Verdict] kbd") == ["e", "a", "r"]
        look.press("r", "Enter")
        saved(look, f"{run} by ann")
        look.close()
    with open_store(place) as store:
        assert [e.verdict for e in store.labels()] == ["harmful"]


def test_what_another_says_meanwhile_takes_no_key(chrome, base, place, run):
    """The labels of a run arrive while its form is open: at first, and whenever somebody files one."""
    look = Watched(chrome, base)
    held, late = [], [True]
    look.page.route("**/labels", lambda route: held.append(route) if late[0] else route.continue_())
    look.open("#/run/" + run)
    look.page.wait_for_selector(".call")
    look.page.evaluate("localStorage.setItem('author', 'ann')")
    give(look, "4")
    assert until(lambda: held)
    late[0] = False
    for route in held:
        route.continue_()
    look.page.wait_for_selector(".labelform [aria-label=Verdict] kbd")
    assert focused(look) == "4 stars"
    other = enter(Watched(chrome, base), run)
    other.page.evaluate("localStorage.setItem('author', 'bob')")
    give(other, "b", "Enter")
    saved(other, f"{run} by bob")
    other.close()
    assert until(lambda: "run bad bob" in look.texts(".labellist li"))
    look.press("g", "Enter")
    saved(look, f"{run} by ann")
    with open_store(place) as store:
        assert {(e.by, e.stars, e.verdict) for e in store.labels() if e.run == run} == {
            ("ann", 4, "good"),
            ("bob", None, "bad"),
        }
    look.close()
