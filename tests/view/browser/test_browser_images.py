"""Images of results and of worlds on the page: those of the record are drawn, hostile ones are named."""

from __future__ import annotations

import json

import pytest

from clew.core.values import ToolCall
from clew.models.images import image, media
from clew.store.sqlite import SQLiteStore
from tests.view.browser.agentic import LIAR, REMOTE, VECTOR, Agent, png
from tests.view.browser.browsing import Watched, served, until

pytestmark = pytest.mark.whole

SHOT = image(png(480, 260, (200, 90, 40)) + bytes(range(256)) * 8)
BOARD = image(png(120, 90))
TALL = image(png(60, 4000))
HOSTILE = [
    {"type": "image", "media_type": "image/png", "data": LIAR["image_url"]["url"].partition(",")[2]},
    {"type": "image", "media_type": "text/html", "data": VECTOR["image_url"]["url"].partition(",")[2]},
    {"type": "image", "url": REMOTE["image_url"]["url"]},
    {"type": "image", "media_type": "image/png", "data": "*" * 400},
    {"type": "<script>window.hit=9</script>image", "data": ""},
]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    path = tmp_path_factory.mktemp("images") / "images.db"
    store = SQLiteStore(path)
    run = Agent(store, "pictures", task="look", agent="clew.harness.agents:tool_user", taskset="")
    run.put("open", text="a board", extra=media(BOARD))
    run.say("user", "a board", extra=media(BOARD))
    calls = [ToolCall(f"c{i}", name, '{"page": 1}') for i, name in enumerate(("screenshot", "camera"))]
    run.reply("I look.", *calls)
    results = (f"here:\n{SHOT}", media(SHOT)), (str(TALL), media(TALL, BOARD))
    for call, (text, extra) in zip(calls, results, strict=True):
        run.act(json.dumps(list(call)), text, finish="tool", extra=extra)
    for call, (text, extra) in zip(calls, results, strict=True):
        run.say("tool", text, call.id, extra=extra)
    last = ToolCall("c9", "evil", "{}")
    run.reply("", last)
    run.act(json.dumps(list(last)), "", finish="tool", extra=json.dumps({"media": HOSTILE}))
    run.act("go", "a room", extra=media(SHOT))
    run.end()
    store.commit()
    store.close()
    with served(path) as address:
        yield address


def call(look, seq):
    return look.page.locator(f".call[data-seq='{seq}']")


def drawn(card, see=False):
    """Sizes of the images that are drawn; where told to ``see``, they are brought into the window, as lazy ones ask."""
    if see:
        card.locator(".images img").evaluate_all("els => els.forEach((el) => el.scrollIntoView())")
    return card.locator(".images img").evaluate_all("els => els.map((el) => [el.naturalWidth, el.naturalHeight])")


@pytest.mark.parametrize("size", [(1280, 900), (390, 844)], ids=["desk", "phone"])
def test_a_result_shows_its_images_once_and_a_world_its_own(chrome, base, size):
    look = Watched(chrome, base, *size).open("#/run/pictures@2")
    card = call(look, 2)
    card.locator(".images img").first.wait_for()
    assert until(lambda: drawn(card) == [[480, 260]])
    assert card.locator(".part.as-tool .images").count() == 1
    assert "here:" in card.inner_text()
    assert until(lambda: drawn(call(look, 3), see=True) == [[60, 4000], [120, 90]])
    assert call(look, 4).locator(".images").count() == 0, "the message that passes a result on does not show it again"
    look.shot(f"result-images-{size[0]}")
    look.open("#/run/pictures@0")
    assert until(lambda: drawn(call(look, 0)) == [[120, 90]])
    look.open("#/run/pictures@6")
    assert until(lambda: drawn(call(look, 6), see=True) == [[480, 260]])
    assert call(look, 6).locator(".as-world .images img").count() == 1
    look.shot(f"world-image-{size[0]}")
    assert look.fits()
    look.close()


def test_hostile_images_of_a_result_are_named_never_fetched_never_run(chrome, base):
    look = Watched(chrome, base).open("#/run/pictures@5")
    card = call(look, 5)
    card.locator(".images .tag").first.wait_for()
    notes = card.locator(".images .tag").all_inner_texts()
    pieces = ("no PNG, JPEG, GIF or WebP", "no PNG, JPEG, GIF or WebP", "not fetched from https", "not in base64", "")
    assert len(notes) == len(pieces)
    assert all(piece in note for piece, note in zip(pieces, notes, strict=True))
    assert card.locator("img").count() == 0
    assert look.page.evaluate("window.hit") is None
    answer = look.page.request.get(f"{base}/api/node/call/image/0?call=pictures@5")
    assert answer.status == 404
    for place in ("pictures@99", "pictures@" + "9" * 400, "nobody@1", "pictures@-1", "@"):
        assert look.page.request.get(f"{base}/api/node/call/image/0?call={place}").status == 404
    shown = look.page.request.get(f"{base}/api/node/call/image/0?call=pictures@2")
    assert (shown.status, shown.headers["content-type"]) == (200, "image/png")
    assert shown.body() == SHOT.body
    assert "sandbox" in shown.headers["content-security-policy"]
    look.close()
