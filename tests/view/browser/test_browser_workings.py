"""The page of a run of several models: who worked at which part, at which cost, and what a router decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clew.core.errors import ModelError
from clew.core.values import Limits, Task
from clew.harness import Runner
from clew.harness.workflow import Part, written
from clew.models.compose.router import Worker
from clew.models.fakes import Scripted
from clew.store import open_store
from tests.harness.test_workflow import Worker as Named
from tests.models.pool import folder
from tests.view.browser.browsing import Watched, served, until

pytestmark = pytest.mark.whole

EVIL = '<img src=x onerror="window.hit=1">\u202e[31m</script><script>window.hit=2</script>'
LABELS: Any = {"region": "eu", "price_in": 2.0, "price_out": 8.0}


def crew(store: Any, **limits: Any) -> str:
    """A run with a part that fails over, one whose text is withheld, one within which another plan is written, hostile
    names and texts; gives its id."""
    workers = {
        "abroad": {"ref": "e", **LABELS, "region": "us"},
        "clinic": {"ref": "a", **LABELS, "data_class": "health"},
        EVIL[:60]: {"ref": "b", **LABELS},
        "slow-and-dear": {"ref": "c", **LABELS},
    }
    say = f"Look at the left side of the picture, at all that moves in it, and say in a word what that is {EVIL}"
    outer = [Part(1, say), Part(0, "The right side."), Part(2, "The middle."), Part(3, "Go on.", (0, 1, 2))]
    turn = iter([written(outer), written([Part(2, "Mend it."), Part(0, "Sum up all of it.", (0,))])])

    def says(request: Any) -> Any:
        return f"an answer {EVIL}"

    def down(request: Any) -> Any:
        return ModelError(f"down {EVIL}")

    class Priced(Named):
        async def complete(self, request: Any) -> Any:
            return (await super().complete(request))._replace(cost=0.0012, seconds=0.8)

    models = {name: Priced(name, down if name == "c" else says) for name in "abc"}
    config = {"workers": workers, "depth": 1, "policy": {"regions": "eu"}, "lead": {"region": "eu"}}
    lead = Priced("lead", lambda request: next(turn))
    runner = Runner(
        "orchestrator", None, lead, store, config=config, resolve_model=models.get, limits=Limits(**limits)
    )  # fmt: skip
    return str(runner.collect([Task("t", "What is in the picture?")], n=1).runs[0].id)


def routed(store: Any, path: Path) -> str:
    """A run of three asks, each answered by the worker of a pool that fits."""
    names = ["small", "large", "denied"]
    pool = [Worker(name, f"scripted(replies=['I am {name}'])", price_in=1.0, price_out=2.0) for name in names]
    folder(path, pool, [0.1, 0.3, 0.2])

    async def asks(run: Any) -> None:
        for ref in ("?deny=denied", "?deny=large,denied", "?deny=denied"):
            await run.chat(model=f"route:{path}{ref}").ask("Who are you?")

    return str(Runner(asks, None, Scripted({"": "?"}), store).collect([Task("r", "who")], n=1).runs[0].id)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("workings")
    store = open_store(path / "s.db")
    runs = crew(store), routed(store, path / "pool"), crew(store, cost=0.003)
    store.close()
    with served(path / "s.db") as address:
        yield address, runs


def broken(look: Watched) -> Any:
    return look.page.evaluate((Path(__file__).parent / "rules.js").read_text())


@pytest.mark.parametrize(
    ("size", "scheme"), [((1280, 800), "light"), ((390, 844), "dark")], ids=["desk in light", "phone in dark"]
)
def test_parts_of_a_plan_are_shown_side_by_side_with_who_worked_at_which_cost(
    chrome: Any, base: Any, size: Any, scheme: str
) -> None:
    address, (run, *_) = base
    look = Watched(chrome, address, *size, color_scheme=scheme).open(f"#/run/{run}")
    cards = look.page.locator(".part-card")
    assert until(lambda: cards.count() == 6)
    look.shot(f"workings-{size[0]}-{scheme}")
    levels = look.page.locator(".plan").first.locator(".level")
    assert [levels.nth(i).locator(".part-card").count() for i in range(levels.count())] == [3, 1]
    texts = look.texts(".part-card")
    assert texts[0].startswith("0 clinic")
    assert all(fact in texts[0] for fact in ("tok", "$0.0012", "800 ms", "health"))
    assert texts[1].startswith("1 <img src=x onerror=")
    assert "The right side." in texts[1]
    assert "instead of slow-and-dear" in texts[2]
    assert "slow-and-dear failed: down <img" in texts[2]
    assert "planned again" in texts[3]
    assert "reads 0, 1, 2" in texts[3]
    assert "was not shown what holds health" in " ".join(texts)
    assert "abroad may not be asked: computes in us" in look.page.locator(".workings").inner_text()
    assert look.page.locator(".plan h3").all_inner_texts() == ["Plan 1", "Plan within part 3"]
    cards.nth(1).get_by_role("button").click()
    assert until(lambda: cards.nth(1).evaluate("el => el.classList.contains('here')"))
    assert look.page.evaluate("window.hit") is None
    assert look.fits()
    assert broken(look) == []
    look.close()


def test_a_run_that_was_cut_says_so_and_a_routed_run_shows_each_decision(chrome: Any, base: Any) -> None:
    address, (_, pool, cut) = base
    look = Watched(chrome, address, 1280, 800).open(f"#/run/{cut}")
    assert until(lambda: look.page.locator(".part-card.cut").count() > 0)
    assert "cut off" in look.page.locator(".workings").inner_text()
    look.close()
    for size, scheme in (((1280, 800), "dark"), ((390, 844), "light")):
        look = Watched(chrome, address, *size, color_scheme=scheme).open(f"#/run/{pool}")
        steps = look.page.locator(".trace button")
        assert until(lambda steps=steps: steps.count() == 3)
        assert steps.all_inner_texts() == ["B", "A", "B"]
        look.shot(f"routed-{size[0]}-{scheme}")
        assert "scores: large" in str(steps.first.get_attribute("title"))
        rows = look.texts(".workings tbody tr")
        assert any("denied" in row and "not asked 3 times" in row for row in rows)
        assert look.fits()
        assert broken(look) == []
        steps.nth(1).click()
        assert until(lambda steps=steps: steps.nth(1).evaluate("el => el.classList.contains('here')"))
        look.close()
