"""Images in messages and results: made, recorded, replayed, forked, edited, exported, refused where none can be."""

from __future__ import annotations

import asyncio
import importlib
import io
import json
import sqlite3
import sys
from base64 import b64decode, b64encode
from contextlib import closing
from pathlib import Path

import pytest

import clew
from clew.core.errors import BadInput, MissingExtra, ReplayDiverged
from clew.core.keys import blob_key
from clew.core.records import Edit
from clew.core.values import Message, Observation, Task, ToolCall
from clew.exchange.openai_jsonl import read, write
from clew.exchange.transcript import Transcript, recall, record
from clew.harness import Runner
from clew.harness.context.compaction import newest, size
from clew.models.fakes import Scripted, tool_call
from clew.models.images import LARGEST, Image, image, media, unnamed
from clew.models.markov import Markov
from clew.store import Run, open_store
from clew.worlds.toys import Counter
from tests.harness import mcp_server
from tests.view.browser.agentic import png

MORE = bytes(range(256)) * 4  # behind their ends, so that they are large enough to be kept apart
RED, BLUE = png(48, 32, (200, 30, 30)) + MORE, png(60, 40, (30, 30, 200)) + MORE
NOTE = f"[image/png, {len(RED):,} bytes]"


def shown(extra):
    return [b64decode(part["data"]) for part in json.loads(extra or "{}").get("media", ())]


# ---- made


def test_an_image_is_made_of_a_file_of_bytes_or_of_what_writes_itself(tmp_path):
    path = tmp_path / "red.dat"  # its bytes say what it is, not its name
    path.write_bytes(RED)
    made = Image(RED, "image/png", 48, 32)
    assert image(path) == image(str(path)) == image(RED) == image(bytearray(RED)) == image(made) == made
    assert str(made) == NOTE
    assert "x89PNG" not in repr(made)
    pillow = pytest.importorskip("PIL.Image", reason="did not run: Pillow is not installed")
    drawn = image(pillow.open(io.BytesIO(RED)))
    assert (drawn.kind, drawn.width, drawn.height) == ("image/png", 48, 32)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (b"", "does not begin as PNG, JPEG, GIF or WebP does"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "does not begin"),
        (RED[:18], "has 0 x 0 pixels"),
        (RED[:16] + (100_000).to_bytes(4, "big") * 2 + RED[24:], "has 100000 x 100000 pixels"),
        (RED + bytes(LARGEST), "larger than 8 MiB"),
        ("https://example.invalid/a.png", "https://example.invalid/a.png is not fetched"),
        ("no\x1b[2Jsuch.png", "cannot be read: No such file"),
        (Path(__file__).parent, "cannot be read: Is a directory"),
        ("nul\0", "cannot be read"),
        (Path(__file__), "does not begin"),
        (7, "cannot be made of a int"),
    ],
)
def test_what_is_no_image_is_refused_in_one_sentence(source, says):
    with pytest.raises(BadInput) as told:
        image(source)
    assert says in told.value.message
    assert told.value.remedy
    assert "\x1b" not in str(told.value)


def test_a_file_is_not_read_beyond_the_bound(tmp_path):
    path = tmp_path / "endless"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(BadInput, match="larger than 8 MiB"):
        image(path)


def test_a_message_has_a_bounded_number_of_images():
    assert media() == ""
    assert shown(media(image(RED), image(BLUE))) == [RED, BLUE]
    with pytest.raises(BadInput, match="21 images"):
        media(*[image(RED)] * 21)


# ---- said, replayed, forked


async def asker(run, path=""):
    chat = run.chat("You look.")
    first = await chat.ask("what is in it?", images=[path])
    second = await chat.ask(images=[image(BLUE)])
    third = await chat.ask("and both?", image(RED), BLUE_IMAGE)
    run.note("answer", text=" ".join((first.text, second.text, third.text)))


BLUE_IMAGE = image(BLUE)


def ask(tmp_path, model=None):
    path = tmp_path / "a.png"
    path.write_bytes(RED)
    runner = Runner(f"{__name__}:asker", None, model or Scripted(["seen"] * 3), tmp_path / "s.db", {"path": str(path)})
    return runner, runner.collect([Task("t", "look")], n=1).runs[0], path


def test_images_are_said_kept_and_replayed(tmp_path):
    runner, run, path = ask(tmp_path)
    said = [node.message for node in run.conversation(0) if node.message.role == "user"]
    assert [(m.text, shown(m.extra)) for m in said] == [
        ("what is in it?", [RED]),
        ("", [BLUE]),
        ("and both?", [RED, BLUE]),
    ]
    assert runner.replay(run.id).calls == len(run.calls)
    path.write_bytes(BLUE)
    with pytest.raises(ReplayDiverged, match="the same text with other images"):
        runner.replay(run.id)
    path.unlink()
    with pytest.raises(ReplayDiverged):
        runner.replay(run.id)


def test_an_edit_of_a_text_keeps_its_image_and_an_edit_may_give_another(tmp_path):
    runner, run, _ = ask(tmp_path)
    texts = fork(runner, run, 1, Edit("say", value="which colour?", index=1))
    said = texts.conversation(0)[1].message
    assert (said.text, shown(said.extra)) == ("which colour?", [RED])
    other = {"role": "user", "text": "and this?", "extra": media(BLUE_IMAGE)}
    said = fork(runner, run, 1, Edit("say", value=other, index=1)).conversation(0)[1].message
    assert (said.text, shown(said.extra)) == ("and this?", [BLUE])
    assert open_store(tmp_path / "s.db").verify() == []


def fork(runner, run, seq, *edits):
    return runner.fork(run, run.at(seq), edits=edits)[0]


def test_a_model_that_reads_text_alone_is_not_asked_about_an_image(tmp_path):
    _, run, _ = ask(tmp_path, Markov("what is in it", tokens=True))
    assert run.stop == "model_error"
    assert "reads text alone, and the message holds an image" in run.calls[-1].error
    assert "str(image)" in run.calls[-1].error


def test_an_image_that_the_text_names_is_not_missed():
    extra = media(image(RED))
    assert unnamed(Message("user", "see", extra=extra)) == [NOTE]
    assert not unnamed(Message("user", f"see {image(RED)}", extra=extra))
    assert unnamed(Message("user", f"see {image(RED)}", extra=media(image(RED), image(BLUE))))
    part = {"type": "image_url", "image_url": {"url": "https://example.invalid/a.png"}}
    assert unnamed(Message("user", "see", extra=json.dumps({"chat": {"content": [part]}})))
    assert not unnamed(Message("user", "see", extra='{"chat": {"name": "Ann"}}'))
    assert not unnamed(Message("user", "see"))
    assert unnamed(Message("user", "see", extra='{"media": [{"type": "image", "data": 7}]}')) == ["[image]"]


# ---- results of tools


def shoot(what: str = "red") -> object:
    """Take a picture."""
    if what == "both":
        return ["a red one:", image(RED), {"n": 2}, image(BLUE)]
    return image(RED if what == "red" else BLUE)


@clew.tool(parallel=True)
def later() -> object:
    """Take a picture in a thread."""
    return [image(BLUE)]


def used(tmp_path, *calls, agent="tool_user", **options):
    store = options.pop("store", tmp_path / "s.db")
    runner = Runner(agent, None, Scripted([*calls, "done"]), store, tools=[shoot, later], **options)
    return runner, runner.collect([Task("t", "go")], n=1).runs[0]


def results(run):
    return [(call.text, shown(call.extra)) for call in run.calls if call.kind == "act"]


def test_a_tool_gives_an_image_or_texts_and_images(tmp_path):
    runner, run = used(tmp_path, tool_call("shoot"), tool_call("shoot", what="both"), tool_call("later"))
    blue = str(image(BLUE))
    expected = [(NOTE, [RED]), (f'a red one:\n{NOTE}\n{{"n": 2}}\n{blue}', [RED, BLUE]), (blue, [BLUE])]
    assert results(run) == expected
    said = [node.message for node in run.conversation(0) if node.message.role == "tool"]
    assert [(m.text, shown(m.extra)) for m in said] == expected
    assert runner.replay(run.id).calls == len(run.calls)
    assert runner.store.verify() == []


def test_an_image_of_a_result_is_in_the_file_once(tmp_path):
    _, run = used(tmp_path, *[tool_call("shoot", what="both")] * 3)
    assert len(results(run)) == 3
    with closing(sqlite3.connect(tmp_path / "s.db")) as db:
        bodies = dict(db.execute("SELECT key, body FROM blob"))
        rows = db.execute("SELECT more FROM node UNION ALL SELECT packed FROM call").fetchall()
    assert {RED, BLUE} == {body for body in bodies.values() if body.startswith(b"\x89PNG")}
    assert not [row for (row,) in rows if b64encode(MORE).decode()[:600] in (row or "")]


def test_a_fork_keeps_the_image_and_an_edit_of_the_result_its_images_or_others(tmp_path):
    runner, run = used(tmp_path, tool_call("shoot"))
    act = next(call.seq for call in run.calls if call.kind == "act")
    after = fork(runner, run, act + 1)
    assert results(after) == results(run) == [(NOTE, [RED])]
    assert after.calls[act].key == run.calls[act].key
    told = fork(runner, run, act, Edit("result", act, "a red square"))
    assert results(told) == [("a red square", [RED])]
    swapped = fork(runner, run, act, Edit("result", act, {"text": "blue", "extra": media(BLUE_IMAGE)}))
    assert results(swapped) == [("blue", [BLUE])]
    none = fork(runner, run, act, Edit("result", act, {"text": "dark", "extra": ""}))
    assert results(none) == [("dark", [])]
    assert shown(swapped.conversation(0)[-2].message.extra) == [BLUE]
    assert runner.store.verify() == []
    assert all(runner.replay(one.id).calls for one in (after, told, swapped, none))


def test_an_altered_image_is_found(tmp_path):
    runner, run = used(tmp_path, tool_call("shoot", what="both"))
    path = tmp_path / "s.db"
    runner.store.close()
    with closing(sqlite3.connect(path)) as db:
        (row,) = db.execute("SELECT packed FROM call WHERE packed NOTNULL").fetchone()
        key = blob_key(RED)
        assert key.hex() in row
        db.execute("UPDATE blob SET body = ? WHERE key = ?", (b"\x89PNG else", key))
        db.commit()
    store = open_store(path)
    places = {fault.where for fault in store.verify()}
    act = next(call.seq for call in run.calls if call.kind == "act")
    assert {key.hex(), f"{run.id}@{act}"} <= places


def test_a_text_model_reads_the_note_of_a_result(tmp_path):
    async def both(run):
        chat = run.chat()
        seen = await run.act(ToolCall("c", "shoot", "{}"))
        chat.say("tool", seen)
        await chat.ask("go")

    runner = Runner(both, None, Markov("a red one", tokens=True), tmp_path / "t.db", tools=[shoot])
    run = runner.collect([Task("t", "go")], n=1).runs[0]
    assert run.stop == "returned"
    assert results(run) == [(NOTE, [RED])]
    assert shown(run.conversation(0)[0].message.extra) == [RED]


# ---- of worlds


class Camera(Counter):
    """Counts, and shows a picture of the count."""

    def open(self, *given):
        return Pictured(super().open(*given))


class Pictured:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def observe(self):
        return self.inner.observe()._replace(extra=media(image(RED)))

    def step(self, action):
        return self.inner.step(action)._replace(extra=media(BLUE_IMAGE))


clew.register("tasksets", "camera-of-tests", Camera)


def test_a_world_shows_images(tmp_path):
    runner = Runner("player", clew.taskset("camera-of-tests"), Scripted(["up", "stop"]), tmp_path / "w.db")
    run = runner.collect(runner.taskset.sample(1), n=1).runs[0]
    shows = [shown(call.extra) for call in run.calls if call.kind in ("open", "act")]
    assert shows == [[RED], [BLUE], [BLUE]]
    assert [shown(n.message.extra) for n in run.conversation(0) if n.message.role == "user"] == [[RED], [BLUE]]
    assert shown(run.view(2).extra) == [RED]
    assert runner.replay(run.id).calls == len(run.calls)
    asks = [call.seq for call in run.calls if call.kind == "ask"]
    assert runner.fork(run, run.at(asks[1]))[0].stop == "done"
    assert f"count 0 {NOTE}" in str(clew.tree(run))
    assert runner.store.verify() == []


# ---- of MCP servers


def mcp(tmp_path, *calls):
    pytest.importorskip("mcp", reason="did not run: the package mcp is not installed")
    tools = [f"mcp:{sys.executable} {mcp_server.__file__}"]
    runner = Runner("tool_user", None, Scripted([*calls, "done"]), tmp_path / "m.db", tools=tools)
    return runner, runner.collect([Task("t", "go")], n=1).runs[0]


def test_the_images_of_an_mcp_result_are_kept_and_what_is_none_is_named(tmp_path):
    runner, run = mcp(tmp_path, tool_call("shot"), tool_call("show"), tool_call("many"))
    shot = mcp_server.SHOT
    note = str(image(shot))
    whole, lie, many = results(run)
    said = ["before", note, "after", note, "[audio/wav, 3 bytes]", "[image/png, 2 bytes]"]
    assert whole == ("\n".join(said), [shot, shot])
    assert lie == ("a dot:\n[image/png, 33 bytes]", [])
    assert many == ("\n".join([note] * 30), [shot] * 20)
    assert runner.replay(run.id).calls == len(run.calls)
    assert runner.store.verify() == []


def test_hostile_images_of_a_server_are_bounded_and_named():
    types = pytest.importorskip("mcp.types", reason="did not run: the package mcp is not installed")
    read = importlib.import_module("clew.harness.mcp.server_tools").observation_of

    def seen(*datas):
        parts = [types.ImageContent(type="image", data=data, mime_type="image/png") for data in datas]
        found = read(types.CallToolResult(content=parts))
        return found.text.split("\n"), [len(body) for body in shown(found.extra)]

    whole = b64encode(RED).decode()
    head = RED[:33]
    size = len(RED)
    cut = whole[: len(whole) // 2 // 4 * 4]  # its header is whole: what endpoints make of the rest is theirs to say
    notes, kept = seen(whole, whole[:-3], cut, "", "\ud800", whole[:20])
    assert (len(notes), kept) == (6, [size, len(b64decode(cut))])
    large = b64encode(head + bytes(LARGEST + 1 - len(head))).decode()
    notes, kept = seen(large, whole)
    assert (notes[0], kept) == ("[image/png, 8,388,609 bytes]", [size])
    many = b64encode(head + bytes(LARGEST - len(head))).decode()
    notes, kept = seen(*[many] * 5, whole)
    assert len(notes) == 6
    assert kept == [LARGEST] * 4


# ---- files


def test_images_go_into_files_and_come_back(tmp_path):
    _, run = used(tmp_path, tool_call("shoot", what="both"), tool_call("shoot"))
    path = tmp_path / "runs.jsonl"
    write(path, [recall(run)])
    line = json.loads(path.read_text())
    assert [m["role"] for m in line["messages"]] == [n.message.role for n in run.conversation(0)]
    parts = line["messages"][2]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url", "image_url"]
    assert b64decode(parts[1]["image_url"]["url"].removeprefix("data:image/png;base64,")) == RED
    other = open_store(tmp_path / "other.db")
    back = Run(other, record(other, next(iter(read(path)))))
    other.commit()
    assert [n.message for n in back.conversation(0)] == [n.message for n in run.conversation(0)]
    write(tmp_path / "again.jsonl", [recall(back)])
    assert json.loads((tmp_path / "again.jsonl").read_text())["messages"] == line["messages"]
    assert other.verify() == []


def test_what_came_otherwise_from_a_file_stays_as_it_came(tmp_path):
    url = f"data:image/png;base64,{b64encode(RED).decode()}"
    odd = [
        [{"type": "image_url", "image_url": {"url": url, "detail": "low"}}, {"type": "text", "text": "a"}],
        [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "https://example.invalid/x.png"}}],
        [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}],
    ]
    path = tmp_path / "odd.jsonl"
    lines = [json.dumps({"messages": [{"role": "user", "content": content}]}) for content in odd]
    path.write_text("\n".join(lines))
    found = [*read(path)]
    assert [json.loads(one.messages[0].extra).keys() for one in found] == [{"chat"}] * 3
    write(tmp_path / "back.jsonl", found)
    back = [json.loads(line)["messages"][0]["content"] for line in (tmp_path / "back.jsonl").read_text().splitlines()]
    assert back == odd


def test_a_continued_import_passes_on_the_images_of_new_results():
    store = open_store(":memory:")
    wish = Message("assistant", "", calls=(ToolCall("c", "shoot", "{}"),))
    said = (Message("user", "go"), wish, Message("tool", "a picture", call_id="c"), Message("assistant", "nice"))
    run = Run(store, record(store, Transcript(said, "t")))
    runner = Runner.of(store, run.id, model=Scripted([tool_call("shoot", what="blue"), "fine"]), tools=[shoot])
    new = runner.fork(run, run.at(1))[0]
    assert [shown(n.message.extra) for n in new.conversation(0) if n.message.role == "tool"] == [[BLUE]]
    assert runner.replay(new.id).calls == len(new.calls)


def test_a_tool_call_by_hand_gives_an_observation():
    made = clew.tool(shoot).call(ToolCall("c", "shoot", "{}"))
    assert made == Observation(NOTE, call_id="c", extra=media(image(RED)))
    assert asyncio.run(later.call(ToolCall("d", "later", "{}"))).extra == media(BLUE_IMAGE)


@pytest.mark.parametrize("form", ["atif", "parquet", "inspect_log"])
def test_every_file_format_keeps_the_images(tmp_path, form):
    module = importlib.import_module(f"clew.exchange.{form}")
    _, run = used(tmp_path, tool_call("shoot", what="both"), tool_call("shoot"))
    path = tmp_path / {"atif": "run.json", "parquet": "runs.parquet", "inspect_log": "log.eval"}[form]
    try:
        module.write(path, [recall(run)])
    except MissingExtra as error:
        pytest.skip(f"did not run: {error.message}")
    (back,) = module.read(path)
    assert back.messages == tuple(node.message for node in run.conversation(0))


async def rewriter(run, how):
    """Sees a picture by a tool, and shows it with words of its own, or not at all."""
    chat = run.chat()
    if how != "message":
        await run.act(ToolCall("c", "shoot", "{}"))
    if how != "result":
        await chat.ask("my own words", images=[RED])


@pytest.mark.parametrize("how", ["both", "message", "result", "passed on"])
def test_a_redacted_image_is_in_no_byte_of_the_file(tmp_path, how):
    agent = {"agent": "tool_user"} if how == "passed on" else {"agent": rewriter, "config": {"how": how}}
    runner, run = used(tmp_path, *([tool_call("shoot")] if how == "passed on" else []), **agent)
    acts = [call.seq for call in run.calls if call.kind == "act"]
    runner.store.redact(f"{run.id}@{acts[0]}" if acts else run.conversation(0)[0].key.hex())
    assert runner.store.verify() == []
    runner.store.close()
    files = b"".join(path.read_bytes() for path in tmp_path.glob("s.db*"))
    assert RED not in files
    assert MORE not in files
    assert b64encode(RED)[-200:] not in files


def test_what_nobody_holds_any_more_is_collected(tmp_path):
    runner, run = used(tmp_path, tool_call("shoot"))
    key = blob_key(RED)
    assert key in runner.store.blob_keys()
    runner.store.put_group(runner.store.group(run.group)._replace(runs=()))
    assert key in runner.store.gc(dry_run=False).blobs
    assert key not in runner.store.blob_keys()


def test_a_fork_to_a_model_that_reads_text_alone_says_so_or_reads_the_note(tmp_path):
    words = Markov("a b c", tokens=True)
    runner, run, _ = ask(tmp_path)
    second = [call.seq for call in run.calls if call.kind == "ask"][1]
    new = runner.fork(run, run.at(second), model=words)[0]
    assert new.stop == "model_error"
    assert "reads text alone" in new.calls[-1].error
    runner, run = used(tmp_path, tool_call("shoot"), store=tmp_path / "t.db")
    second = [call.seq for call in run.calls if call.kind == "ask"][1]
    new = runner.fork(run, run.at(second), model=words)[0]
    told = new.conversation(0)[2]
    assert new.stop == "returned"
    assert words.words.decode(told.ids or ()).count(NOTE) == 1
    assert shown(told.message.extra) == [RED]
    assert runner.store.verify() == []


def test_images_weigh_in_the_budget_of_a_compaction():
    plain = [Message("user", "four" * 4), Message("tool", "four", call_id="c")]
    shows = [plain[0]._replace(extra=media(image(RED), image(BLUE))), plain[1]._replace(extra=media(image(RED)))]
    assert size(shows) == size(plain) + 3 * 1000 == 5 + 3 * 1000
    assert newest(shows, 1500) == {1}
