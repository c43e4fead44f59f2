"""The page of a run that recalled from a memory: each item as data, and what an audit found it worth."""

from __future__ import annotations

from typing import Any

import pytest

from clew.core.records import Report
from clew.harness.memory.recalled import Shown, recorded
from clew.methods.memory.worth.filed_worth import key_of
from clew.store import open_store
from clew.store.contract.script import Script
from tests.view.browser.browsing import Watched, served, until
from tests.view.browser.test_browser_workings import EVIL, broken

pytestmark = pytest.mark.whole

SAYS = [f"**never** pay twice {EVIL} " + "and so on " * 60, "The bakery opens at six.", "Ask for the next page."]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("recall")
    with open_store(path / "s.db") as store:
        run = Script(store)
        run.open()
        given = [
            Shown(f"item{i}", kind, text)
            for i, (kind, text) in enumerate(zip(("fact", "plan", EVIL), SAYS, strict=True))
        ]
        run.put("recall", action=f"what of the bakery {EVIL}", text=recorded("shop", {"k": 8}, given))
        run.put("recall", action="nothing to find", text=recorded("shop", {"k": 8}, []))
        run.put("recall", action="broken", text="{")
        run.ask("go on", "done")
        for item, verdict, estimate in (("item0", "harmful", -0.45), ("item1", "helpful", 0.28)):
            for measure, by in (("success", estimate), ("turns", 10 * estimate)):
                reach = abs(by) / 2
                said = (f"verdict: {verdict}: success {verdict} {EVIL}", "its audit took 80 forks")
                told = Report(
                    claim=f"{measure} of {item}",
                    estimate=by,
                    low=by - reach,
                    high=by + reach,
                    n=40,
                    design="d",
                    caveats=said,
                )
                store.put_report(told, f"worth-0000abcd-{key_of('shop', item)}-{measure}-00000000")
        store.commit()
        id = run.run
    with served(path / "s.db") as address:
        yield address, id


@pytest.mark.parametrize(
    ("size", "scheme"), [((1280, 800), "light"), ((390, 844), "dark")], ids=["desk in light", "phone in dark"]
)
def test_items_are_data_and_those_that_were_audited_say_what_they_are_worth(
    chrome: Any, base: Any, size: Any, scheme: str
) -> None:
    address, run = base
    look = Watched(chrome, address, *size, color_scheme=scheme).open(f"#/run/{run}")
    items = look.page.locator(".recalled li")
    assert until(lambda: items.count() == 3)
    look.shot(f"recall-{size[0]}-{scheme}")
    first, second, third = look.texts(".recalled li")
    assert "**never** pay twice <img src=x onerror=" in first, "as data, not as Markdown or markup"
    assert "harmful" in first
    assert "−0.45" in first
    assert "n = 40" in first
    assert "clew memory show shop item0" in first
    assert "helpful" in second
    assert "+0.28" in second
    assert "clew memory show shop item2" in third
    assert "audit" not in third.replace("clew memory show", "")
    heads = look.texts(".recallhead")
    assert heads[0].startswith("3 items of memory shop for what of the bakery <img")
    if size[0] > 1000:  # on a phone these are further down, and not drawn yet
        assert heads[1].startswith("nothing of memory shop")
        assert "broken {" in " ".join(look.texts("article.recall"))
    items.nth(0).locator("summary").click()
    assert until(lambda: items.nth(0).locator("details").evaluate("el => el.open"))
    assert look.page.evaluate("window.hit") is None
    assert look.fits()
    assert broken(look) == []
    items.nth(0).get_by_role("link", name="audit").click()
    assert until(lambda: look.route.startswith("#/reports?q=0000abcd"))
    assert until(lambda: look.page.locator(".report:not([hidden])").count() == 4)
    look.close()
