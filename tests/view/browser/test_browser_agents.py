"""The page on a long run of an agent with tools: cards, images, hostile text, outline, timeline, next and previous."""

from __future__ import annotations

import pytest

from clew.store.sqlite import SQLiteStore
from tests.view.browser.agentic import LOG, long_run
from tests.view.browser.browsing import Watched, served, until


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    path = tmp_path_factory.mktemp("agents") / "agents.db"
    store = SQLiteStore(path)
    long_run(store)
    store.close()
    with served(path) as address:
        yield address


def call(look, seq):
    return look.page.locator(f".call[data-seq='{seq}']")


@pytest.mark.parametrize("size", [(1280, 900), (390, 844)], ids=["desk", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
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


@pytest.mark.parametrize("size", [(1280, 900), (390, 844)], ids=["desk", "phone"])
def test_images_come_from_the_record_and_hostile_text_stays_text(chrome, base, size):
    look = Watched(chrome, base, *size).open("#/run/longagent@1")
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
