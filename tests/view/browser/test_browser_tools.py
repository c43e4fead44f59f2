"""The page over runs that call tools and break, and many tabs of it at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clew.core import printable
from clew.core.errors import AgentFailed
from clew.core.values import Message, Task, ToolCall
from clew.harness import Runner
from clew.models.fakes import Scripted
from clew.store import open_store
from tests.view.browser.browsing import Watched, served, until
from tests.view.conftest import runner as small

pytestmark = pytest.mark.whole

HIDDEN = {"\xad": "⟨SHY⟩", "\u200d": "⟨ZWJ⟩", "\u034f": "⟨CGJ⟩", "\u3164": "⟨U+3164⟩", "\ufe0f": "⟨VS16⟩",
          "\U000e0100": "⟨U+E0100⟩", "\U000e0041": "⟨U+E0041⟩"}  # fmt: skip


def weather(city: str) -> str:
    """The weather of a city."""
    return f"{city}: {'rain' if city == 'Oslo' else 'sun'}"


async def broken(run):
    raise ValueError("no such key " + "".join(HIDDEN))


def both(*cities: str) -> Message:
    calls = (ToolCall(f"c{i}", "weather", f'{{"city": "{city}"}}') for i, city in enumerate(cities))
    return Message("assistant", "", calls=tuple(calls))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store with a run of parallel tool calls whose model knows no logprobs, and one whose agent raised."""
    path = tmp_path_factory.mktemp("tools") / "store.db"
    said = [both("Oslo", "Rome", "Oslo"), both("Rome"), "Rain and sun. " + "".join(HIDDEN)]
    tools = Runner("tool_user", None, Scripted(said), path, tools=[weather])
    run = tools.collect([Task("w", "What is the weather?")], n=1).runs[0].id
    with pytest.raises(AgentFailed) as failed:
        Runner(broken, None, Scripted([]), path).collect([Task("c", "Fail.")], n=1)
    crash = failed.value.at
    tools.store.close()
    return path, run, crash


@pytest.fixture(scope="module")
def base(made):
    with served(made[0]) as address:
        yield address


@pytest.fixture
def page(chrome, base):
    look = Watched(chrome, base)
    yield look
    look.close()


def test_a_tool_call_lies_beside_its_role_and_each_result_stands_once(page, made):
    page.open(f"#/run/{made[1]}")
    page.page.wait_for_selector(".part.as-call .toolcall")
    assert until(lambda: len(page.texts(".part.as-tool .body")) == 4)
    assert page.texts(".part.as-tool .body") == ["Oslo: rain", "Rome: sun", "Oslo: rain", "Rome: sun"]
    assert len(page.texts(".part.as-call")) == 4
    # The role stands to the left of the call, at the same height, as everywhere.
    # Calls made at once are cards side by side, which have no room for it.
    boxes = page.page.evaluate("""() => [...document.querySelectorAll('.call:not(.batch *) .part')].map((part) => {
        const at = (name) => part.querySelector(name).getBoundingClientRect();
        return [at('.body').left - at('.role').left, Math.abs(at('.body').top - at('.role').top)];
    })""")
    assert {round(left) for left, _ in boxes} == {54}
    assert all(apart < 2 for _, apart in boxes)
    assert page.fits()


def test_what_is_invisible_is_shown(page, made):
    page.open(f"#/run/{made[1]}")
    page.page.wait_for_selector("text=Rain and sun")
    said = next(text for text in page.texts(".part.as-model .body") if text.startswith("Rain and sun"))
    assert said == "Rain and sun. " + "".join(HIDDEN.values())


def test_the_page_and_the_terminal_hide_the_same_characters():
    script = (Path(printable.__file__).parents[1] / "view" / "static" / "dom.js").read_text()

    def listed(name: str) -> list[str]:
        found = re.search(rf"const {name} =\n((?:  \".*\n)+)", script)
        assert found is not None
        return "".join(re.findall(r'"(.*?)"', found[1])).split()

    assert listed("CODES") == printable.CODES.split()
    assert listed("SIGNS") == printable.SIGNS.split()


def test_a_reading_order_is_the_documents_order(page, made):
    page.open(f"#/run/{made[1]}@7")
    page.page.wait_for_selector(".call[data-seq='0']")
    order = page.page.evaluate("[...document.querySelectorAll('.call')].map((el) => Number(el.dataset.seq))")
    assert order == sorted(order)
    page.page.evaluate("document.querySelector('.transcript').scrollTop = 0")
    page.open("#/runs")
    page.page.wait_for_selector(".row.run")
    rows = page.page.evaluate(
        "[...document.querySelectorAll('.row')].map((el) => Number(el.getAttribute('aria-rowindex')))"
    )
    assert rows == sorted(rows)
    assert len(rows) == 2


def test_nothing_is_offered_that_a_run_does_not_have(page, made):
    page.open(f"#/run/{made[1]}")
    page.page.wait_for_selector(".call")
    assert page.texts("select[aria-label='Shade by'] option") == ["nothing"]
    assert page.texts(".call.open .part.as-world .body") == ["opened, nothing to see"]


def test_a_run_that_broke_looks_broken(page, made):
    page.open("#/runs")
    page.page.wait_for_selector(".row.run .dot.crash")
    assert page.page.locator(".row.run .dot.crash").count() == 1
    page.page.get_by_role("button", name="crashed").click()
    assert until(lambda: page.page.locator(".row.run").count() == 1)
    page.open(f"#/run/{made[2]}")
    page.page.wait_for_selector(".call.end .part.as-error")
    wrong = page.texts(".call.end .part.as-error .body")[0]
    assert wrong.endswith("ValueError: no such key " + "".join(HIDDEN.values()))  # and no word after it


def test_many_tabs_share_one_stream_and_all_live(chrome, tmp_path):
    """A browser opens six connections to a server: with a stream a tab, the seventh tab would never load."""
    path = tmp_path / "store.db"
    open_store(path).close()
    with served(path) as base:
        context = chrome.new_context()
        streams: list[str] = []
        tabs = []
        for _ in range(20):
            tab = context.new_page()
            tab.on("request", lambda request: streams.append(request.url) if "/api/events" in request.url else None)
            tab.goto(f"{base}/#/runs")
            tab.wait_for_selector("text=No runs", timeout=20_000)
            tabs.append(tab)
        assert not streams  # the shared worker holds it, no tab
        store = open_store(path)
        maker = small(store)
        groups = maker.collect(maker.taskset.sample(1), n=3)
        names = {run.id for run in groups.runs}
        for tab in tabs:
            heard = until(lambda tab=tab: names <= {*tab.locator(".row.run .id").all_inner_texts()}, 20)
            assert heard, "a tab did not hear of the runs"
            shown = tab.locator(".row.run .id").all_inner_texts()
            assert len(shown) == len(set(shown))
        tabs[0].close()  # the first to join leaves, the others hear on
        more = {run.id for run in maker.collect(maker.taskset.sample(1), n=2).runs}
        assert until(lambda: more <= {*tabs[-1].locator(".row.run .id").all_inner_texts()}, 20)
        context.close()
        store.close()


def test_without_shared_workers_a_tab_listens_while_it_is_seen(chrome, tmp_path):
    path = tmp_path / "store.db"
    open_store(path).close()
    with served(path) as base:
        look = Watched(chrome, base)
        look.context.add_init_script("delete window.SharedWorker")
        look.open("#/runs")
        look.page.wait_for_selector("text=No runs")
        store = open_store(path)
        maker = small(store)
        names = {run.id for run in maker.collect(maker.taskset.sample(1), n=2).runs}
        assert until(lambda: names <= {*look.texts(".row.run .id")}, 15)
        store.close()
        look.close()
