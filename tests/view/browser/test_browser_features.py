"""Features and the commitment curve on the page: what they show, by keys too, in both themes, with hostile text."""

from __future__ import annotations

from pathlib import Path

import pytest

from clew.store.sqlite import SQLiteStore
from tests.view.browser.browsing import Watched, served, until
from tests.view.features_made import CURVE, LABEL, LATENT, NAME, commitment, features

pytestmark = pytest.mark.whole

SEEN = [pytest.param((1280, 900), "light", id="desk"), pytest.param((390, 844), "dark", id="phone")]
LOOKS = pytest.mark.parametrize(("size", "scheme"), SEEN)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    path = tmp_path_factory.mktemp("features") / "features.db"
    store = SQLiteStore(path)
    run, _ = features(store)
    commitment(store, (run.id,))
    store.close()
    with served(path) as address:
        yield address


def broken(look):
    """Which rules of accessible pages the page breaks now, and where."""
    return look.page.evaluate((Path(__file__).parent / "rules.js").read_text())


@LOOKS
def test_a_feature_shows_what_it_is_where_it_is_and_what_it_did(chrome, base, size, scheme):
    look = Watched(chrome, base, *size, color_scheme=scheme).open(f"#/feature/{LABEL}/{LATENT}")
    look.page.wait_for_selector(".contexts li")
    assert look.light == (scheme == "light")
    assert "./child <i> alone" in look.page.locator(".runhead .tag").inner_text()
    assert "<script>window.hit = 1</script>" in look.page.locator(".feature dl").inner_text()
    assert "0.97 of ./child <i>" in look.page.locator(".feature dl").inner_text()
    assert look.page.locator(".contexts li").count() == 4
    assert look.page.locator(".strength rect").count() == 4
    arms = look.texts(".arms tbody tr")
    assert [line.split()[0] for line in arms] == ["nothing", "selection", "test", "control"]
    assert "[+0.15, +0.35]" in arms[2].replace("\n", " ")
    assert look.page.evaluate("window.hit") is None
    assert look.page.locator(".feature img, .feature script").count() == 0
    assert look.fits()
    assert broken(look) == []
    look.shot(f"feature-{size[0]}-{scheme}")
    look.close()


def test_a_context_opens_its_transcript_shaded_by_the_feature(chrome, base):
    look = Watched(chrome, base).open(f"#/feature/{LABEL}/{LATENT}")
    look.page.wait_for_selector(".contexts li")
    look.press("j", "j", "k", "Enter")
    look.page.wait_for_selector(".tok.chosen")
    assert look.page.get_by_label("Shade by").input_value() == NAME
    assert look.page.locator("select option:checked").inner_text().startswith(f"feature {LATENT}: <script>")
    shade = "el => getComputedStyle(el).backgroundColor"
    chosen, other = look.page.locator(".tok.chosen"), look.page.locator(".tok.sampled:not(.chosen)").first
    assert chosen.evaluate(shade) != other.evaluate(shade), "where it is not active a token has no colour"
    assert other.evaluate(shade) == "rgba(0, 0, 0, 0)"
    assert broken(look) == []
    look.page.get_by_role("link", name="About it").click()
    look.page.wait_for_selector(".contexts li")
    look.press("b")
    look.page.wait_for_selector(".call")
    look.close()


@LOOKS
def test_the_commitment_curve_is_drawn_and_said_in_numbers(chrome, base, size, scheme):
    look = Watched(chrome, base, *size, color_scheme=scheme).open(f"#/early/{CURVE}")
    look.page.wait_for_selector(".commitment svg")
    assert look.page.locator(".commitment .line").count() == 2
    assert look.page.locator(".commitment .band").count() == 2
    label = look.page.locator(".commitment > svg").get_attribute("aria-label")
    assert "settled: 0 % 0, 50 % 0.40, 100 % 1" in label
    assert [line.split("\t")[0].strip() for line in look.texts(".places tbody tr")] == ["0 %", "50 %", "100 %"]
    assert "0.40 [0.30, 0.50]" in look.page.locator(".places").inner_text()
    assert look.page.evaluate("window.hit") is None
    assert look.fits()
    assert broken(look) == []
    look.shot(f"early-{size[0]}-{scheme}")
    look.close()


def test_reports_lead_to_features_and_curve_and_the_list_of_features_to_each(chrome, base):
    look = Watched(chrome, base).open("#/reports")
    look.page.wait_for_selector(".report")
    assert broken(look) == []
    look.page.get_by_role("link", name="The commitment curve").click()
    look.page.wait_for_selector(".commitment svg")
    look.page.get_by_role("link", name="Reports", exact=True).last.click()
    look.page.wait_for_selector(".report")
    shown = look.page.locator(".sourcebox:visible")
    assert until(lambda: shown.count() == 1)
    assert CURVE in shown.locator("summary").first.inner_text()
    look.open("#/reports")
    look.page.get_by_role("link", name="Features of this comparison").click()
    look.page.wait_for_selector(".listed tbody tr")
    assert [line.split("\t")[0].strip() for line in look.texts(".listed tbody tr")] == [
        f"feature {LATENT}",
        "feature 5",
    ]
    assert broken(look) == []
    look.page.get_by_role("link", name="feature 5").click()
    look.page.wait_for_selector(".contexts li")
    assert "It was not written while the model answered" in look.page.locator(".feature").inner_text()
    look.open("#/features/nothere0")
    assert "no comparison is called" in look.page.get_by_role("alert").inner_text()
    look.faults.clear()  # the browser itself writes a refusal to the console
    look.close()
