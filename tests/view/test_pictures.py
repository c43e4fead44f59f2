"""Images of messages: which are shown, from which ways of writing them, and what is said of the others."""

from __future__ import annotations

import base64
import json

import pytest

from clew.core.errors import UnknownName
from clew.core.values import Message
from clew.store.sqlite import SQLiteStore
from clew.view.pages import transcript_page
from clew.view.pages.pictures import LARGEST, measure, parts, picture
from tests.view.browser.agentic import LIAR, REMOTE, VECTOR, Agent, image, png
from tests.view.conftest import serving

PNG = png(3, 2)
TEXT = base64.b64encode(PNG).decode()
GIF = b"GIF89a" + bytes([5, 0, 7, 0]) + bytes(8)
JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\x00\x09\x00\x0b\x03" + bytes(8)
EXTENDED = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + bytes([9, 0, 0, 7, 0, 0])
LOSSLESS = b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0/" + (9 | 7 << 14).to_bytes(4, "little")


def told(*content):
    return Message("user", "look", extra=json.dumps({"chat": {"content": list(content)}}))


@pytest.mark.parametrize(
    "part",
    [
        image(PNG),
        {"type": "image_url", "image_url": f"data:image/png;base64,{TEXT}"},
        {"type": "input_image", "image_url": f"data:;base64,{TEXT}"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": TEXT}},
        {"type": "image", "data": TEXT, "mimeType": "image/png"},
    ],
)
def test_each_way_of_writing_an_image_is_read_and_its_bytes_say_its_type(part):
    message = told({"type": "text", "text": "look"}, part)
    shown = parts(message)
    assert shown == [{"kind": "image", "size": len(PNG), "bytes": True, "image": "image/png", "width": 3, "height": 2}]
    assert picture(message, 0).body == PNG


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (PNG, ("image/png", 3, 2)),
        (GIF, ("image/gif", 5, 7)),
        (JPEG, ("image/jpeg", 11, 9)),
        (EXTENDED, ("image/webp", 10, 8)),
        (LOSSLESS, ("image/webp", 10, 8)),
        (b"<svg/>", ("", 0, 0)),
        (b"", ("", 0, 0)),
        (b"\xff\xd8" + b"\xff\xe0\x00\x02" * 5_000, ("image/jpeg", 0, 0)),
        (b"\x89PNG\r\n\x1a\n", ("", 0, 0)),
    ],
)
def test_an_image_is_measured_by_its_header(body, found):
    assert measure(body) == found


def test_what_is_not_shown_says_why():
    huge = PNG[:16] + (100_000).to_bytes(4, "big") * 2 + PNG[24:]
    large = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * (LARGEST * 2)}}
    message = told(
        REMOTE, VECTOR, LIAR, image(huge), large, {"type": "image", "data": "***"}, {"type": "file", "file": {}}
    )
    notes = [part["note"] for part in parts(message)]
    for note, piece in zip(
        notes,
        ("not fetched from https", "svg+xml, not shown", "not shown", "100000 x 100000", "8 MiB", "base64", ""),
        strict=True,
    ):
        assert piece in note
    for at in (*range(7), 99, -1):
        with pytest.raises(UnknownName):
            picture(message, at)
    assert parts(Message("user", "x", extra="[not json")) == []
    assert len(parts(told(*[REMOTE] * 100))) == 20


def test_the_server_hands_out_images_of_the_record_alone(tmp_path):
    path = tmp_path / "images.db"
    store = SQLiteStore(path)
    run = Agent(store, "pictured")
    run.put("open", text="")
    run.say("user", "look", content=[REMOTE, image(PNG)])
    run.reply("Seen.")
    run.end()
    store.commit()
    key = transcript_page.calls(store, "pictured", 0, 9)[1]["said"][0]["key"]
    store.close()
    with serving(path) as client:
        answer = client.get(f"/api/node/{key}/image/1")
        assert (answer.content, answer.headers["content-type"]) == (PNG, "image/png")
        assert "sandbox" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        client.json(f"/api/node/{key}/image/0", status=404)
        client.json("/api/node/zz/image/0", status=404)
        client.json(f"/api/node/{'0' * 64}/image/0", status=404)


def test_a_tool_call_its_act_and_its_result_are_told_together_across_a_page(tmp_path):
    store = SQLiteStore(tmp_path / "tools.db")
    run = Agent(store, "paired")
    run.put("open", text="")
    run.say("user", "go")
    run.step("", "plot", {"of": 1}, "error: no display", content=[image(PNG)])
    run.reply("Done.")
    run.end()
    store.commit()
    asked, act = transcript_page.calls(store, "paired", 1, 3)
    assert asked["reply"]["calls"] == [{"id": "c1", "name": "plot", "text": '{"of": 1}', "act": 2}]
    assert (act["asked"], act["failed"], act["called"]["name"]) == (1, True, "plot")
    assert [part["image"] for part in act["parts"]] == ["image/png"], "though the message with it lies on the next page"
    store.close()
