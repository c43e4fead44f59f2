"""Curves that are the same are drawn as one, and counted."""

from __future__ import annotations

import pytest

from clew.store.sqlite import SQLiteStore
from tests.view.browser.browsing import Watched, served, until

pytestmark = pytest.mark.whole

NAMES = [f"seed{number:02}" for number in range(16)]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Sixteen trainings that succeed alike and differ in their loss, and one that differs in all."""
    path = tmp_path_factory.mktemp("curves") / "curves.db"
    store = SQLiteStore(path)
    for number, name in enumerate(NAMES):
        for step in range(20):
            store.put_metrics(name, step, {"success": step / 20, "loss": 1 / (step + 1 + number), "flat": 1.0})
    for step in range(20):
        store.put_metrics("other", step, {"success": 0.5, "loss": 2.0})
    store.commit()
    store.close()
    with served(path) as address:
        yield address


@pytest.mark.parametrize(
    ("scheme", "size"), [("light", (1280, 800)), ("dark", (390, 844))], ids=["light-desk", "dark-phone"]
)
def test_equal_curves_are_one_with_a_count(chrome, base, size, scheme):
    look = Watched(chrome, base, *size, color_scheme=scheme).open(f"#/training/{','.join([*NAMES, 'other'])}")
    look.page.wait_for_selector("figure svg")

    def figure(name):
        return look.page.locator("figure", has=look.page.locator("figcaption span", has_text=name))

    assert until(lambda: figure("success").locator("path.curve.mean").count() == 2)
    assert figure("loss").locator("path.curve.mean").count() == 17
    assert figure("flat").locator("path.curve.mean").count() == 1
    assert figure("success").locator("summary").inner_text() == "16 equal curves"
    assert figure("loss").locator("summary").count() == 0
    figure("success").locator("summary").click()
    listed = figure("success").locator("details").inner_text()
    assert [name for name in NAMES if name not in listed] == []
    assert "seed00 and 15 equal" in figure("success").locator(".canvas").get_attribute("aria-label")
    figure("success").locator(".canvas").press("ArrowRight")
    assert "seed00 and 15 equal step 0" in figure("success").locator(".readout").inner_text()
    assert look.fits()
    look.shot(f"equal-{size[0]}-{scheme}")
    look.close()
