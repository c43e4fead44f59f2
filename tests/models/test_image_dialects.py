"""Images as each dialect writes them, held against the published shapes; and as endpoints get them over HTTP."""

from __future__ import annotations

import json

import pytest

import clew
from clew.core.errors import BadRecord
from clew.core.values import Message, Task, ToolCall, ToolSpec
from clew.harness import Runner
from clew.models import dialects
from clew.models.dialects import Asked, chat, messages, responses
from clew.models.images import image, media
from clew.models.remote import Remote
from tests.models import server
from tests.view.browser.agentic import png

RED, BLUE = image(png(4, 2, (200, 30, 30))), image(png(2, 4, (30, 30, 200)))
URLS = [f"data:image/png;base64,{dialects.images(Message('user', '', extra=media(one)))[0][1]}" for one in (RED, BLUE)]
DATA = [url.partition(",")[2] for url in URLS]
WISH = Message("assistant", "", calls=(ToolCall("c1", "shoot", "{}"), ToolCall("c2", "shoot", "{}")))
TALK = (
    Message("system", "Look."),
    Message("user", "what is it?", extra=media(RED)),
    WISH,
    Message("tool", str(RED), call_id="c1", extra=media(RED, BLUE)),
    Message("tool", "none", call_id="c2"),
    Message("assistant", "A red one.", calls=(ToolCall("c3", "shoot", "{}"),)),
    Message("tool", "", call_id="c3", extra=media(BLUE)),
    Message("user", "", extra=media(BLUE)),
)
ASKED = Asked("m", TALK, (ToolSpec("shoot"),))


def part(at):
    return {"type": "image_url", "image_url": {"url": URLS[at]}}


def test_chat_completions():
    wire = chat.request_to_wire(ASKED)["messages"]
    roles = " ".join(m["role"] for m in wire)
    assert roles == "system user assistant tool tool user assistant tool user user"
    assert wire[1]["content"] == [{"type": "text", "text": "what is it?"}, part(0)]
    assert (wire[3]["content"], wire[4]["content"], wire[7]["content"]) == (str(RED), "none", "")
    assert wire[5]["content"] == [{"type": "text", "text": "Images of the result of c1:"}, part(0), part(1)]
    assert wire[8]["content"] == [{"type": "text", "text": "Images of the result of c3:"}, part(1)]
    assert wire[9]["content"] == [part(1)]
    kinds = pytest.importorskip("openai.types.chat", reason="did not run: openai is not installed")
    for message in wire:
        if isinstance(message["content"], list):
            assert message["role"] == "user", "tool messages of OpenAI's API hold text alone"
            fits(list[kinds.ChatCompletionContentPartParam], message["content"])
    last = chat.request_to_wire(Asked("m", TALK[:4]))["messages"]
    assert last[-1]["content"][1:] == [part(0), part(1)], "a conversation that ends with a result"


def test_responses():
    items = responses.request_to_wire(ASKED)["input"]
    shown = [{"type": "input_image", "detail": "auto", "image_url": url} for url in URLS]
    assert items[1]["content"] == [{"type": "input_text", "text": "what is it?"}, shown[0]]
    results = [item["output"] for item in items if item["type"] == "function_call_output"]
    assert results == [[{"type": "input_text", "text": str(RED)}, *shown], "none", [shown[1]]]
    assert items[-1]["content"] == [shown[1]]
    kinds = pytest.importorskip("openai.types.responses", reason="did not run: openai is not installed")
    fits(kinds.ResponseInputParam, items)


def fits(kind, value):
    """The SDK's type takes the value and leaves no field of it out."""
    pydantic = pytest.importorskip("pydantic", reason="did not run: pydantic is not installed")
    adapter = pydantic.TypeAdapter(kind)
    assert json.loads(adapter.dump_json(adapter.validate_python(value), warnings="error")) == value


def test_anthropic_messages():
    """Source: the reference of the messages API, ImageBlockParam and ToolResultBlockParam."""
    body = messages.request_to_wire(ASKED)
    blocks = [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}} for data in DATA]
    first, _, results, _, last = body["messages"]
    assert first == {"role": "user", "content": [blocks[0], {"type": "text", "text": "what is it?"}]}
    assert results["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": [*blocks, {"type": "text", "text": str(RED)}]},
        {"type": "tool_result", "tool_use_id": "c2", "content": "none"},
    ]
    assert last["content"] == [{"type": "tool_result", "tool_use_id": "c3", "content": [blocks[1]]}, blocks[1]]


@pytest.mark.parametrize("dialect", [chat, responses, messages])
def test_what_was_sent_reads_back_with_its_images_and_goes_out_as_it_came(dialect):
    body = dialect.request_to_wire(ASKED)
    assert dialect.request_to_wire(dialect.request_from_wire(json.loads(json.dumps(body)))) == body


@pytest.mark.parametrize("dialect", [chat, responses, messages])
@pytest.mark.parametrize("role", ["system", "assistant"])
def test_an_image_that_nobody_can_be_sent_is_refused(dialect, role):
    said = (Message("user", "hi"), Message(role, "mine", extra=media(RED)))
    with pytest.raises(BadRecord, match=f"a message of the role {role} cannot hold an image"):
        dialect.request_to_wire(Asked("m", said))


@pytest.mark.parametrize("dialect", [chat, responses, messages])
@pytest.mark.parametrize(
    "held", ["x", 7, {"type": "image"}, [7], [{"type": "image", "data": "AA=="}], [{"type": "audio", "data": "AA=="}]]
)
def test_media_of_another_hand_are_refused(dialect, held):
    said = Message("user", "hi", extra=json.dumps({"media": held}))
    with pytest.raises(BadRecord, match="must be images in base64"):
        dialect.request_to_wire(Asked("m", (said,)))


def test_messages_without_images_are_written_as_before():
    odd = [Message("user", "hi", extra='{"media": []}'), Message("user", "hi", extra='{"other": "media"}')]
    plain = chat.message_to_wire(Message("user", "hi"))
    assert [chat.message_to_wire(one) for one in odd] == [plain, plain]


# ---- over HTTP


def shoot() -> object:
    """Take a picture."""
    return ["here:", BLUE]


async def agent(run):
    chat = run.chat(tools=run.tools)
    reply = await chat.ask("what is it?", images=[RED])
    for seen in await run.act(reply):
        chat.say("tool", seen)
    await chat.ask()


CALL = {"id": "c1", "type": "function", "function": {"name": "shoot", "arguments": "{}"}}
ANSWERS = {
    "chat": (server.chat("", tool_calls=[CALL]), server.chat("blue")),
    "responses": (
        {"output": [{"type": "function_call", "call_id": "c1", "name": "shoot", "arguments": "{}"}]},
        {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "blue"}]}]},
    ),
    "messages": (
        {"content": [{"type": "tool_use", "id": "c1", "name": "shoot", "input": {}}], "stop_reason": "tool_use"},
        {"content": [{"type": "text", "text": "blue"}], "stop_reason": "end_turn"},
    ),
}


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
def test_an_endpoint_gets_the_images_and_the_record_says_what_the_agent_said(dialect, tmp_path):
    with server.serving() as peer:
        peer.say(*ANSWERS[dialect])
        model = Remote(peer.url, "m", dialect=dialect, backoff=0.001)
        runner = Runner(agent, None, model, tmp_path / "s.db", tools=[shoot])
        run = runner.collect([Task("t", "go")], n=1).runs[0]
        first, second = map(json.dumps, peer.bodies)
        assert runner.replay(run.id).calls == len(run.calls)
        assert len(peer.bodies) == 2
    assert (run.stop, run.calls[-1].error) == ("returned", "")
    assert first.count(DATA[0]) == second.count(DATA[0]) == second.count(DATA[1]) == 1
    assert DATA[1] not in first
    assert [node.message.role for node in run.conversation(0)] == ["user", "assistant", "tool", "assistant"]
    assert run.conversation(0)[2].message == Message("tool", f"here:\n{BLUE}", call_id="c1", extra=media(BLUE))
    assert clew.open_store(tmp_path / "s.db").verify() == []
