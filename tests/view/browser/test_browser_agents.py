"""The page on a long run of an agent with tools: cards, images, hostile text, outline, timeline, next and previous."""

from __future__ import annotations

from pathlib import Path

import pytest

from clew.store.sqlite import SQLiteStore
from tests.view.browser.agentic import LOG, long_run, side
from tests.view.browser.browsing import Watched, served, until

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    path = tmp_path_factory.mktemp("agents") / "agents.db"
    store = SQLiteStore(path)
    long_run(store)
    side(store, "aa", 10, 2, good=0.5, prompt="You answer questions. Be brief and kind.", model="ckpt-100")
    side(store, "b", 10, 2, good=0.7, prompt="You answer hard questions. Be brief and exact.", model="ckpt-200")
    store.close()
    with served(path) as address:
        yield address


def broken(look):
    """Which rules of accessible pages the page breaks now, and where."""
    return look.page.evaluate((Path(__file__).parent / "rules.js").read_text())


def call(look, seq):
    return look.page.locator(f".call[data-seq='{seq}']")


@pytest.mark.parametrize(
    ("scheme", "size"), [("light", (1280, 900)), ("dark", (390, 844))], ids=["light-desk", "dark-phone"]
)
def test_tool_calls_are_cards_with_arguments_results_and_errors(chrome, base, size, scheme):
    look = Watched(chrome, base, *size, color_scheme=scheme).open("#/run/longagent@2")
    card = call(look, 2)
    card.wait_for()
    assert card.locator(".toolname").inner_text() == "bash"
    assert card.locator(".took").inner_text() == "200 ms"
    assert card.locator(".json > div").all_inner_texts() == [
        "{", '"command": "pytest -q",', '"timeout": 600,', '"env": {"CI": "1", "SEED": 12345678901234567890}', "}",
    ]  # fmt: skip
    assert "line 7: ok" in card.inner_text()
    assert "line 8: ok" not in card.inner_text()
    look.shot(f"cards-{size[0]}-{scheme}")
    card.get_by_role("button", name="Show the 889 lines between").click()
    assert until(lambda: LOG in card.inner_text())
    look.press("j", "k")
    assert LOG in card.inner_text(), "it stays unfolded"
    look.open("#/run/longagent@4")
    call(look, 4).locator(".json").first.wait_for()
    assert call(look, 4).locator(".json > .in").all_inner_texts()[:2] == ["def area(r):", "    return 3.14159 * r ** 2"]

    look.open("#/run/longagent@7")
    batch = look.page.locator(".batch")
    batch.wait_for()
    tops = batch.locator(".call").evaluate_all("els => els.map((el) => Math.round(el.getBoundingClientRect().top))")
    assert len(set(tops)) == (1 if size[0] == 1280 else 3)
    assert call(look, 7).get_attribute("aria-current") == "true"
    assert call(look, 7).locator(".tag.bad").inner_text() == "error"
    red = call(look, 7).locator(".as-tool .said").evaluate("el => getComputedStyle(el).color")
    assert red != call(look, 6).locator(".as-tool .said").evaluate("el => getComputedStyle(el).color")
    assert look.page.locator(".call[data-seq='5'] .calls a").count() == 3
    look.shot(f"parallel-{size[0]}-{scheme}")
    look.press("j", "j")
    assert until(lambda: look.route.endswith("@9"))
    assert look.fits()
    look.close()


def test_images_come_from_the_record_and_hostile_text_stays_text(chrome, base):
    look = Watched(chrome, base, 390, 844).open("#/run/longagent@1")
    picture = call(look, 1).locator(".images img")
    assert until(lambda: picture.count() == 1 and picture.evaluate("el => el.complete && el.naturalWidth") == 240)
    notes = call(look, 1).locator(".images .tag").all_inner_texts()
    assert ["not fetched from https://example.invalid/photo.png" in notes[0], "svg" in notes[1]] == [True, True]
    look.open("#/run/longagent@10")
    assert until(lambda: call(look, 10).locator("img").evaluate("el => el.complete && el.naturalWidth") == 480)
    for seq in range(13, 24):
        look.open(f"#/run/longagent@{seq}")
        call(look, seq).wait_for()
        assert call(look, seq).locator("script, img, a[href^=javascript], b").count() == 0
        assert look.fits()
    assert look.page.evaluate("window.hit") is None
    look.open("#/run/longagent@18")
    assert "⟨RLO⟩" in call(look, 18).inner_text()
    look.close()  # fails where anything was asked of another host


def test_an_outline_and_a_timeline_lead_through_a_run_by_keyboard(chrome, base):
    look = Watched(chrome, base).open("#/run/longagent")
    outline = look.page.locator(".outline")
    errors = outline.get_by_role("button", name="errors")
    errors.wait_for()
    assert until(lambda: "all" in look.texts(".facets button[aria-pressed=true]")[0])
    look.press("o", "ArrowRight")
    assert until(lambda: look.texts(".facets button[aria-pressed=true]") == ["errors 8"])
    look.press("ArrowDown")
    assert until(lambda: look.route.endswith("@7"))
    look.press("ArrowDown")
    assert until(lambda: look.route.endswith("@12"))
    look.press("Enter")
    assert look.page.evaluate("document.activeElement.className") == "transcript"
    look.press("e")
    assert until(lambda: not look.route.endswith("@12"))
    seq = int(look.route.rpartition("@")[2])
    assert until(lambda: "failed" in call(look, seq).get_attribute("class"))
    look.press("E")
    assert until(lambda: look.route.endswith("@12"))

    slider = look.page.get_by_role("slider", name="Latency and cost")
    slider.focus()
    look.press("ArrowRight")
    assert until(lambda: look.route.endswith("@13"))
    assert "Call 13, reply, 1.50 s, $0.0020" in slider.get_attribute("aria-valuetext")
    look.press("End")
    assert until(lambda: look.route.endswith("@422"))
    box = slider.bounding_box()
    look.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 10)
    assert until(lambda: 205 <= int(look.route.rpartition("@")[2]) <= 217)
    outline.get_by_role("button", name="plot").click()
    assert until(lambda: look.texts(".outline .row .at") == ["@10"])
    look.close()


def test_a_run_leads_to_the_next_of_the_list_it_came_from(chrome, base):
    look = Watched(chrome, base).open("#/runs?q=model%3Dckpt-100+sort%3Atask")
    look.page.locator(".list .row:not(.waiting)").first.wait_for()
    shown = look.texts(".row .c-run .id")[:4]
    look.press("j", "j", "Enter")
    near = look.page.locator(".near")
    assert until(lambda: "2 of 20" in near.inner_text())
    assert shown[1] in look.route
    look.press("J")
    assert until(lambda: shown[2] in look.route and "3 of 20" in near.inner_text())
    look.page.reload()
    assert until(lambda: near.count() == 1 and "3 of 20" in near.inner_text())
    near.get_by_role("button", name="Previous run").click()
    assert until(lambda: shown[1] in look.route and "2 of 20" in near.inner_text())
    look.press("K")
    assert until(lambda: shown[0] in look.route and "1 of 20" in near.inner_text())
    look.press("K")
    assert until(lambda: "No run before" in look.page.locator("#toast").inner_text())
    assert near.get_by_role("button", name="Previous run").is_disabled()
    near.get_by_role("link").click()
    assert until(lambda: look.route.startswith("#/runs?q=model"))
    look.close()


@pytest.mark.parametrize(
    ("scheme", "size"), [("light", (1280, 900)), ("dark", (390, 844))], ids=["light-desk", "dark-phone"]
)
def test_two_queries_are_compared(chrome, base, size, scheme):
    look = Watched(chrome, base, *size, color_scheme=scheme).open("#/compare")
    look.page.get_by_role("button", name="model=ckpt-100").click()
    look.page.keyboard.type("model=ckpt-200")
    look.press("Enter")
    look.page.locator(".figuretable").wait_for()
    assert "a=model" in look.route
    row = look.page.locator(".figuretable tbody tr", has_text="return")
    assert "+0.100" in row.inner_text()
    assert "10 tasks, percentile bootstrap over tasks" in look.page.locator(".compare").inner_text()
    assert look.texts(".words del") == ["kind."]
    assert look.texts(".words ins") == ["hard", "exact."]
    assert look.fits()
    look.shot(f"compare-{size[0]}-{scheme}")
    flipped = look.page.locator(".flips tbody tr")
    assert flipped.count() >= 1
    look.page.locator(".scroller").focus()
    look.press("j", "Enter")
    assert until(lambda: look.route.startswith("#/diff/aa"))
    look.press("b")
    look.page.locator(".figuretable").wait_for()
    look.page.locator("body").click(position={"x": 5, "y": 5})
    look.press("x")
    assert until(lambda: "−0.100" in row.inner_text())
    look.page.get_by_label("Query B").fill("model=nobody")
    look.press("Enter")
    look.page.get_by_text("No run fits B").wait_for()
    look.close()


def test_the_list_is_summed_up_charted_exported_and_its_query_kept(chrome, base):
    look = Watched(chrome, base).open("#/runs?q=model%3Dckpt-100")
    strip = look.page.locator(".overview")
    assert until(lambda: "success 55.0 %" in strip.inner_text())
    assert "return of 20 runs" in strip.locator("svg").get_attribute("aria-label")
    strip.get_by_label("Chart over").select_option("cost")
    assert until(lambda: "cost of 20 runs" in strip.locator("svg").get_attribute("aria-label"))
    strip.get_by_label("Chart as").select_option("over time")
    assert until(lambda: "mean cost over time" in strip.locator("svg").get_attribute("aria-label"))
    with look.page.expect_download() as download:
        strip.get_by_role("link", name="CSV").click()
    text = download.value.path().read_text()
    assert len(text.splitlines()) == 21
    strip.get_by_role("button", name="Keep query").click()
    look.open("#/runs")
    kept = strip.get_by_role("button", name="model=ckpt-100", exact=True)
    kept.click()
    assert until(lambda: "success 55.0 %" in strip.inner_text() and "model" in look.route)
    strip.get_by_role("button", name="Forget model=ckpt-100").click()
    kept.wait_for(state="detached")
    look.page.locator(".list").focus()
    look.press("c")
    assert until(lambda: look.route.startswith("#/compare?a=model"))
    look.close()


@pytest.mark.parametrize(
    ("scheme", "size"), [("light", (1280, 900)), ("dark", (390, 844))], ids=["light-desk", "dark-phone"]
)
def test_what_axe_asks_for_holds_on_every_page_of_agents(chrome, base, size, scheme):
    look = Watched(chrome, base, *size, color_scheme=scheme)
    pages = {
        "list": ("#/runs", ".row .c-run"), "folded": ("#/runs?fold=1", ".row .c-run"),
        "calls": ("#/run/longagent@7", ".batch"), "images": ("#/run/longagent@1", ".images img"),
        "hostile": ("#/run/longagent@18", ".call.tool"), "chosen": ("#/compare", ".takes"),
        "compared": ("#/compare?a=model%3Dckpt-100&b=model%3Dckpt-200", ".figuretable"),
        "parted": ("#/diff/aa001x0/b001x0", ".pair"),
    }  # fmt: skip
    for name, (route, ready) in pages.items():
        look.open(route)
        look.page.wait_for_selector(ready)
        look.page.wait_for_timeout(400)  # charts and outlines come after the lists
        assert broken(look) == [], name
        assert look.fits(), name
        look.shot(f"{name}-{size[0]}-{scheme}")
        if name == "calls" and size[0] == 390:
            for tab in ("Outline", "Inspect"):
                look.page.get_by_role("tab", name=tab).click()
                look.page.wait_for_timeout(200)
                assert broken(look) == [], tab
                look.shot(f"{tab.lower()}-{size[0]}-{scheme}")
    look.close()


BREACHES = {
    "control in a control": "<a href='#'>x <button>y</button></a>",
    "its name is not what it shows": "<button aria-label='Close'>Open it</button>",
    "no name": "<button></button>",
    "field without a name": "<input>",
    "image without a text": "<img src='/static/icon.svg'>",
    "cannot be reached": "<div style='height:20px;overflow:auto'><div style='height:90px'>x</div></div>",
    "contrast 1.": "<p style='color:#eee;background:#fff'>faint</p>",
    "not a listitem": "<div role='list'><div>x</div></div>",
    "twice": "<i id='one'>a</i><i id='one'>b</i>",
}


def test_the_rules_find_what_they_are_for(chrome, base):
    look = Watched(chrome, base).open("#/reports")
    assert broken(look) == []
    for what, markup in BREACHES.items():
        put = "([html]) => { const el = document.createElement('div'); el.innerHTML = html; el.id = 'put';"
        # styles are set as properties: the page's policy keeps the attribute from acting
        put += " for (const one of el.querySelectorAll('[style]')) one.style.cssText = one.getAttribute('style');"
        look.page.evaluate(put + " document.querySelector('main').append(el); }", [markup])
        assert any(what in line for line in broken(look)), what
        look.page.evaluate("document.getElementById('put').remove()")
    look.faults.clear()  # of the attributes
    look.close()
